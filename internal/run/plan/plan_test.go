// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link/fd"
	"github.com/lklrun/lklrun/internal/link/macvtap"
	"github.com/lklrun/lklrun/internal/link/packet"
	"github.com/lklrun/lklrun/internal/link/tap"
	"github.com/lklrun/lklrun/internal/link/user"
	"github.com/lklrun/lklrun/internal/run/preflight"
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
	host = &stack.Stack{Name: "host", ABI: stack.ABIHost}
	base = preflight.Facts{
		RunRoot: "/run/lklrun",
		Resolv:  "# a comment\nnameserver 127.0.0.53\nsearch example.com  example.org\noptions edns0 trust-ad\n",
	}
)

// looked returns the interfaces of a run with the results of their drivers.
func looked(all []config.Interface) []preflight.Interface {
	if len(all) == 0 {
		all = []config.Interface{{Type: config.DefaultType}}
	}
	var found []preflight.Interface
	for _, i := range all {
		found = append(found, preflight.Interface{Interface: i, Found: on[i.Target()]})
	}
	return found
}

// on maps interfaces to the results of their drivers.
var on = map[string]any{
	"tap:tap0": tap.Facts{TapState: netdev.TapState{Exists: true, Up: true}},
	"tap:tap1": tap.Facts{TapState: netdev.TapState{Exists: true}},
	"tap:nat":  tap.Facts{IPv6: true, Routed: prefixes("192.168.0.0/16")},
	"raw:eno1": packet.Facts{
		Ifindex: 2, MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 9}, Up: true,
		Addrs: prefixes("192.0.2.9/24", "192.0.2.10/24", "2001:db8::9/64"), Lent: prefixes("192.0.2.9/24", "2001:db8::9/64"),
		GW4: netip.MustParseAddr("192.0.2.1"), GW6: netip.MustParseAddr("fe80::1"),
	},
	"raw:wlo1":   packet.Facts{Ifindex: 3, MTU: 1500, MAC: [6]byte{2, 0, 0, 0, 0, 8}},
	"rawip:tun0": packet.Facts{Ifindex: 4, MTU: 65535, Up: true, Addrs: prefixes("10.8.0.2/32"), Lent: prefixes("10.8.0.2/32")},
	"fd:7":       fd.Facts{Kind: netdev.FDTun},
	"macvtap:e0": macvtap.Facts{Name: "e0", Ifindex: 5, MTU: 1500},
	"macvtap:w0": macvtap.Facts{Name: "w0", Ifindex: 7, MTU: 1500, Wireless: true},
	"macvtap:m0": macvtap.Facts{Name: "m0", Ifindex: 6, MTU: 1500, Exists: true, MAC: []byte{2, 0, 0, 0, 0, 7}},
}

func prefixes(all ...string) (list []netip.Prefix) {
	for _, s := range all {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// makePlan plans a run with the facts in base and the facts about its
// interfaces.
func makePlan(run config.Run, s *stack.Stack) (*Plan, error) {
	f := base
	f.Interfaces = looked(run.Interfaces)
	return Make(run, s, f)
}

func TestGolden(t *testing.T) {
	reachable := base
	reachable.Resolv = "nameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver 2001:db8::53\n"
	resolved := base
	resolved.ResolvUpstream = "nameserver 192.0.2.54\n"
	same := base
	same.Interfaces = []preflight.Interface{{Interface: config.Interface{Type: "user"}, Found: user.Facts{IPv6: true, Addrs: prefixes("127.0.0.1/8", "192.168.127.9/24")}}}
	loaded := resolved
	loaded.Engine, loaded.EngineNotes = config.EnginePreload, []string{"a note on that choice"}
	android := base
	android.NoResolv = true
	older := base
	older.Engine, older.MissingFeatures = config.EngineSupervise, []string{"ONE_FEATURE", "ANOTHER"}
	for name, tc := range map[string]struct {
		run   config.Run
		stack *stack.Stack
		facts preflight.Facts
	}{
		"android":  {config.Run{Command: []string{"true"}, DNS: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, bbr, android},
		"older":    {config.Run{Command: []string{"true"}}, bbr, older},
		"user":     {config.Run{Command: []string{"curl", "-s", "http://example.com/?a=1&b=it's"}}, mptcp, same},
		"two-taps": {config.Run{Name: "demo", Require: config.RequireMPTCP, Command: []string{"/usr/bin/curl"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.1.2/24,gw=10.0.1.1,mac=02:00:00:00:00:01", "tap:new,ip=10.0.2.2/24,ip6=fd00::2/64,mtu=9000")}, mptcp, reachable},
		"bbr":      {config.Run{Command: []string{"true"}, Mem: 64 << 20, Interfaces: ifs(t, "user,ip=10.9.0.2/24,mtu=1500", "fd:5"), Sysctls: []config.Sysctl{{Name: "net.ipv4.tcp_ecn", Value: "1"}}}, bbr, base},
		"warnings": {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "tap:tap1")}, bbr, base},
		"resolved": {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.0.2/24")}, bbr, resolved},
		"dns":      {config.Run{Command: []string{"true"}, DNS: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}, bbr, base},
		"queues":   {config.Run{Command: []string{"nginx"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.1.2/24,mac=02:00:00:00:00:01,multiqueue", "tap:new,ip=10.0.2.2/24,mac=02:00:00:00:00:02,multiqueue")}, bbr, reachable},
		"host-net": {config.Run{Command: []string{"psql"}, HostNets: []config.HostNet{{Prefix: netip.MustParsePrefix("127.0.0.1/32"), Port: 5432}, {Prefix: netip.MustParsePrefix("fd00::/8")}}}, bbr, base},
		"detach":   {config.Run{Command: []string{"redis-server"}, Detach: true}, bbr, base},
		"preload":  {config.Run{Command: []string{"redis-server"}, Interfaces: ifs(t, "tap:tap0,ip=10.0.0.2/24")}, mptcp, loaded},
		"raw":      {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "raw:eno1", "raw:wlo1,ip=10.0.9.2/24,gw=10.0.9.1,mtu=1400", "rawip:tun0")}, mptcp, base},
		"macvtap":  {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "macvtap:e0,mode=vepa,ip=10.1.0.2/24", "macvtap:m0,dhcp,slaac")}, mptcp, base},
		"nat":      {config.Run{Command: []string{"true"}, Interfaces: ifs(t, "tap:nat,nat", "tap:tap0,ip=10.1.0.2/24,bridge=br0")}, mptcp, base},
		"host":     {config.Run{Command: []string{"iperf3", "-c", "server"}}, host, base},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.facts.Interfaces == nil {
				tc.facts.Interfaces = looked(tc.run.Interfaces)
			}
			p, err := Make(tc.run, tc.stack, tc.facts)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Make(tc.run, tc.stack, tc.facts); err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("another plan of the same facts differs: %+v, %v", again, err)
			}
			var b strings.Builder
			if err := p.Write(&b); err != nil {
				t.Fatal(err)
			}
			b.WriteString("\n--- resolv.conf\n" + p.Resolv)
			sameByJSON(t, p)
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

// The package must not import any package with which it could query or change
// the host.
func TestPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if !strings.HasSuffix(name, "_test.go") && slices.Contains([]string{"context", "net", "os", "os/exec", "syscall", "golang.org/x/sys/unix"}, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// sameByJSON checks that JSON carries a plan without loss.
func sameByJSON(t *testing.T, p *Plan) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if !reflect.DeepEqual(p, &back) {
		t.Errorf("JSON changes the plan:\n%s", cmp.Diff(p, &back, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})))
	}
}

// The plans contain all properties that the golden plans lack. They must
// survive JSON, too.
func TestJSON(t *testing.T) {
	publish, err := config.ParsePublish("127.0.0.1:8080:80/udp")
	if err != nil {
		t.Fatal(err)
	}
	capture, err := config.ParseCapture("trace.pcapng,snap=128,if=eth0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := makePlan(config.Run{
		Command: []string{"a<b>&\x00"}, Name: "all", Require: config.RequireStack, Spin: 7, Delay: 8, Cmdline: "quiet", Mem: 64 << 20,
		Interfaces: ifs(t, "user", "tap:nat,nat,mtu=1400", "macvtap:e0,mode=vepa,ip=10.1.0.2/24", "macvtap:m0,vlan=7", "rawip:tun0", "raw:wlo1,dhcp,slaac,dns=1.1.1.1,neigh=10.0.0.1|02:00:00:00:00:01",
			"fd:7,ip6=fd01::2/64,offload=0x883,qdisc=fq", "tap:tap0,group=3,backup,signal,table=7,dhcp6"),
		Sysctls: []config.Sysctl{{Name: "net.ipv4.tcp_ecn", Value: "1", Optional: true}}, DNS: []netip.Addr{netip.MustParseAddr("2001:db8::1")},
		HostNets: []config.HostNet{{Prefix: netip.MustParsePrefix("fd00::/8"), Port: 5432}}, Detach: true, WaitAll: true, Listen: []int{80},
		Publish: []config.Publish{publish}, Captures: []config.Capture{capture}, RSTGuard: config.GuardNFT, PortRange: config.PortRange{First: 1024, Last: 2047},
		Mount: []string{"debugfs"}, Dump: []string{"/proc/net/snmp"},
	}, mptcp)
	if err != nil {
		t.Fatal(err)
	}
	p.User = &runas.User{Name: "nobody", UID: 65534, GID: 65534, Groups: []int{7}, Home: "/"}
	sameByJSON(t, p)
	if c, ok := p.Links[0].TypePlan.(user.Part); !ok || len(c.Publish) != 1 {
		t.Errorf("the gateway's own part: %+v", p.Links[0].TypePlan)
	}
}

func TestRefusedPackets(t *testing.T) {
	for spec, want := range map[string]string{
		"raw:wlo1": "wlo1 has no address on the host to share; add ip=ADDRESS/PREFIX",
		"raw:eno1,ip=192.0.2.9/24,ip=192.0.2.20/24":       "192.0.2.9 is the host's address on eno1 and 192.0.2.20 is not; an interface must have only addresses of the host, or none",
		"raw:eno1,ip=192.0.2.10/24,mac=02:00:00:00:00:01": "192.0.2.10 is the host's address on eno1, so the interface also shares its Ethernet address; remove mac, dhcp, dhcp6 and slaac, or choose another address",
		"raw:eno1,vlan=7":       "192.0.2.9 is the host's address on eno1, outside VLAN 7; choose another address with ip=, or remove vlan=",
		"raw:eno1,gw=192.0.2.9": "gateway 192.0.2.9 is the interface's own address",
		"raw:eno1,mtu=9000":     "mtu: the maximum of eno1 is 1500 bytes",
		"fd:7,ip=10.0.0.2/24,mac=02:00:00:00:00:01,mtu=99": "descriptor 7 carries IP packets without Ethernet headers; remove mac, dhcp, dhcp6 and vlan",
	} {
		_, err := makePlan(config.Run{Command: []string{"true"}, Interfaces: ifs(t, spec)}, bbr)
		if full := fmt.Sprintf("--if %q: %s", spec, want); err == nil || err.Error() != full {
			t.Errorf("%v\nwant %s", err, full)
		}
	}
}

func TestNoRawIP(t *testing.T) {
	old := &stack.Stack{Name: "ancient", ABI: "old", Library: "liblkl.so"}
	for _, spec := range []string{"rawip:tun0", "fd:7,ip=10.0.0.2/24"} {
		_, err := makePlan(config.Run{Command: []string{"true"}, Interfaces: ifs(t, spec)}, old)
		if want := fmt.Sprintf("--if %q: stack ancient does not support devices without link layer; use tap or raw, or one of lklrun's own stacks", spec); err == nil || err.Error() != want {
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
		if _, err := makePlan(run, host); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", run, err, want)
		}
	}
	// The second interface uses the default network of the first.
	twice := config.Run{Command: []string{"true"}, Interfaces: ifs(t, "user", "user,ip=192.168.127.2/24")}
	if _, err := makePlan(twice, bbr); err == nil || err.Error() != `--if "user,ip=192.168.127.2/24": address 192.168.127.2 is already used by eth0` {
		t.Errorf("one address twice: %v", err)
	}
	for arg, refused := range map[string]bool{"macvtap:w0": true, "macvtap:w0,mode=passthru": false, "macvtap:e0": false} {
		_, err := makePlan(config.Run{Command: []string{"true"}, Interfaces: ifs(t, arg)}, bbr)
		if (err != nil && strings.Contains(err.Error(), "w0 is wireless")) != refused {
			t.Errorf("%s: %v", arg, err)
		}
	}
	many := config.Run{Command: []string{"true"}, Interfaces: ifs(t, "user", "user", "user", "user", "user", "user", "user", "user", "user")}
	if _, err := makePlan(many, bbr); err == nil || !strings.Contains(err.Error(), "limit is 8") {
		t.Errorf("nine interfaces: %v", err)
	}
}

// --require mptcp needs an interface over which MPTCP can reach its peer.
func TestRequireMPTCP(t *testing.T) {
	const gateway = "--require mptcp: TCP ends at lklrun's gateway (--if user), so no connection can use MPTCP to its peer; use --if tap:NAME,nat or --if raw:DEV"
	for specs, want := range map[string]string{"": gateway, "user": gateway, "user user": gateway, "user tap:tap0": "", "tap:tap0": ""} {
		run := config.Run{Command: []string{"true"}, Require: config.RequireMPTCP, Interfaces: ifs(t, strings.Fields(specs)...)}
		if _, err := makePlan(run, bbr); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", specs, err, want)
		}
		run.Require = config.RequireStack
		if _, err := makePlan(run, bbr); err != nil {
			t.Errorf("%q, --require stack: %v", specs, err)
		}
	}
}

func FuzzResolv(f *testing.F) {
	f.Add("nameserver 1.2.3.4\nsearch a b\noptions x")
	f.Add("nameserver\nnameserver fe80::1%2\r\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		f := base
		f.Resolv, f.Interfaces = text, looked(ifs(t, "tap:tap0"))
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

// Name servers are in the order of the interfaces. Name servers from leases are
// in the order of the leases.
func TestResolvOrder(t *testing.T) {
	dns := func(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }
	p := &Plan{Links: []Link{
		{Name: "eth0", Type: "tap", DHCP: true},
		{Name: "eth1", Type: "tap", DNS: dns("192.0.2.1")},
	}}
	p.resolv(nil, preflight.Facts{Resolv: "nameserver 198.51.100.1\nsearch host.example\noptions ndots:2\n"})
	if want := resolvHeader + "nameserver 192.0.2.1\nsearch host.example\noptions ndots:2\n"; p.Resolv != want {
		t.Errorf("before a lease:\n%s", p.Resolv)
	}
	leased := []LinkNames{{Link: &p.Links[0], Servers: dns("10.0.0.1"), Search: []string{"lab.example"}}, {Link: &p.Links[1]}}
	got := p.ResolvConf(leased)
	if want := resolvHeader + "nameserver 10.0.0.1\nnameserver 192.0.2.1\nsearch lab.example\noptions ndots:2\n"; got != want {
		t.Errorf("with a lease:\n%s", got)
	}
	p.resolv(dns("203.0.113.1"), preflight.Facts{})
	if got := p.ResolvConf(leased[:1]); got != resolvHeader+"nameserver 203.0.113.1\n" {
		t.Errorf("with --dns:\n%s", got)
	}
}
