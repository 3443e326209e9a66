// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TransferLimit bounds one transfer with its cuts, on a busy machine.
const TransferLimit = 2 * time.Minute

// PathRate is the rate of each path.
const PathRate = "100mbit"

// A PathSite is a client's host and a server that speaks MPTCP, with two paths of
// PathRate in between:
//
//	tap0 ─ br0 ─ v0 ─── s0 10.74.1.1
//	tap1 ─ br1 ─ v1 ─── s1 10.74.2.1
type PathSite struct {
	*testing.T
	Host, Server *Netns
	Instance     string
	Ifs          [2]string // the interfaces, as in --if
	Devs         [2]string // the host's devices that they use
	Addr         string    // of the server, on the first path
}

// NewPathSite makes a PathSite with static addresses, which ends with the test.
func NewPathSite(t *testing.T) *PathSite {
	t.Helper()
	p := NewPeers(t)
	p.Wire(0, ",ip=10.74.1.2/24,gw=10.74.1.1")
	p.Wire(1, ",ip=10.74.2.2/24,gw=10.74.2.1")
	return p
}

// NewPhone is a PathSite whose first path is a network with a DHCP server, like Wi-Fi,
// and whose second path is a device without a link layer, like a modem:
//
//	tap0 ─ br0 ─ v0 ─── s0 10.74.1.1
//	tun0 ────────────── s1 10.74.2.1
func NewPhone(t *testing.T) *PathSite {
	t.Helper()
	p := NewPeers(t)
	p.Wire(0, ",dhcp")
	p.Server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.74.1.100,10.74.1.200,255.255.255.0,600", "--dhcp-option=option:router,10.74.1.1")
	near, far := OpenTun(t, p.Host, "tun0", unix.IFF_TUN|unix.IFF_NO_PI), OpenTun(t, p.Server, "s1", unix.IFF_TUN|unix.IFF_NO_PI)
	p.Host.Run(t, "ip", "link", "set", "tun0", "up")
	p.Server.Run(t, "ip", "link", "set", "s1", "up")
	p.Server.Addr(t, "s1", "10.74.2.1/24")
	p.Server.Rate(t, "s1", PathRate)
	p.Host.Rate(t, "tun0", PathRate)
	t.Cleanup(CarryFrames(near, far))
	p.Ifs[1], p.Devs[1] = "rawip:tun0,ip=10.74.2.2/24", "tun0"
	return p
}

// NewPathSite6 is a PathSite with IPv6, over macvtaps on the wires themselves.
func NewPathSite6(t *testing.T) *PathSite {
	t.Helper()
	p := NewPeers(t)
	p.Addr = "fd74:1::1"
	for n := range 2 {
		v, s := fmt.Sprint("v", n), fmt.Sprint("s", n)
		Veth(t, p.Host, v, p.Server, s)
		p.Server.Addr(t, s, fmt.Sprintf("fd74:%d::1/64", n+1))
		p.Server.Rate(t, s, PathRate)
		p.Host.Rate(t, v, PathRate)
		p.Ifs[n], p.Devs[n] = fmt.Sprintf("macvtap:%s,ip6=fd74:%d::2/64,gw6=fd74:%d::1", v, n+1, n+1), v
	}
	return p
}

// Wire sets up a tap to the server.
func (p *PathSite) Wire(n int, keys string) {
	p.Helper()
	v, s, tap := fmt.Sprint("v", n), fmt.Sprint("s", n), fmt.Sprint("tap", n)
	Veth(p, p.Host, v, p.Server, s)
	p.Host.Tap(p, tap)
	p.Host.Bridge(p, fmt.Sprint("br", n), v, tap)
	p.Server.Addr(p, s, fmt.Sprintf("10.74.%d.1/24", n+1))
	p.Server.Rate(p, s, PathRate)
	p.Host.Rate(p, v, PathRate)
	p.Ifs[n], p.Devs[n] = "tap:"+tap+keys, tap
}

// toStack moves the server's address on a path from its kernel to a stack, and returns the
// stack's interface. An Ethernet device keeps an address for the services of its network.
func (p *PathSite) toStack(path int) (iface string) {
	p.Helper()
	dev, addr, kind := fmt.Sprint("s", path), fmt.Sprintf("10.74.%d.1/24", path+1), "macvtap"
	p.Server.Run(p, "ip", "addr", "del", addr, "dev", dev)
	if strings.Contains(p.Server.Run(p, "ip", "link", "show", dev), "link/none") {
		kind = "rawip"
	} else {
		p.Server.Addr(p, dev, fmt.Sprintf("10.74.%d.254/24", path+1))
	}
	return fmt.Sprintf("%s:%s,ip=%s", kind, dev, addr)
}

// NewPeers makes a PathSite without paths.
func NewPeers(t *testing.T) *PathSite {
	t.Helper()
	Need(t, "ip", "tc", "ss", "dnsmasq", "/usr/bin/python3", Bin("lklrun"), Bin("lklctl"), Bin("lklhost"))
	p := &PathSite{T: t, Host: NewNetns(t, "phone"), Server: NewNetns(t, "peer"), Instance: NewName(), Addr: "10.74.1.1"}
	p.Server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	p.Server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")
	return p
}

// Start starts a target on both paths; options are added to the specification of eth1.
func (p *PathSite) Start(engine, options string, args ...string) *Proc {
	p.Helper()
	cmd := append([]string{
		Bin("lklrun"), "-v", "--name", p.Instance, "--engine", engine,
		"--if", p.Ifs[0], "--if", p.Ifs[1] + options, "--",
	}, args...)
	return Start(p, p.Host.Command(cmd...))
}

// InStack runs a command with lklctl exec.
func (p *PathSite) InStack(args ...string) string {
	p.Helper()
	return Lklctl(p.T, append([]string{"exec", "-n", p.Instance, "--"}, args...)...)
}

// A Cut interrupts a path and restores it.
type Cut struct {
	Name          string
	Away, Restore func(p *PathSite, path int)
}

// CutDown sets the host's device down, which the stack can detect.
var CutDown = Cut{
	"down",
	func(p *PathSite, n int) { p.Host.Run(p, "ip", "link", "set", p.Devs[n], "down") },
	func(p *PathSite, n int) { p.Host.Run(p, "ip", "link", "set", p.Devs[n], "up") },
}

// CutSilent makes a later hop stop forwarding, which neither side can detect.
var CutSilent = Cut{
	"silent",
	func(p *PathSite, n int) { p.Host.Run(p, "ip", "link", "set", fmt.Sprint("v", n), "nomaster") },
	func(p *PathSite, n int) {
		p.Host.Run(p, "ip", "link", "set", fmt.Sprint("v", n), "master", fmt.Sprint("br", n))
	},
}

// Carried returns the number of bytes that have crossed a path, according to the counters
// of the server's device.
func (p *PathSite) Carried(path int) int64 {
	p.Helper()
	var devs []struct {
		Stats64 struct{ RX, TX struct{ Bytes int64 } }
	}
	text := p.Server.Run(p, "ip", "-j", "-s", "link", "show", fmt.Sprint("s", path))
	if err := json.Unmarshal([]byte(text), &devs); err != nil || len(devs) != 1 {
		p.Fatalf("ip -s link: %v\n%s", err, text)
	}
	return devs[0].Stats64.RX.Bytes + devs[0].Stats64.TX.Bytes
}

// Until waits until cond holds. The transfer must not end before.
func (p *PathSite) Until(what string, target *Proc, cond func() bool) {
	p.Helper()
	ok := Within(TransferLimit, func() bool { return cond() || !target.Running() })
	if out, errs := target.Output(); !ok || !target.Running() {
		if !ok {
			p.Logf("the stack: %s\nthe server: %s", Lklctl(p.T, "-n", p.Instance, "mptcp"), p.Server.Run(p, "ss", "-tinmM"))
		}
		p.Fatalf("%s: not before the end\n%s%s", what, out, errs)
	}
}

// RunsOut waits for the end of a target.
func (p *PathSite) RunsOut(target *Proc) {
	p.Helper()
	if !Within(TransferLimit, func() bool { return !target.Running() }) {
		_, errs := target.Output()
		p.Fatalf("it does not end; the stack: %s\nthe server: %s\n%s", Lklctl(p.T, "-n", p.Instance, "mptcp"), p.Server.Run(p, "ss", "-tinmM"), errs)
	}
}

// Ended checks the outcome of a transfer and returns its longest stall: the server's
// longest time for a megabyte, or the target's longest time without a byte.
func (p *PathSite) Ended(target *Proc, peer *TransferPeer, what string, size int64) time.Duration {
	p.Helper()
	p.RunsOut(target)
	r := target.Wait(Limit)
	f := strings.Fields(r.Stdout)
	if r.Status != 0 || len(f) != 3 {
		p.Fatalf("the transfer: %v", r)
	}
	stall, err := strconv.ParseFloat(f[2], 64)
	if err != nil {
		p.Fatal(err)
	}
	sum, worst, err := peer.Wait(TransferLimit)
	if err != nil {
		p.Fatalf("the server: %v\n%s", err, r.Stderr)
	}
	if moved := peer.Moved.Load(); f[0] != fmt.Sprint(moved) || moved < size || f[1] != sum || peer.wrong != "" {
		p.Errorf("the target had %s bytes, %s; the server %d of %d, %s; %s", f[0], f[1], moved, size, sum, peer.wrong)
	}
	if what == "put" { // only the receiver knows the stall
		return worst
	}
	return time.Duration(stall * float64(time.Second))
}
