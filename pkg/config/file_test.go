// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// full contains every key, in all forms that the reader accepts.
const full = `// comments,
{
  /* of both kinds, and trailing commas */
  "$schema": "config.schema.json",
  "stack": "bbr", "profile": "mine", "user": "nobody", "name": "a", "mem": "64M", "cmdline": "loglevel=4",
  "interfaces": [
    "tap:t0,ip=10.0.0.2/24",
    {
      "type": "tap", "device": "t1", "ip": "10.0.1.2/24", "ip6": ["fd00::2/64", "fd00::3/64"], "gw": "10.0.1.1",
      "mac": "02:00:00:00:00:01", "mtu": 1400, "dns": ["192.0.2.53"], "group": 7, "qdisc": "fq", "offload": "off",
      "backup": true, "signal": true, "fullmesh": false, "table": 200, "vlan": 5, "bridge": "br0",
      "neigh": ["10.0.1.7|02:00:00:00:00:07", {"ip": "fd00::7", "mac": "02:00:00:00:00:08"}], "route": "198.51.100.0/24|10.0.1.1",
    },
    {"type": "macvtap", "device": "eth9", "mode": "vepa", "dhcp": true, "dhcp6": true, "slaac": true},
    {"type": "fd", "fd": 7},
  ],
  "sysctl": {"net.ipv4.tcp_ecn": 1, "net.ipv4.tcp_rmem": "4096 1 2"},
  "dns": "192.0.2.1", "add_host": ["server=192.0.2.1"], "host_net": ["10.0.0.0/8"], "allow": ["pypi.org:443"], "iface": "wlan0,rmnet0", "publish": "8080:80", "listen": [80, 443], "port_range": "1024",
  "rst_guard": "nft", "engine": "supervise", "spin": 0, "coalesce": 1000, "require": "stack",
  "detach": true, "log": "/tmp/x", "wait_all": true, "tls_keys": true, "proxy": "http://192.0.2.1:8080", "egress": "policy.json", "egress_log": "log.json", "explain": true, "verbose": true, "quiet": false,
  "capture": "a.pcapng,snap=128", "delay": 1, "mount": ["debugfs"], "dump": "/proc/net/snmp", "command": ["true", "x y"],
  "profiles": {"mine": {"summary": "s", "mem": 67108864, "sysctl": ["-net.ipv4.tcp_sack=0"]}},
}`

func TestParseFile(t *testing.T) {
	f, err := ParseFile("f.json", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Settings() {
		if len(f.Words[s.Key]) == 0 {
			t.Errorf("the file of all keys lacks %s", s.Key)
		}
	}
	c, err := Resolve(f.Profiles, f.Layer)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Run.Interfaces[1].String()
	want := "tap:t1,ip=10.0.1.2/24,ip6=fd00::2/64,ip6=fd00::3/64,gw=10.0.1.1,mac=02:00:00:00:00:01,mtu=1400,dns=192.0.2.53,group=7,qdisc=fq,offload=off," +
		"backup,signal,table=200,vlan=5,neigh=10.0.1.7|02:00:00:00:00:07,neigh=fd00::7|02:00:00:00:00:08,route=198.51.100.0/24|10.0.1.1,bridge=br0"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := c.Run.Interfaces[2].String(); got != "macvtap:eth9,dhcp,dhcp6,slaac,mode=vepa" {
		t.Error(got)
	}
	if got := c.Words["interfaces"][2].From.String(); got != "f.json:14" {
		t.Errorf("the third interface is at %s", got)
	}
	if w := c.Words["sysctl"][0]; w.Text != "-net.ipv4.tcp_sack=0" || w.From.String() != "profile mine, f.json:22" {
		t.Errorf("%+v", w)
	}
}

// layer parses the text of a file.
func layer(t *testing.T, text string) Layer {
	t.Helper()
	f, err := ParseFile("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f.Layer
}

// A value of a stronger source replaces that of a weaker one. Lists are replaced as
// a whole. Each kernel setting is replaced separately.
func TestPrecedence(t *testing.T) {
	file := layer(t, `{"stack": "bbr", "mem": "64M", "spin": 1, "interfaces": ["user", "user"],
		"sysctl": {"net.ipv4.tcp_ecn": 0, "net.ipv4.tcp_sack": 0}}`)
	env := Environment([]string{"LKLRUN_MEM=128M", "LKLRUN_IF=tap:a;tap:b,mtu=9000; tap:c ;", "LKLRUN_SYSCTL=net/ipv4/tcp_ecn=1;net.ipv4.tcp_rmem=1 2 3", "LKLRUN_SPIN=", "LKLRUN_NOSUCH=1", "LKLRUN_BIN=/x", "LKLRUN_CONFIG=/x", "LKLRUN_TEST_X=1", "LKLRUN_EMPTY="})
	if len(env.Notes) != 1 || !strings.HasPrefix(env.Notes[0], "LKLRUN_NOSUCH: no such setting, ignored") {
		t.Errorf("notes on variables: %q", env.Notes)
	}
	flags := Layer{}
	flags.Set("stack", Origin{Kind: FromFlag, Where: "--stack"}, "vanilla")
	c, err := Resolve(nil, file, env, flags)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, v := range c.Explain() {
		if v.From.Kind != FromDefault {
			lines = append(lines, v.Setting+"="+v.Value+" "+v.From.String())
		}
	}
	want := []string{
		"stack=vanilla --stack", "interfaces[0]=tap:a LKLRUN_IF", "interfaces[1]=tap:b,mtu=9000 LKLRUN_IF", "interfaces[2]=tap:c LKLRUN_IF",
		"sysctl net.ipv4.tcp_sack=0 f:2", "sysctl net.ipv4.tcp_ecn=1 LKLRUN_SYSCTL", "sysctl net.ipv4.tcp_rmem=1 2 3 LKLRUN_SYSCTL",
		"mem=128M LKLRUN_MEM", "spin=1 f:1",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if c.Run.Mem != 128<<20 || len(c.Run.Sysctls) != 3 || c.Run.Engine != EngineAuto {
		t.Errorf("%+v", c.Run)
	}
}

// A profile is weaker than the source that names it, and stronger than all
// weaker sources.
func TestProfilePrecedence(t *testing.T) {
	f, err := ParseFile("f", []byte(`{"profiles": {"p": {"spin": 7, "mem": "64M", "sysctl": {"net.ipv4.tcp_ecn": 2}}, "q": {"spin": 8}},
		"profile": "q", "spin": 1, "mem": "128M", "sysctl": {"net.ipv4.tcp_ecn": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	flags := Layer{}
	flags.Set("profile", Origin{Kind: FromFlag, Where: "--profile"}, "p")
	c, err := Resolve(f.Profiles, f.Layer, flags)
	if err != nil || c.Run.Spin != 7 || c.Run.Mem != 64<<20 || len(c.Run.Sysctls) != 1 || c.Run.Sysctls[0].Value != "2" {
		t.Errorf("by the flag: %+v, %v", c.Run, err)
	}
	if c, err = Resolve(f.Profiles, f.Layer); err != nil || c.Run.Spin != 1 || c.Run.Mem != 128<<20 {
		t.Errorf("by the file: %+v, %v", c.Run, err)
	}
	flags.Set("profile", Origin{Kind: FromFlag, Where: "--profile"}, NoProfile)
	if c, err = Resolve(f.Profiles, f.Layer, flags); err != nil || c.Run.Spin != 1 {
		t.Errorf("none: %+v, %v", c.Run, err)
	}
}

func TestBuiltinProfiles(t *testing.T) {
	all := BuiltinProfiles()
	if diff := cmp.Diff([]string{"bbr", "bulk", "latency", "mobile", "safe"}, all.Names()); diff != "" {
		t.Error(diff)
	}
	for name, p := range all {
		if p.Summary == "" || len(p.Values()) == 0 {
			t.Errorf("%s: %+v", name, p)
		}
		l := Layer{}
		l.Set("profile", Origin{Kind: FromFlag}, name)
		if _, err := Resolve(all, l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Load searches the documented places for files, in the documented order.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("lklrun/config.json", `{"mem": "33M", "profile": "own"}`)
	write("lklrun/profiles/own.json", `{"spin": 9}`)
	byVariable := write("var.json", `{"mem": "34M"}`)
	byFlag := write("flag.json", `{"mem": "35M"}`)
	lkl := write("lkl.json", `{"boot_cmdline": "mem=36M quiet"}`)
	env := []string{"XDG_CONFIG_HOME=" + dir}
	for name, tc := range map[string]struct {
		s    Sources
		mem  uint64
		spin int
	}{
		"user's own":       {Sources{Environ: env}, 33 << 20, 9},
		"variable":         {Sources{Environ: append(env, "LKLRUN_CONFIG="+byVariable)}, 34 << 20, DefaultSpin},
		"flag":             {Sources{Environ: append(env, "LKLRUN_CONFIG="+byVariable), File: byFlag}, 35 << 20, DefaultSpin},
		"none":             {Sources{Environ: append(env, "LKLRUN_CONFIG="+byVariable, "LKL_HIJACK_CONFIG_FILE="+lkl), NoFile: true}, 0, DefaultSpin},
		"LKL's":            {Sources{Environ: []string{"LKL_HIJACK_CONFIG_FILE=" + lkl}}, 36 << 20, DefaultSpin},
		"LKL's, and ours":  {Sources{Environ: []string{"LKL_HIJACK_CONFIG_FILE=" + lkl}, File: byFlag}, 35 << 20, DefaultSpin},
		"LKL's as ours":    {Sources{File: lkl}, 36 << 20, DefaultSpin},
		"LKL's variables":  {Sources{Environ: []string{"LKL_HIJACK_BOOT_CMDLINE=mem=37M"}}, 37 << 20, DefaultSpin},
		"variable of ours": {Sources{Environ: []string{"LKL_HIJACK_BOOT_CMDLINE=mem=37M", "LKLRUN_MEM=38M"}}, 38 << 20, DefaultSpin},
	} {
		c, err := Load(tc.s)
		if err != nil || c.Run.Mem != tc.mem || c.Run.Spin != tc.spin {
			t.Errorf("%s: %v: %+v", name, err, c)
		}
	}
	if _, err := Load(Sources{File: filepath.Join(dir, "no.json")}); err == nil || !strings.Contains(err.Error(), "no.json") {
		t.Error(err)
	}
	if _, err := Load(Sources{File: dir}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Error(err)
	}
}

// The error for a removed setting explains the removal, including in a profile.
func TestRemovedSetting(t *testing.T) {
	for _, text := range []string{`{"lane": true}`, `{"profiles": {"p": {"lane": false}}}`} {
		_, err := ParseFile("f.json", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "lane: no longer a setting: lklrun no longer shares memory with the program; remove it") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// For any input, ParseFile returns a one-line error that names the file, or a valid
// configuration.
func FuzzParseFile(f *testing.F) {
	f.Add(full)
	f.Add(seed)
	f.Add(`{"interfaces": [{"type": 1}], "interfaces": {}}`)
	f.Add("{\"dns\": \"\\\"[\" /* [ */ // [\n}" + strings.Repeat("[{\"a\":", 40))
	f.Add(`{"sysctl": ["a"], "listen": 1e9, "neigh": null}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseFile("f.json", []byte(text))
		if err == nil {
			_, err = Resolve(file.Profiles, file.Layer)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "f.json") && !strings.HasPrefix(err.Error(), "profile ") || strings.ContainsAny(err.Error(), "\n\x00")) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
