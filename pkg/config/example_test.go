// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"

	"github.com/lklrun/lklrun/pkg/config"
)

func ExampleParseFile() {
	f, err := config.ParseFile("lab.json", []byte(`{
		"stack": "bbr", // paced
		"interfaces": [{"type": "tap", "device": "tap0", "ip": "10.0.1.2/24"}],
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := config.Resolve(config.BuiltinProfiles(), f.Layer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Run.Stack, c.Run.Interfaces[0].IP, c.Origin("stack"))
	// Output: bbr [10.0.1.2/24] lab.json:2
}

func ExampleParseFile_wrong() {
	_, err := config.ParseFile("lab.json", []byte("{\n\"interfaces\": [{\"type\": \"user\", \"mtu\": 1}]}"))
	fmt.Println(err)
	// Output: lab.json:2: interfaces[0].mtu: "1"; expected a number from 68 to 65520
}

func ExampleLoad() {
	var flags config.Layer
	flags.Set("spin", config.Origin{Kind: config.FromFlag, Where: "--spin"}, "0")
	c, err := config.Load(config.Sources{Flags: flags, Environ: []string{"LKLRUN_STACK=vanilla", "LKLRUN_SPIN=200"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range c.Explain() {
		fmt.Printf("%s = %s (%s)\n", v.Setting, v.Value, v.From)
	}
	// Output:
	// stack = vanilla (LKLRUN_STACK)
	// port_range = 4096 (default)
	// rst_guard = auto (default)
	// engine = auto (default)
	// spin = 0 (--spin)
}

func ExampleParseInterface() {
	i, err := config.ParseInterface("macvtap:eth0,dhcp,backup")
	fmt.Println(i.Type, i.Device, i.DHCP, i.Backup, err)
	// Output: macvtap eth0 true true <nil>
}
