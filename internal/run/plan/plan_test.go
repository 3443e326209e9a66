// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

var update = flag.Bool("update", false, "write the golden files")

func ifs(t *testing.T, specs ...string) []config.Interface {
	t.Helper()
	var all []config.Interface
	for _, s := range specs {
		i, err := config.ParseInterface(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	return all
}

var (
	mptcp = &stack.Stack{Name: "mptcp", Kernel: "6.12", ABI: "native", Library: "liblkl.so", Dir: "/opt/stacks/mptcp", MPTCP: true, Mem: "256M"}
	bbr   = &stack.Stack{
		Name: "bbr", Kernel: "6.12", ABI: "native", Library: "liblkl.so", Dir: "/opt/stacks/bbr",
		Sysctls: map[string]string{"net.ipv4.tcp_congestion_control": "bbr", "net.core.default_qdisc": "fq"},
	}
	host  = &stack.Stack{Name: "host", ABI: stack.ABIHost}
	facts = Facts{
		RunRoot: "/run/lklrun",
		Resolv:  "# a comment\nnameserver 127.0.0.53\nsearch example.com  example.org\noptions edns0 trust-ad\n",
		Taps:    map[string]hostnet.TapState{"tap0": {Exists: true, Up: true}, "tap1": {Exists: true}},
	}
)

func TestGolden(t *testing.T) {
	reachable := facts
	reachable.Resolv = "nameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver 2001:db8::53\n"
	resolved := facts
	resolved.ResolvUpstream = "nameserver 192.0.2.54\n"
	same := facts
	same.IPv6, same.Kernel6 = true, true
	same.Addrs = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("192.168.127.9/24")}
	loaded := resolved
	loaded.Engine, loaded.EngineNotes = config.EnginePreload, []string{"a note on that choice"}
	for name, tc := range map[string]struct {
		run   config.Run
		stack *stack.Stack
		facts Facts
	}{
		"user":     {config.Run{Command: []string{"curl", "-s", "http://example.com/?a=1&b=it's"}}, mptcp, same},
		"two-taps": {config.Run{Name: "demo", Require: config.RequireMPTCP, Command: []string{"/usr/bin/curl"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.1.2/24,gw=10.0.1.1,mac=02:00:00:00:00:01", "tap:new,ip=10.0.2.2/24,ip6=fd00::2/64,mtu=9000")}, mptcp, reachable},
		"bbr":      {config.Run{Command: []string{"true"}, Mem: 64 << 20, Interfaces: ifs(t, "user,ip=10.9.0.2/24,mtu=1500", "fd:5"), Sysctls: []config.Sysctl{{Name: "net.ipv4.tcp_ecn", Value: "1"}}}, bbr, facts},
		"warnings": {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "tap:tap1")}, bbr, facts},
		"resolved": {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.0.2/24")}, bbr, resolved},
		"dns":      {config.Run{Command: []string{"true"}, DNS: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}, bbr, facts},
		"queues":   {config.Run{Command: []string{"nginx"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.1.2/24,mac=02:00:00:00:00:01,multiqueue", "tap:new,ip=10.0.2.2/24,mac=02:00:00:00:00:02,multiqueue")}, bbr, reachable},
		"host-net": {config.Run{Command: []string{"psql"}, HostNets: []config.HostNet{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Port: 5432}, {Prefix: netip.MustParsePrefix("fd00::/8")}}}, bbr, facts},
		"detach":   {config.Run{Command: []string{"redis-server"}, Detach: true}, bbr, facts},
		"preload":  {config.Run{Command: []string{"redis-server"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.0.2/24")}, mptcp, loaded},
		"raw":      {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "raw:eno1", "raw:wlo1,ip=10.0.9.2/24,gw=10.0.9.1,mtu=1400", "rawip:tun0")}, mptcp, devices},
		"host":     {config.Run{Command: []string{"iperf3", "-c", "server"}}, host, facts},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Make(tc.run, tc.stack, tc.facts)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := p.Write(&b); err != nil {
				t.Fatal(err)
			}
			b.WriteString("\n--- resolv.conf\n" + p.Resolv)
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("(-want +got); go test ./internal/run/plan -update writes what is right\n%s", diff)
			}
		})
	}
}

// devices returns facts with devices of the host.
var devices = func() Facts {
	prefixes := func(all ...string) (list []netip.Prefix) {
		for _, s := range all {
			list = append(list, netip.MustParsePrefix(s))
		}
		return list
	}
	f := facts
	f.Devices = map[string]hostnet.DeviceState{
		"eno1": {
			Ifindex: 2, MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 9}, Up: true,
			Addrs: prefixes("192.0.2.9/24", "192.0.2.10/24", "2001:db8::9/64"), Lent: prefixes("192.0.2.9/24", "2001:db8::9/64"),
			GW4: netip.MustParseAddr("192.0.2.1"), GW6: netip.MustParseAddr("fe80::1"),
		},
		"wlo1": {Ifindex: 3, MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 8}},
		"tun0": {Ifindex: 4, MTU: 65535, Up: true, Addrs: prefixes("10.8.0.2/32"), Lent: prefixes("10.8.0.2/32")},
	}
	f.FDs = map[int]hostnet.FDKind{5: hostnet.FDTun}
	return f
}()

func TestRefusedPackets(t *testing.T) {
	for spec, want := range map[string]string{
		"raw:wlo1": "wlo1 has no address on the host to share; expected ip=ADDRESS/PREFIX",
		"raw:eno1,ip=192.0.2.9/24,ip=192.0.2.20/24":       "192.0.2.9 is the host's own on eno1 and 192.0.2.20 is not: an interface has the one or the other kind",
		"raw:eno1,ip=192.0.2.10/24,mac=02:00:00:00:00:01": "192.0.2.10 is the host's own on eno1, with its Ethernet address; leave out mac, dhcp, dhcp6 and slaac, or choose another address",
		"raw:eno1,vlan=7":       "192.0.2.9 is the host's own on eno1, outside of VLAN 7; choose another address with ip=, or leave out vlan",
		"raw:eno1,gw=192.0.2.9": "gateway 192.0.2.9 is the interface's own address",
		"raw:eno1,mtu=9000":     "mtu: eno1 takes no more than 1500 bytes",
		"fd:5,ip=10.0.0.2/24,mac=02:00:00:00:00:01,mtu=99": "descriptor 5 carries IP packets, without Ethernet addresses; leave out mac, dhcp, dhcp6 and vlan",
	} {
		_, err := Make(config.Run{Command: []string{"true"}, Interfaces: ifs(t, spec)}, bbr, devices)
		if full := fmt.Sprintf("--if %q: %s", spec, want); err == nil || err.Error() != full {
			t.Errorf("%v\nwant %s", err, full)
		}
	}
}

func TestNoRawIP(t *testing.T) {
	old := &stack.Stack{Name: "ancient", ABI: "old", Library: "liblkl.so"}
	for _, spec := range []string{"rawip:tun0", "fd:5,ip=10.0.0.2/24"} {
		_, err := Make(config.Run{Command: []string{"true"}, Interfaces: ifs(t, spec)}, old, devices)
		if want := fmt.Sprintf("--if %q: stack ancient has no devices without link layer; use tap or raw, or a stack of lklrun's own", spec); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for want, run := range map[string]config.Run{
		"no command to run": {},
		`--if "user": the stack is the host's own kernel`:           {Command: []string{"true"}, Interfaces: ifs(t, "user")},
		"--sysctl a: the stack is the host's own kernel":            {Command: []string{"true"}, Sysctls: []config.Sysctl{{Name: "a", Value: "1"}}},
		"--require mptcp: the stack is the host's own kernel":       {Command: []string{"true"}, Require: config.RequireMPTCP},
		"--mem: the stack is the host's own kernel":                 {Command: []string{"true"}, Mem: 1 << 30},
		"--host-net 10.0.0.0/8: the stack is the host's own kernel": {Command: []string{"true"}, HostNets: []config.HostNet{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}},
		"--dns 192.0.2.1: the stack is the host's own kernel":       {Command: []string{"true"}, DNS: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	} {
		if _, err := Make(run, host, facts); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", run, err, want)
		}
	}
	// The second interface's network is the default network of the first.
	twice := config.Run{Command: []string{"true"}, Interfaces: ifs(t, "user", "user,ip=192.168.127.2/24")}
	if _, err := Make(twice, bbr, facts); err == nil || err.Error() != `--if "user,ip=192.168.127.2/24": address 192.168.127.2 is that of eth0 already` {
		t.Errorf("one address twice: %v", err)
	}
	many := config.Run{Command: []string{"true"}, Interfaces: ifs(t, "user", "user", "user", "user", "user", "user", "user", "user", "user")}
	if _, err := Make(many, bbr, facts); err == nil || !strings.Contains(err.Error(), "at most 8") {
		t.Errorf("nine interfaces: %v", err)
	}
}

func TestStableMAC(t *testing.T) {
	seen := map[config.MAC]string{}
	for _, machine := range []string{"one", "two"} {
		for _, i := range ifs(t, "tap:a,ip=10.0.0.1/24", "tap:a,ip=10.0.0.2/24", "tap:b,ip=10.0.0.1/24", "fd:3,ip=10.0.0.1/24", "tap:a") {
			mac := stableMAC(machine, &i)
			if mac != stableMAC(machine, &i) || mac[0]&3 != 2 {
				t.Errorf("%s on %s: %s", i.String(), machine, mac)
			}
			if other, taken := seen[mac]; taken {
				t.Errorf("%s on %s has the address of %s", i.String(), machine, other)
			}
			seen[mac] = i.String() + " on " + machine
		}
	}
}

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{
		"5.13.19-generic": true, "5.14.0-427.el9.x86_64": false, "5.4.0": true, "4.19.0-27-amd64": true,
		"6.1.0": false, "6.12.117-lkl": false, "10.2": false, "": false, "next": false,
	} {
		if got := olderThan(release, 5, 14); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

func TestUserNamespaces(t *testing.T) {
	read := func(values map[string]string) func(string) string {
		return func(path string) string { return values[path] }
	}
	if err := checkUserNamespaces(read(map[string]string{"/proc/sys/user/max_user_namespaces": "127000\n"})); err != nil {
		t.Error(err)
	}
	err := checkUserNamespaces(read(map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0\n"}))
	if err == nil || !strings.Contains(err.Error(), "sysctl -w kernel.unprivileged_userns_clone=1") {
		t.Error(err)
	}
}

func FuzzResolv(f *testing.F) {
	f.Add("nameserver 1.2.3.4\nsearch a b\noptions x")
	f.Add("nameserver\nnameserver fe80::1%2\r\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		f := facts
		f.Resolv = text
		p, err := Make(config.Run{Command: []string{"true"}, Interfaces: []config.Interface{{Type: "tap", Device: "tap0"}}}, bbr, f)
		if err != nil {
			t.Fatal(err)
		}
		// The generated text must parse to the intended servers.
		if got, want := parseResolv(p.Resolv).servers, reachable(parseResolv(text).servers); len(got) != min(len(want), maxServers) {
			t.Fatalf("%q became %q", text, p.Resolv)
		}
	})
}

// Name servers are in the order of the interfaces, and those of leases in the
// order of the leases.
func TestResolvOrder(t *testing.T) {
	dns := func(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }
	p := &Plan{Links: []Link{
		{Name: "eth0", Type: config.TypeTap, DHCP: true},
		{Name: "eth1", Type: config.TypeTap, DNS: dns("192.0.2.1")},
	}}
	p.resolv(nil, Facts{Resolv: "nameserver 198.51.100.1\nsearch host.example\noptions ndots:2\n"})
	if want := resolvHeader + "nameserver 192.0.2.1\nsearch host.example\noptions ndots:2\n"; p.Resolv != want {
		t.Errorf("before a lease:\n%s", p.Resolv)
	}
	leased := []Names{{Link: &p.Links[0], Servers: dns("10.0.0.1"), Search: []string{"lab.example"}}, {Link: &p.Links[1]}}
	got := p.ResolvConf(leased)
	if want := resolvHeader + "nameserver 10.0.0.1\nnameserver 192.0.2.1\nsearch lab.example\noptions ndots:2\n"; got != want {
		t.Errorf("with a lease:\n%s", got)
	}
	p.resolv(dns("203.0.113.1"), Facts{})
	if got := p.ResolvConf(leased[:1]); got != resolvHeader+"nameserver 203.0.113.1\n" {
		t.Errorf("with --dns:\n%s", got)
	}
}
