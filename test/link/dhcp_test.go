// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// TestDHCP checks, in both engines, that an interface with dhcp acquires its lease before
// the command begins, and releases it at the end. Without a DHCP server, the command does
// not begin, and lklrun suggests a remedy. If another interface has an address, the
// command begins.
func TestDHCP(t *testing.T) {
	s := kit.NewSite(t)
	kit.Host.Tap(t, "tap1")
	kit.Host.Tap(t, "tap2")
	kit.Host.Tap(t, "tap3")
	log := s.Server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.73.0.100,10.73.0.200,255.255.255.0,600",
		"--dhcp-option=option:dns-server,10.73.0.1", "--domain=lab.example", "--dhcp-option=option:mtu,1400",
		"--dhcp-option=121,10.99.0.0/16,10.73.0.9,0.0.0.0/0,10.73.0.1")
	before := kit.Take(t, s.Server)
	alone := kit.Start(t, kit.Lklrun("--name", kit.NewName(), "--if", "tap:tap1,dhcp", "--", "true"))
	both := kit.Start(t, kit.Lklrun("--name", kit.NewName(), "--if", "tap:tap3,ip=10.74.0.1/24", "--if", "tap:tap2,dhcp", "--", "echo", "on"))
	for _, engine := range []string{"supervise", "preload"} {
		out := kit.OK(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--if", "tap:tap0,dhcp", "--", "ip", "-o", "addr", "show", "dev", "eth0"))
		if !strings.Contains(out, "inet 10.73.0.1") || !strings.Contains(out, "dynamic") {
			t.Errorf("%s: addresses: %s", engine, out)
		}
		out = kit.OK(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--if", "tap:tap0,dhcp", "--", "ip", "route"))
		for _, want := range []string{"default via 10.73.0.1 dev eth0 proto dhcp", "10.99.0.0/16 via 10.73.0.9 dev eth0 proto dhcp"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in: %s", engine, want, out)
			}
		}
	}
	out := kit.OK(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", "tap:tap0,dhcp", "--", "cat", "/etc/resolv.conf", "/sys/class/net/eth0/mtu"))
	if !strings.Contains(out, "nameserver 10.73.0.1\nsearch lab.example\n") || !strings.Contains(out, "\n1400\n") {
		t.Errorf("the command's files: %s", out)
	}
	said, errs := log.Output()
	if acks, back := strings.Count(said+errs, "DHCPACK(s0)"), strings.Count(said+errs, "DHCPRELEASE(s0)"); acks != 5 || back != 5 {
		t.Errorf("%d leases, %d given back:\n%s", acks, back, said+errs)
	}
	r := alone.Wait(kit.Limit)
	if r.Status != 125 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "eth0 (tap:tap1)") || !strings.Contains(r.Stderr, "ip=") {
		t.Errorf("without a server: %v", r)
	}
	r = both.Wait(kit.Limit)
	if r.Status != 0 || r.Stdout != "on\n" || !strings.Contains(r.Stderr, "eth1 (tap:tap2)") || !strings.Contains(r.Stderr, "continuing without") {
		t.Errorf("with another interface: %v", r)
	}
	before.Same()
}

// TestLeaseVerb checks that lklctl lease shows a lease, renews it, releases it and
// acquires it again. The name servers must change in the resolv.conf that the command has
// open.
func TestLeaseVerb(t *testing.T) {
	s := kit.NewSite(t)
	serve := func(dns string) *kit.Proc {
		return s.Server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.73.0.100,10.73.0.200,255.255.255.0,600", "--dhcp-option=option:dns-server,"+dns)
	}
	server := serve("10.73.0.1")
	k := s.Talk("--if", "tap:tap0,dhcp")
	k.Say(`keep.__setitem__("resolv", open("/etc/resolv.conf"))`)
	show := func(args ...string) []lease {
		t.Helper()
		var all []lease
		text := kit.Lklctl(t, append([]string{"-n", k.Name, "-o", "json", "lease"}, args...)...)
		if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
			t.Fatalf("lease -o json: %v: %s", err, text)
		}
		return all
	}
	first := show()[0]
	if first.Link != "eth0" || first.Proto != "dhcp" || first.State != "bound" || first.Lease.Server != kit.ServerAddr || len(first.Lease.Routes) != 1 {
		t.Errorf("lease: %+v", first)
	}
	if text := kit.Lklctl(t, "lease"); !strings.Contains(text, first.Lease.Addr) || !strings.Contains(text, "0.0.0.0/0>"+kit.ServerAddr) {
		t.Errorf("lease: %s", text)
	}
	server.Signal(syscall.SIGTERM)
	server.Wait(kit.Limit)
	server = serve("10.73.0.3")
	if again := show("renew", "eth0")[0]; again.Lease.Addr != first.Lease.Addr || !again.Lease.From.After(first.Lease.From) {
		t.Errorf("renewed: %+v", again)
	}
	kit.WaitFor(t, "the new name server in the file", kit.Limit, func() bool {
		return strings.Contains(k.Say(`(keep["resolv"].seek(0), keep["resolv"].read())[1]`), "nameserver 10.73.0.3")
	})
	if gone := show("release", "eth0")[0]; gone.State != "released" || gone.Lease != nil {
		t.Errorf("released: %+v", gone)
	}
	if out := kit.Lklctl(t, "exec", "ip", "-4", "addr", "show", "dev", "eth0"); strings.Contains(out, "inet ") {
		t.Errorf("after the release: %s", out)
	}
	if back := show("renew", "eth0")[0]; back.State != "bound" {
		t.Errorf("renewed after the release: %+v", back)
	}
	var list []struct {
		Interfaces []struct {
			Leases []struct{ Addr, State string }
		}
	}
	kit.WaitFor(t, "the lease in the state", kit.Limit, func() bool {
		if err := json.Unmarshal([]byte(kit.Lklctl(t, "-o", "json", "list")), &list); err != nil {
			t.Fatal(err)
		}
		l := list[0].Interfaces[0].Leases
		return len(l) == 1 && l[0].State == "bound" && l[0].Addr != ""
	})
	for _, args := range [][]string{{"lease", "renew", "eth7"}, {"lease", "release", "lo"}} {
		if r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), args...)); r.Status != 2 || !strings.Contains(r.Stderr, "there are: eth0") {
			t.Errorf("%q: %v", args, r)
		}
	}
	k.End()
	if out, errs := server.Output(); !strings.Contains(out+errs, "DHCPRELEASE(s0)") {
		t.Errorf("no release at the end:\n%s%s", out, errs)
	}
}

// lease is one lease in the output of lklctl lease -o json.
type lease struct {
	Link, Proto, State string
	Lease              *struct {
		Addr, Server string
		From         time.Time
		Routes       []any
	}
}

// TestRouters checks, in both engines, that router advertisements take effect only on
// interfaces that request them.
func TestRouters(t *testing.T) {
	s := kit.NewSite(t)
	s.Server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd73::100,fd73::1ff,slaac,64,600", "--dhcp-option=option6:dns-server,[fd73::53]", "--dhcp-option=option6:domain-search,ra.example")
	for _, tap := range []string{"tap1", "tap2", "tap3", "tap4"} {
		kit.Host.Tap(t, tap)
		kit.Host.Run(t, "ip", "link", "set", tap, "master", "br0")
	}
	before := kit.Take(t, s.Server)
	start := func(engine, spec string, args ...string) *kit.Proc {
		return kit.Start(t, kit.Lklrun(append([]string{"--name", kit.NewName(), "--engine", engine, "--if", spec, "--"}, args...)...))
	}
	addrs := []string{"ip", "-6", "addr", "show", "dev", "eth0", "scope", "global"}
	slaac := map[string]*kit.Proc{
		"supervise": start("supervise", "tap:tap1,slaac", "sh", "-c", strings.Join(addrs, " ")+"; cat /etc/resolv.conf"),
		"preload":   start("preload", "tap:tap2,slaac", addrs...),
	}
	dhcp6 := map[string]*kit.Proc{
		"supervise": start("supervise", "tap:tap3,dhcp6", addrs...),
		"preload":   start("preload", "tap:tap4,dhcp6", addrs...),
	}
	for engine, p := range slaac {
		r := p.Wait(kit.Limit)
		if out := r.Stdout; strings.Count(out, "inet6 fd73::") != 1 || !strings.Contains(out, "/64") || !strings.Contains(out, "dynamic") || strings.Contains(out, "tentative") {
			t.Errorf("%s: slaac: %v", engine, r)
		}
		if engine == "supervise" && !strings.Contains(r.Stdout, "nameserver fd73::53\nsearch ra.example\n") {
			t.Errorf("name servers: %v", r)
		}
	}
	for engine, p := range dhcp6 {
		r := p.Wait(kit.Limit)
		if out := r.Stdout; strings.Count(out, "inet6 fd73::1") != 1 || strings.Count(out, "inet6 fd73:") != 1 || !strings.Contains(out, "/128") {
			t.Errorf("%s: dhcp6: %v", engine, r)
		}
	}
	// An interface with a configured address also receives advertisements, but must
	// ignore them.
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	const heard = `[l for l in open("/proc/net/snmp6") if l.startswith("Icmp6InRouterAdvertisements")][0].split()[1]`
	k.Say(`keep.__setitem__("s", socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))`)
	k.Say(`keep["s"].setsockopt(41, 18, 255)`) // IPV6_MULTICAST_HOPS
	kit.WaitFor(t, "an advertisement", kit.Limit, func() bool {
		k.Say(`keep["s"].sendto(bytes([133] + 7 * [0]), ("ff02::2", 0, 0, socket.if_nametoindex("eth0")))`) // a solicitation
		return k.Say(heard) != "'0'"
	})
	if out := kit.Lklctl(t, "-n", k.Name, "exec", "ip", "-6", "addr", "show", "dev", "eth0", "scope", "global"); strings.Count(out, "inet6") != 1 || !strings.Contains(out, kit.StackAddr6) {
		t.Errorf("without slaac: %s", out)
	}
	if out := kit.Lklctl(t, "-n", k.Name, "exec", "ip", "-6", "route"); strings.Contains(out, "default") {
		t.Errorf("without slaac: %s", out)
	}
	k.End()
	before.Same()
}

// TestLeaseOfAddedLink checks that an interface that is added while the program runs
// gets its address, and releases it when it is removed.
func TestLeaseOfAddedLink(t *testing.T) {
	s := kit.NewSite(t)
	server := s.Server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.73.0.100,10.73.0.200,255.255.255.0,600", "--dhcp-option=option:dns-server,10.73.0.1")
	k := s.Talk("--if", "user")
	k.Say("1")
	kit.Lklctl(t, "link", "add", "tap:tap0,dhcp")
	var l *lease
	kit.WaitFor(t, "a lease", kit.Limit, func() bool {
		var all []lease
		if err := json.Unmarshal([]byte(kit.Lklctl(t, "-o", "json", "lease")), &all); err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && all[0].State == "bound" {
			l = &all[0]
		}
		return l != nil
	})
	if l.Link != "eth1" || l.Lease.Server != kit.ServerAddr {
		t.Errorf("lease: %+v", l)
	}
	kit.WaitFor(t, "its name server", kit.Limit, func() bool {
		return strings.Contains(k.Say(`open("/etc/resolv.conf").read()`), "nameserver 10.73.0.1")
	})
	kit.Lklctl(t, "link", "del", "eth1")
	kit.WaitFor(t, "its release", kit.Limit, func() bool {
		out, errs := server.Output()
		return strings.Contains(out+errs, "DHCPRELEASE(s0)")
	})
	kit.WaitFor(t, "its name server goes", kit.Limit, func() bool {
		return !strings.Contains(k.Say(`open("/etc/resolv.conf").read()`), "nameserver 10.73.0.1")
	})
	k.End()
}

// TestDHCPTypes checks DHCP on the other types of interface. It also checks a VLAN, whose
// DHCP server is dnsmasq on another run's stack.
func TestDHCPTypes(t *testing.T) {
	s := kit.NewSite(t)
	kit.Veth(t, kit.Host, "w0", s.Server, "s1")
	s.Server.Addr(t, "s1", "10.78.0.1/24")
	s.Server.DnsmasqDHCP(t, "s1", "--dhcp-range=10.78.0.100,10.78.0.200,255.255.255.0,600")
	kit.Host.Tap(t, "tap1")
	kit.Host.Run(t, "ip", "link", "set", "tap1", "master", "br0")
	server := kit.Start(t, kit.Lklrun("--name", kit.NewName(), "--if", "tap:tap0,vlan=5,ip=10.79.0.1/24", "--",
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file=",
		"--dhcp-leasefile="+kit.Dir(t)+"/leases", "--log-facility=-", "--dhcp-range=10.79.0.100,10.79.0.200,255.255.255.0,600"))
	kit.WaitFor(t, "dnsmasq starts", kit.Limit, func() bool {
		out, errs := server.Output()
		return strings.Contains(out+errs, "started, version")
	})
	for spec, net := range map[string]string{"raw:w0,dhcp": "10.78.0.", "macvtap:w0,dhcp": "10.78.0.", "tap:tap1,vlan=5,dhcp": "10.79.0."} {
		out := kit.OK(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", spec, "--", "sh", "-c", "ip -4 -o addr; ping -c1 -W5 "+net+"1"))
		if !strings.Contains(out, "inet "+net+"1") || !strings.Contains(out, " 0% packet loss") {
			t.Errorf("%s: %s", spec, out)
		}
	}
}
