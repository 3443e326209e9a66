// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"

	"github.com/lklrun/lklrun/pkg/config"
	_ "github.com/lklrun/lklrun/pkg/config/types"
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
	// coalesce = 0 (default)
}

// A file is read by its name. A stronger source, in this example a flag, overrides
// it.
func ExampleLoad_file() {
	var flags config.Layer
	flags.Set("sysctl", config.Origin{Kind: config.FromFlag, Where: "--sysctl"}, "net.ipv4.tcp_ecn=2")
	c, err := config.Load(config.Sources{Flags: flags, File: "testdata/example.json"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.FormatMem(c.Run.Mem), c.Origin("mem").Kind)
	for _, s := range c.Run.Sysctls {
		fmt.Println(s)
	}
	// Output:
	// 64M file
	// net.ipv4.tcp_sack=0
	// net.ipv4.tcp_ecn=2
}

func ExampleParseInterface_wrong() {
	_, err := config.ParseInterface("macvtap:eth0,dhpc")
	fmt.Println(err)
	_, err = config.ParseInterface("user,dhcp")
	fmt.Println(err)
	// Output:
	// "macvtap:eth0,dhpc": "dhpc": unknown key; did you mean dhcp?
	// "user,dhcp": dhcp: the user-mode gateway assigns the addresses; remove it
}

// String returns the canonical form of a specification.
func ExampleInterface_String() {
	i, err := config.ParseInterface("tap:tap0,backup=on,mtu=9000,ip=10.0.1.2/24")
	fmt.Println(i.String(), i.Target(), i.Keys(), err)
	// Output: tap:tap0,ip=10.0.1.2/24,mtu=9000,backup tap:tap0 [ip mtu backup] <nil>
}

func ExampleTypeNames() {
	fmt.Println(config.TypeNames())
	// Output: [user wire udp wg tap macvtap raw rawip clat fd]
}

func ExampleParseInterface() {
	i, err := config.ParseInterface("macvtap:eth0,dhcp,backup")
	fmt.Println(i.Type, i.Device, i.DHCP, i.Backup, err)
	// Output: macvtap eth0 true true <nil>
}
