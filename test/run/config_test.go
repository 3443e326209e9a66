// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lklrun/lklrun/pkg/config"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/terminal"
)

// configFile writes a configuration file for one test.
func configFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(kit.Dir(t), name)
	kit.WriteFile(t, path, text)
	return path
}

// TestBrokenConfigurations checks that lklrun reports each broken configuration in one
// line with the place and the remedy. It exits with status 2 and does nothing else.
func TestBrokenConfigurations(t *testing.T) {
	kit.Need(t, kit.Bin("lklrun"))
	path := configFile(t, "c.json", "{}")
	before := kit.Take(t)
	var known []string
	for _, s := range config.Settings() {
		known = append(known, s.Key)
	}
	keys := "expected one of " + strings.Join(known, ", ") + ", profiles"
	for text, want := range map[string]string{
		"":                                       "FILE:1:1: parsing value: unexpected EOF; expected an object of settings, such as {\"stack\": \"mptcp\"}, to its closing brace",
		"{\"stack\": \"bbr\"\n":                  "FILE:2:1: parsing object after value: unexpected EOF; expected an object of settings, such as {\"stack\": \"mptcp\"}, to its closing brace",
		"{\n\"stack\": bbr\n}":                   "FILE:2:10: invalid literal: bbr",
		"{\"spin\": 1\n\"mem\": 2}":              "FILE:2:1: invalid character '\"' after object value (expecting ',' or '}')",
		"[\"stack\"]":                            "FILE:1: an array; expected an object of settings, such as {\"stack\": \"mptcp\"}",
		`{"dns": ` + strings.Repeat("[", 100000): "FILE:1: more than 32 nested objects and arrays",
		"\xff{}":                                 "FILE: is not UTF-8 text",
		"{\n// the stack\n\"stak\": \"bbr\"}":    "FILE:3: stak: unknown key; did you mean stack?",
		`{"xyzzy": 1}`:                           "FILE:1: xyzzy: unknown key; " + keys,
		`{"a\nb": 1}`:                            `FILE:1: "a\nb": unknown key; expected one of stack, `,
		"{\"stack\": \"bbr\",\n\"mem\": \"64M\",\n\"stack\": 1}": "FILE:3: stack: given twice, first at FILE:1; remove one",
		`{"stack": 7}`:                           `FILE:1: stack: 7; expected a string`,
		`{"stack": "nosuch"}`:                    `FILE:1: --stack: `,
		`{"stack": ""}`:                          `FILE:1: stack: empty value; remove it or add a value`,
		`{"engine": "steam"}`:                    `FILE:1: engine: "steam"; expected auto, supervise, preload or trace`,
		`{"mem": "1M"}`:                          `FILE:1: mem: "1M"; expected a size from 32M to 1024G`,
		`{"mem": 1.5}`:                           `FILE:1: mem: 1.5; expected a size such as "64M" or "1G"`,
		`{"spin": "50"}`:                         `FILE:1: spin: "50"; expected a number from 0 to 1000000`,
		`{"spin": -1}`:                           `FILE:1: spin: "-1"; expected microseconds, from 0 to 1000000`,
		`{"detach": "on"}`:                       `FILE:1: detach: "on"; expected true or false`,
		`{"log": "x"}`:                           `FILE:1: log: requires --detach; otherwise the output goes to lklrun's standard output and error`,
		`{"dns": "ns.example"}`:                  `FILE:1: dns: "ns.example"; expected the IP address of a name server`,
		`{"dns": []}`:                            `FILE:1: dns: an empty list; remove it or add a value`,
		`{"listen": [80, 0]}`:                    `FILE:1: listen[1]: "0" is not a port; expected a number from 1 to 65535`,
		`{"publish": ["80"]}`:                    `FILE:1: publish[0]: "80"; expected [ADDRESS:]HOSTPORT:PORT[/udp], such as 8080:80 or 127.0.0.1:5353:53/udp`,
		`{"host_net": "10.1.2.3/8"}`:             `FILE:1: host_net: "10.1.2.3/8": 10.1.2.3/8 has host bits set; expected 10.0.0.0/8, or 10.1.2.3 for this address only`,
		`{"sysctl": {"a b": 1}}`:                 `FILE:1: sysctl."a b": "a b" is not a sysctl name`,
		`{"sysctl": {"net.ipv4.tcp_ecn": true}}`: `FILE:1: sysctl."net.ipv4.tcp_ecn": true; expected a string or a number`,
		`{"interfaces": ["veth:x"]}`:             `FILE:1: interfaces[0]: "veth:x": "veth": unknown interface type; expected user, wire:NAME, udp:HOST:PORT, wg:FILE, tap:NAME, macvtap:DEV, raw:DEV, rawip:DEV, clat:PREFIX or fd:N`,
		`{"interfaces": [{"device": "t0"}]}`:     `FILE:1: interfaces[0]: has no type; add "type", one of user, wire, udp, wg, tap, macvtap, raw, rawip, clat, fd`,
		`{"interfaces": [{"type": "tap"}]}`:      `FILE:1: interfaces[0]: has no device, which the type tap requires`,
		`{"interfaces": [{"type": "user", "device": "x"}]}`:                                                              `FILE:1: interfaces[0].device: is not supported by the type user; remove it`,
		`{"interfaces": ["user", {"type": "user",` + "\n" + `"mtu": 1}]}`:                                                `FILE:2: interfaces[1].mtu: "1"; expected a number from 68 to 65520`,
		`{"interfaces": [{"type": "user", "mtu": "1500"}]}`:                                                              `FILE:1: interfaces[0].mtu: "1500"; expected a number from 68 to 65520`,
		`{"interfaces": [{"type": "user", "ipv4": "10.0.0.2/24"}]}`:                                                      `FILE:1: interfaces[0].ipv4: unknown key; expected one of type, device, fd, ip, ip6, gw, gw6, mac`,
		`{"interfaces": [{"type": "tap", "device": "t0", "ip": "10.0.0.300/24"}]}`:                                       `FILE:1: interfaces[0].ip: "10.0.0.300/24" is not an IPv4 address with its prefix length; expected ADDRESS/PREFIX`,
		`{"interfaces": [{"type": "tap", "device": "t0",` + "\n" + `"ip": "10.0.0.2/24",` + "\n" + `"gw": "10.0.1.1"}]}`: `FILE:3: interfaces[0].gw: 10.0.1.1 is not within 10.0.0.0/24`,
		`{"interfaces": ["tap:t0",` + "\n" + `"tap:t0"]}`:                                                                `FILE:2: interfaces[1]: "tap:t0": tap:t0 is already used by eth0`,
		`{"interfaces": ["user"` + strings.Repeat(`,"user"`, 8) + `]}`:                                                   `FILE:1: interfaces: 9 values; the limit is 8`,
		`{"profile": "fast"}`:                                                `FILE:1: profile: "fast": no such profile; there are bbr, bulk, latency, mobile, safe`,
		`{"profiles": {"p": {"name": "x"}}}`:                                 `FILE:1: profiles.p.name: is not allowed in a profile; remove it`,
		`{"cmdline": "mem=1G"}`:                                              `FILE:1: cmdline: "mem=1G": use the setting mem to set the memory size`,
		`{"gateway": "x"}`:                                                   `FILE:1: gateway: "x" is not an IPv4 address`,
		`{"debug": "0", "gatway": "10.0.0.1"}`:                               `FILE:1: gatway: unknown LKL key; expected one of interfaces, gateway, gateway6`,
		`{"interfaces": [{"param": "t0"}]}`:                                  `FILE:1: interfaces[0]: has no type; expected tap, macvtap, raw or raw-ipenc`,
		`{"interfaces": [{"type": "tap", "param": "t0", "ip": "10.0.0.2"}]}`: `FILE:1: interfaces[0]: has only one of ip and masklen; set both`,
	} {
		kit.WriteFile(t, path, text)
		marker := filepath.Join(filepath.Dir(path), "ran")
		r := kit.Run(t, kit.Limit, kit.Lklrun("--config", path, "--", "touch", marker))
		kit.OneLine(t, r, 2, "")
		want = "lklrun: " + strings.NewReplacer("wg:FILE", "wg:FILE", "FILE", path).Replace(want)
		if !strings.HasPrefix(r.Stderr, want) {
			t.Errorf("%s\n got %swant %s", text, r.Stderr, want)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("%s: the command ran", text)
		}
	}
	before.Same()
}

// TestConfigurationSources checks the sources of a configuration in a run: a file,
// variables, flags, and the commands that explain them.
func TestConfigurationSources(t *testing.T) {
	kit.Need(t, kit.Bin("lklrun"))
	path := configFile(t, "c.json", `{
		"stack": "vanilla", // not the default
		"sysctl": {"net.ipv4.tcp_ecn": 1, "net.ipv4.tcp_sack": 0, "net.ipv4.tcp_fastopen": 3},
		"quiet": true,
		"command": ["sh", "-c", "cd /proc/sys/net/ipv4; cat tcp_ecn tcp_sack tcp_fastopen; test -e /proc/sys/net/mptcp && cat tcp_syn_retries"],
		"profiles": {"own": {"summary": "a test's", "sysctl": {"net.ipv4.tcp_syn_retries": 9, "net.ipv4.tcp_fastopen": 2}}}
	}`)
	run := kit.Lklrun("--config", path, "--profile", "own", "--sysctl", "net.ipv4.tcp_ecn=0")
	run.Env = append(os.Environ(), "LKLRUN_SYSCTL=net.ipv4.tcp_sack=1;net.ipv4.tcp_ecn=2", "LKLRUN_STACK=mptcp")
	if r := kit.Run(t, kit.Limit, run); r.Status != 0 || r.Stdout != "0\n1\n2\n9\n" || r.Stderr != "" {
		t.Errorf("%v", r)
	}
	explain := kit.Lklrun("config", "--explain", "--config", path, "--profile", "own", "--sysctl", "net.ipv4.tcp_ecn=0", "-o", "json")
	explain.Env = run.Env
	var rows []struct {
		Setting, Value string
		From           struct{ Kind, Profile, Where string }
	}
	if err := json.Unmarshal([]byte(kit.OK(t, kit.Limit, explain)), &rows); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range rows {
		got[r.Setting] = strings.Join([]string{r.Value, r.From.Kind, r.From.Profile, r.From.Where}, " ")
	}
	for setting, want := range map[string]string{
		"stack":                        "mptcp environment  LKLRUN_STACK",
		"quiet":                        "on file  " + path + ":4",
		"engine":                       "auto default  ",
		"mem":                          "256M stack  stack mptcp",
		"sysctl net.ipv4.tcp_ecn":      "0 flag  --sysctl",
		"sysctl net.ipv4.tcp_sack":     "1 environment  LKLRUN_SYSCTL",
		"sysctl net.ipv4.tcp_fastopen": "2 profile own " + path + ":6",
		"sysctl net.ipv4.tcp_rmem":     "4096 131072 33554432 stack  stack mptcp",
		"sysctl net.ipv4.tcp_mem":      "16384 24576 32768 memory  the stack's memory",
	} {
		if got[setting] != want {
			t.Errorf("%s: %q, want %q", setting, got[setting], want)
		}
	}
	if out := kit.OK(t, kit.Limit, kit.Lklrun("config", "--check", path)); out != "" {
		t.Errorf("a right file: %q", out)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun("config", "--check", configFile(t, "bad", "{"))), 2, "bad:1:2: ")
	pipe := kit.Lklrun("--config", "/dev/stdin", "--profile", "p", "--", "cat", "/proc/sys/net/ipv4/tcp_ecn")
	pipe.Stdin = strings.NewReader(`{"quiet": true, "profiles": {"p": {"sysctl": {"net.ipv4.tcp_ecn": 1}}}}`)
	if r := kit.Run(t, kit.Limit, pipe); r.Status != 0 || r.Stdout != "1\n" {
		t.Errorf("a pipe: %v", r)
	}
	pipe = kit.Lklrun("--config", "/dev/stdin", "--name", "piped", "--", "true")
	pipe.Stdin = strings.NewReader(`{"detach": true}`)
	if r := kit.Run(t, kit.Limit, pipe); r.Status != 0 || r.Stdout != "piped\n" {
		t.Errorf("a pipe, in the background: %v", r)
	}
	kit.WaitFor(t, "the end of the run in the background", kit.Limit, func() bool {
		return !strings.Contains(kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "list")).Stdout, "piped")
	})
	// Set a wrong value in a variable, and a value that only the plan can refuse.
	wrong := kit.Lklrun("--", "true")
	wrong.Env = append(os.Environ(), "LKLRUN_MEM=x")
	kit.OneLine(t, kit.Run(t, kit.Limit, wrong), 2, `^lklrun: LKLRUN_MEM: "x"; expected a size`)
	wrong = kit.Lklrun("--", "true")
	wrong.Env = append(os.Environ(), "LKLRUN_IF=fd:99")
	kit.OneLine(t, kit.Run(t, kit.Limit, wrong), 2, `^lklrun: LKLRUN_IF: --if "fd:99"`)
	wrong = kit.Lklrun("--", "true")
	wrong.Env = append(os.Environ(), "LKLRUN_CONFIG=/no/such.json")
	kit.OneLine(t, kit.Run(t, kit.Limit, wrong), 2, `^lklrun: LKLRUN_CONFIG: /no/such.json: no such file or directory`)
	// Set a value that only the stack refuses.
	kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun("-q", "--config", configFile(t, "s.json", "{\n\"sysctl\": {\"net.ipv4.nosuch\": 1}}"), "--", "true")), 2, `s.json:2: sysctl net.ipv4.nosuch=1: the stack has no such setting`)
}

// TestProfiles checks that the stack of a run has every setting of a built-in profile.
func TestProfiles(t *testing.T) {
	kit.Need(t, kit.Bin("lklrun"))
	var profiles []struct {
		Name     string
		Settings []struct{ Setting, Value string }
	}
	if err := json.Unmarshal([]byte(kit.OK(t, kit.Limit, kit.Lklrun("profiles", "--no-config", "-o", "json"))), &profiles); err != nil {
		t.Fatal(err)
	}
	if len(profiles) != 5 {
		t.Errorf("%d profiles", len(profiles))
	}
	for _, p := range profiles {
		script, want := "", ""
		for _, s := range p.Settings {
			if name, ok := strings.CutPrefix(s.Setting, "sysctl "); ok {
				script += "cat /proc/sys/" + strings.ReplaceAll(name, ".", "/") + "; "
				want += strings.ReplaceAll(s.Value, " ", "\t") + "\n"
			}
		}
		r := kit.Run(t, kit.Limit, kit.Lklrun("-q", "--no-config", "--profile", p.Name, "--", "sh", "-c", script+"true"))
		if r.Status != 0 || r.Stdout != want || r.Stderr != "" {
			t.Errorf("%s: %v\nwant %q", p.Name, r, want)
		}
	}
}

// TestLKLKeys checks each key of LKL's own configuration in a running stack.
func TestLKLKeys(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	lkl := func(t *testing.T, text string, command ...string) kit.Result {
		t.Helper()
		return kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"--config", configFile(t, "lkl-hijack.json", text), "--"}, command...)...))
	}
	says := func(t *testing.T, r kit.Result, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if r.Status != 0 || !strings.Contains(r.Stdout+r.Stderr, want) {
				t.Errorf("want %q: %v", want, r)
			}
		}
	}
	const tap = `"type": "tap", "param": "tap0", "ip": "` + kit.StackAddr + `", "masklen": "24"`
	t.Run("type param ip masklen mac mtu", func(t *testing.T) {
		r := lkl(t, `{"interfaces": [{`+tap+`, "mac": "02:87:f8:27:22:02", "mtu": "1400"}]}`, "sh", "-c", "ip addr show eth0; curl -sS "+kit.ServerURL+"/hello")
		says(t, r, "inet "+kit.StackAddr+"/24", "link/ether 02:87:f8:27:22:02", "mtu 1400", "hello\n")
	})
	t.Run("type raw", func(t *testing.T) {
		r := lkl(t, `{"interfaces": [{"type": "raw", "param": "br0", "ip": "`+kit.StackAddr+`", "masklen": "24", "mac": "02:87:f8:27:22:03"}]}`, "curl", "-sS", kit.ServerURL+"/hello")
		says(t, r, "hello\n")
	})
	t.Run("ipv6 masklen6 gateway gateway6", func(t *testing.T) {
		r := lkl(t, `{"gateway": "`+kit.HostAddr+`", "gateway6": "`+kit.HostAddr6+`", "interfaces": [{`+tap+`, "ipv6": "`+kit.StackAddr6+`", "masklen6": "64"}]}`,
			"sh", "-c", "ip addr show eth0; ip route; ip -6 route")
		says(t, r, "inet6 "+kit.StackAddr6+"/64", "default via "+kit.HostAddr+" dev eth0", "default via "+kit.HostAddr6+" dev eth0")
	})
	t.Run("ifgateway ifgateway6", func(t *testing.T) {
		r := lkl(t, `{"interfaces": [{`+tap+`, "ifgateway": "`+kit.HostAddr+`", "ipv6": "`+kit.StackAddr6+`", "masklen6": "64", "ifgateway6": "`+kit.HostAddr6+`"}]}`,
			"sh", "-c", "ip route show table 100; ip -6 route show table 100; ip rule")
		says(t, r, "default via "+kit.HostAddr+" dev eth0", "default via "+kit.HostAddr6+" dev eth0", "from "+kit.StackAddr+" lookup 100")
	})
	t.Run("neigh", func(t *testing.T) {
		r := lkl(t, `{"interfaces": [{`+tap+`, "neigh": "10.73.0.77|12:34:56:78:9a:bc;fd73::77|12:34:56:78:9a:be"}]}`, "ip", "neigh")
		says(t, r, "10.73.0.77 dev eth0 lladdr 12:34:56:78:9a:bc PERMANENT", "fd73::77 dev eth0 lladdr 12:34:56:78:9a:be PERMANENT")
	})
	t.Run("qdisc", func(t *testing.T) {
		says(t, lkl(t, `{"interfaces": [{`+tap+`, "qdisc": "root|fq"}]}`, "sh", "-c", "ip link show eth0"), " qdisc fq ")
	})
	t.Run("offload", func(t *testing.T) {
		const show = "ethtool -k eth0"
		kit.Need(t, "ethtool")
		says(t, lkl(t, `{"interfaces": [{`+tap+`, "offload": "0"}]}`, "sh", "-c", show), "tx-checksumming: off", "tcp-segmentation-offload: off")
		says(t, lkl(t, `{"interfaces": [{`+tap+`, "offload": "0x883"}]}`, "sh", "-c", show), "tx-checksumming: on", "tcp-segmentation-offload: on")
	})
	t.Run("nameserver", func(t *testing.T) {
		says(t, lkl(t, `{"nameserver": "2001:4860:4860::8888", "interfaces": [{`+tap+`}]}`, "cat", "/etc/resolv.conf"), "nameserver 2001:4860:4860::8888\n")
	})
	t.Run("sysctl", func(t *testing.T) {
		r := lkl(t, `{"sysctl": "net.ipv4.tcp_wmem=4096 87380 2147483647;net.mptcp.mptcp_debug=1", "interfaces": [{`+tap+`}]}`, "cat", "/proc/sys/net/ipv4/tcp_wmem")
		says(t, r, "4096\t87380\t2147483647", "sysctl net.mptcp.mptcp_debug=1: the stack has no such setting; ignored\n")
	})
	t.Run("boot_cmdline dump", func(t *testing.T) {
		says(t, lkl(t, `{"boot_cmdline": "mem=100m loglevel=3", "dump": "/proc/cmdline,/proc/nosuch"}`, "true"), "/proc/cmdline:\n", "mem=102400K", " loglevel=3", "/proc/nosuch: no such file")
	})
	t.Run("mount dump", func(t *testing.T) {
		says(t, lkl(t, `{"mount": "proc,sysfs", "dump": "/sysfs/class/net/lo/mtu"}`, "true"), "/sysfs/class/net/lo/mtu:\n65536\n")
		kit.OneLine(t, lkl(t, "{\n\"mount\": \"nosuchfs\", \"dump\": \"/x\"}", "true"), 2, `lkl-hijack.json:2: mount nosuchfs: the stack does not support this file system`)
		path := configFile(t, "lkl-hijack.json", `{"dump": "/proc/version"}`)
		kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun("--config", path, "--engine", "preload", "--", "true")), 2, `lkl-hijack.json:1: dump /proc/version: with the engine preload`)
	})
	t.Run("debug", func(t *testing.T) {
		says(t, lkl(t, `{"debug": "1"}`, "true"), "the stack runs", "nothing used the stack", "lklhost has ended took=")
		if r := lkl(t, `{"debug": "0"}`, "true"); strings.Contains(r.Stderr, "the stack runs") {
			t.Errorf("%v", r)
		}
	})
	t.Run("singlecpu", func(t *testing.T) {
		r := lkl(t, `{"singlecpu": "1"}`, "true")
		says(t, r, "lkl-hijack.json:1: singlecpu: has no effect here")
		if strings.Count(r.Stderr, "singlecpu") != 1 {
			t.Errorf("more than once: %v", r)
		}
	})
	t.Run("delay_main", func(t *testing.T) {
		r := lkl(t, `{"delay_main": "700000", "debug": "1"}`, "true")
		says(t, r, "the stack runs")
		for _, l := range kit.Lines(r.Stderr) {
			if _, took, ok := strings.Cut(l, "step=release took="); ok && (!strings.HasSuffix(took, "s") || strings.HasSuffix(took, "µs") || !strings.Contains(took, ".") || strings.HasSuffix(took, "ms") && len(took) < len("700.0ms")) {
				t.Errorf("released after %s", took)
			}
		}
	})
	t.Run("variables", func(t *testing.T) {
		run := exec.Command(kit.Bin("lklrun"), "--", "sh", "-c", "curl -sS "+kit.ServerURL+"/hello; ip link show eth0; cat /proc/sys/net/ipv4/tcp_congestion_control")
		run.Env = append(os.Environ(), "LKL_HIJACK_NET_QDISC=root|fq", "LKL_HIJACK_SYSCTL=net.ipv4.tcp_congestion_control=\"bbr\";net.ipv4.tcp_wmem=4096 65536 67108864",
			"LKL_HIJACK_NET_IFTYPE=tap", "LKL_HIJACK_NET_IFPARAMS=tap0", "LKL_HIJACK_NET_IP="+kit.StackAddr, "LKL_HIJACK_NET_NETMASK_LEN=24",
			"LKL_HIJACK_NET_GATEWAY="+kit.HostAddr, "LKL_HIJACK_OFFLOAD=0x8883", "LKL_HIJACK_DEBUG=0")
		says(t, kit.Run(t, kit.Limit, run), "hello\n", "qdisc fq", "bbr\n")
		run = exec.Command(kit.Bin("lklrun"), "--", "ip", "link", "show", "eth0")
		run.Env = append(os.Environ(), "LKL_HIJACK_CONFIG_FILE="+configFile(t, "any.json", `{"interfaces": [{`+tap+`, "mtu": "1300"}]}`))
		says(t, kit.Run(t, kit.Limit, run), "mtu 1300")
	})
}

// TestLKLExample runs the unchanged example of the 2017 talk on stacks in phones, on a
// macvtap of the test. Its settings take effect, and lklrun reports each setting that has
// no effect here once.
func TestLKLExample(t *testing.T) {
	kit.Need(t, "ip", "curl", "nginx", kit.Bin("lklrun"))
	phone, carrier := kit.NewNetns(t, "phone"), kit.NewNetns(t, "carrier")
	kit.Veth(t, phone, "wlan0", carrier, "c0")
	phone.Run(t, "ip", "link", "add", "link", "wlan0", "name", "mv0", "index", "23", "address", "02:87:f8:27:22:02", "type", "macvtap", "mode", "bridge")
	phone.Run(t, "ip", "link", "set", "mv0", "up")
	carrier.Addr(t, "c0", "202.214.86.129/26", "192.0.2.1/32")
	dir := kit.Dir(t)
	kit.WriteFile(t, filepath.Join(dir, "hello"), "hello\n")
	carrier.Nginx(t, kit.Nginx{Root: dir, MPTCP: true})
	path := filepath.Join(kit.Root(), "pkg", "config", "testdata", "lkl-hijack.json")
	before := kit.Take(t, phone, carrier)
	const script = `curl -sS http://202.214.86.129/hello http://192.0.2.1/hello && ip -o addr show eth0 && ip -o link show eth0 &&
		cat /proc/sys/net/ipv4/tcp_wmem && ip route && ip route show table 100`
	r := kit.Run(t, kit.Limit, phone.Command(kit.Bin("lklrun"), "--require", "mptcp", "--config", path, "--", "sh", "-c", script))
	for _, want := range []string{
		"hello\nhello\n", "inet 202.214.86.168/26", "link/ether 02:87:f8:27:22:02", "4096\t87380\t2147483647", "default via 202.214.86.129 dev eth0",
	} {
		if r.Status != 0 || !strings.Contains(r.Stdout, want) {
			t.Errorf("want %q: %v", want, r)
		}
	}
	before.Same()
	// With the engine preload, only one process uses the stack.
	p := kit.Run(t, kit.Limit, phone.Command(kit.Bin("lklrun"), "--engine", "preload", "--require", "mptcp", "--config", path, "--", "curl", "-sS", "http://192.0.2.1/hello"))
	if p.Status != 0 || p.Stdout != "hello\n" {
		t.Errorf("preload: %v", p)
	}
	for _, said := range []string{r.Stderr, p.Stderr} {
		for _, want := range []string{
			path + ":2: gateway: 10.206.211.1 is not in the network of any interface; ignored",
			path + ":14: singlecpu: has no effect here",
			"sysctl net.mptcp.mptcp_debug=1: the stack has no such setting; ignored",
		} {
			if strings.Count(said, want) != 1 {
				t.Errorf("want %q once: %s", want, said)
			}
		}
		if len(kit.Lines(said)) > 4 { // the host's name servers may be unreachable
			t.Errorf("%d lines: %s", len(kit.Lines(said)), said)
		}
	}
	before.Same()
}

// TestConfigTables checks that the lists of settings and profiles fit a terminal, and that
// each setting has one line in a pipe.
func TestConfigTables(t *testing.T) {
	kit.Need(t, kit.Bin("lklrun"))
	explain := []string{"config", "--explain", "--profile", "mobile", "--if", "tap:t0"}
	for _, args := range [][]string{{"profiles"}, {"profiles", "mobile"}, explain} {
		for _, columns := range []int{60, 80, 200} {
			term := terminal.New(t, columns, 60, kit.Lklrun(args...))
			term.Proc.Wait(kit.Limit)
			kit.WaitFor(t, "the output", kit.Limit, func() bool { return strings.HasSuffix(term.Sent(), "\n") })
			widest := 0
			for _, line := range strings.Split(term.Sent(), "\n") {
				widest = max(widest, utf8.RuneCountInString(strings.TrimSuffix(line, "\r")))
			}
			if widest > columns || columns == 200 && len(args) > 2 && widest <= 80 {
				t.Errorf("lklrun %q on a terminal of %d columns is %d wide:\n%s", args, columns, widest, term.Sent())
			}
		}
	}
	rows := 0
	for _, line := range kit.Lines(kit.OK(t, kit.Limit, kit.Lklrun(explain...))) {
		if strings.HasPrefix(line, " ") {
			t.Errorf("a wrapped line in a pipe: %q", line)
		}
		rows++
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
