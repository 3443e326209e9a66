// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// These tests check properties of packet sockets that the driver suite does not check.

// TestRawRight checks that raw requires only CAP_NET_RAW. Without it, lklrun prints one
// line.
func TestRawRight(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	bin := kit.PublicBin(t)
	spec := fmt.Sprintf("raw:br0,ip=%s/24", kit.StackAddr)
	run := func() *exec.Cmd {
		return kit.AsUser(exec.Command(bin+"/lklrun", "-q", "--name", kit.NewName(), "--if", spec, "--", "curl", "-sS", "-m", "20", kit.ServerURL+"/hello"), "")
	}
	before := kit.Take(t, s.Server)
	with := run()
	with.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_RAW}
	if r := kit.Run(t, kit.Limit, with); r.Status != 0 || r.Stdout != "hello\n" || r.Stderr != "" {
		t.Errorf("with CAP_NET_RAW: %v", r)
	}
	want := fmt.Sprintf("lklrun: --if %q: packet sockets require CAP_NET_RAW, which uid %d lacks; run lklrun as root, run `setcap cap_net_raw+ep` on its file, or use --if user\n", spec, kit.OrdinaryUID)
	if r := kit.Run(t, kit.Limit, run()); r.Status != 2 || r.Stderr != want {
		t.Errorf("without: %v\nwant %s", r, want)
	}
	before.Same()
}

// TestPacketRefused checks that impossible settings are reported in one line and have no
// other effect.
func TestPacketRefused(t *testing.T) {
	kit.NewSite(t)
	for spec, want := range map[string]string{
		"rawip:br0": "br0 is an Ethernet device; use raw:br0",
		"raw:lo":    "lo is the host's loopback device, which returns no packets to the stack; the stack has its own loopback",
		"raw:none":  "the host has no device none; `ip link` lists its devices",
		"raw:v0":    "v0 has no address on the host to share; add ip=ADDRESS/PREFIX",
	} {
		r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", spec, "--", "true"))
		if want = fmt.Sprintf("lklrun: --if %q: %s\n", spec, want); r.Status != 2 || r.Stderr != want {
			t.Errorf("%v\nwant %s", r, want)
		}
	}
}

// TestPacketDeviceDown sets the host's device down and up again. The stack's device must
// lose its carrier and get it back, and lklhost and the program must continue.
func TestPacketDeviceDown(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			s.Web(kit.Nginx{})
			k := s.Talk("--engine", engine, "--if", fmt.Sprintf("raw:br0,ip=%s/24", kit.StackAddr))
			carrier := func() string {
				return strings.TrimSpace(kit.Lklctl(t, "-n", k.Name, "cat", "/sys/class/net/eth0/carrier"))
			}
			k.Connect("a", kit.ServerAddr, 80)
			kit.Host.Run(t, "ip", "link", "set", "br0", "down")
			kit.WaitFor(t, "loss of the carrier", kit.Limit, func() bool { return carrier() == "0" })
			kit.Host.Run(t, "ip", "link", "set", "br0", "up")
			kit.WaitFor(t, "its return", kit.Limit, func() bool { return carrier() == "1" })
			k.Connect("b", kit.ServerAddr, 80)
			if r := k.End(); r.Status != 0 {
				t.Errorf("the run: %v", r)
			}
		})
	}
}

// TestRawIPSLAAC checks that a device without a link layer also gets addresses from the
// network's router, which is how a cellular network assigns IPv6.
func TestRawIPSLAAC(t *testing.T) {
	kit.Need(t, "ip", "dnsmasq", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklhost"))
	w := newWire(t)
	w.tuns()
	const prefix = "2001:db8:7::"
	w.far.Addr(t, "t1", prefix+"1/64")
	kit.Start(t, w.far.Command("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=t1", "--enable-ra",
		"--dhcp-range="+prefix+",ra-only,64", "--ra-param=t1,4,1800", "--user=root", "--log-facility=-"))
	before := kit.Take(t, w.here)
	d := w.start("supervise", "rawip:t0,slaac")
	if got := d.Say("ping(%q)", prefix+"1"); got != "answered" {
		t.Errorf("the router: %s", got)
	}
	d.ends()
	before.Settles(kit.Limit)
}

// TestPacketLive adds a modem while the program runs, and removes it again.
func TestPacketLive(t *testing.T) {
	kit.Need(t, "ip", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			w := newWire(t)
			w.tuns()
			w.far.Addr(t, "t1", "10.91.0.1/24")
			d := w.start(engine, "raw:v0,ip=10.90.0.11/24")
			d.is("answered", "ping(%q)", farAddr)
			lklctl := func(want int, args ...string) string {
				r := kit.Run(t, kit.Limit, w.here.Command(append([]string{kit.Bin("lklctl"), "-n", d.Name}, args...)...))
				if r.Status != want {
					t.Errorf("lklctl %v: %v", args, r)
				}
				return strings.TrimSpace(r.Stdout + r.Stderr)
			}
			for range 2 {
				if got := lklctl(0, "link", "add", "rawip:t0,ip=10.91.0.2/24"); got != "eth1" {
					t.Errorf("the new interface is %q", got)
				}
				d.is("answered", "ping(%q)", "10.91.0.1")
				lklctl(0, "link", "del", "eth1")
			}
			if got := lklctl(2, "link", "add", "rawip:v0"); !strings.Contains(got, "v0 is an Ethernet device; use raw:v0") {
				t.Errorf("an Ethernet device as rawip: %s", got)
			}
			d.is("answered", "ping(%q)", farAddr)
			d.ends()
		})
	}
}
