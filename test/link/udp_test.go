// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// udpSize takes some seconds on one path. UDP_MB replaces it for measurements.
const udpSize = 24 << 20

// TestUDP transfers data through two tunnels at once, without any right of the client. Both
// networks must carry their part.
func TestUDP(t *testing.T) {
	size := int64(kit.Setting(t, "UDP_MB", udpSize>>20)) << 20
	for what, engine := range map[string]string{"get": "supervise", "put": "preload"} {
		t.Run(what+"/"+engine, func(t *testing.T) {
			s := newUDPSite(t)
			before := kit.Take(t, s.Host, s.Server)
			gw := s.gateway()
			var took [2]time.Duration
			for n := range took {
				was := [2]int64{s.Carried(0), s.Carried(1)}
				peer := s.ServeTransfers(size)
				target := s.start(engine, s.Ifs[:n+1], "/usr/bin/python3", "-c", kit.TransferClient, udpGateway, peer.Port, what, fmt.Sprint(size))
				s.Until("data", target, func() bool { return peer.Moved.Load() > 0 })
				began := time.Now()
				s.Ended(target, peer, what, size)
				took[n] = time.Since(began)
				for path := range n + 1 {
					if got := s.Carried(path) - was[path]; n == 1 && got < size/4 {
						t.Errorf("path %d carried %d of %d bytes", path, got, size)
					}
				}
			}
			t.Logf("one path: %v, two paths: %v: %.2f times", took[0], took[1], float64(took[0])/float64(took[1]))
			gw.Signal(syscall.SIGTERM)
			if r := gw.Wait(kit.Limit); r.Status != 0 {
				t.Errorf("the gateway: %v", r)
			}
			before.Same()
		})
	}
}

// TestUDPCut cuts a path during a transfer, in the middle of the network and at the client's
// own device. The transfer must go on, and the path must come back.
func TestUDPCut(t *testing.T) {
	t.Parallel()
	s := newUDPSite(t)
	s.gateway()
	for _, c := range []struct {
		name      string
		cut, mend func(n int)
	}{
		{"router", s.cut, s.mend},
		{"device", func(n int) { s.Host.Run(s, "ip", "link", "set", s.Devs[n], "down") }, func(n int) {
			s.Host.Run(s, "ip", "link", "set", s.Devs[n], "up")
			s.Host.Run(s, "ip", "route", "add", "default", "via", fmt.Sprintf("10.81.%d.1", n), "metric", fmt.Sprint(100+n))
		}},
	} {
		for path := range 2 {
			t.Run(fmt.Sprint(c.name, path), func(t *testing.T) {
				peer := s.ServeTransfers(udpSize)
				peer.More.Store(true)
				target := s.start("supervise", s.Ifs[:], "/usr/bin/python3", "-c", kit.TransferClient, udpGateway, peer.Port, "get", fmt.Sprint(udpSize))
				both := func(what string) {
					t.Helper()
					was := [2]int64{s.Carried(0), s.Carried(1)}
					s.Until(what, target, func() bool { return s.Carried(0) > was[0]+1<<20 && s.Carried(1) > was[1]+1<<20 })
				}
				both("data on both paths")
				began := time.Now()
				c.cut(path)
				s.says(target, fmt.Sprintf("eth%d: the gateway %s:%s does not answer", path, udpPublic, udpPort))
				noticed := time.Since(began)
				kit.WaitFor(t, "the end of the carrier", kit.Limit, func() bool { return !s.carrier(path) })
				if !s.carrier(1 - path) {
					t.Error("the other path has no carrier")
				}
				at := peer.Moved.Load()
				s.Until("more data", target, func() bool { return peer.Moved.Load() > at+4<<20 })
				t.Logf("noticed after %v", noticed)
				c.mend(path)
				s.says(target, fmt.Sprintf("eth%d: the gateway %s:%s answers again", path, udpPublic, udpPort))
				both("data on both paths again")
				peer.More.Store(false)
				stall := s.Ended(target, peer, "get", udpSize)
				t.Logf("the longest time without a byte: %v", stall)
			})
		}
	}
}

// TestUDPRoams gives the client's device another address. The tunnel must survive it.
func TestUDPRoams(t *testing.T) {
	s := newUDPSite(t)
	s.gateway()
	target := s.start("supervise", s.Ifs[:1], "sleep", "600")
	kit.WaitFor(t, "an answer", kit.Limit, func() bool { return s.pings(udpGateway) })
	s.Host.Run(t, "ip", "addr", "del", "10.81.0.2/24", "dev", "a0")
	s.Host.Addr(t, "a0", "10.81.0.77/24")
	s.Host.Run(t, "ip", "route", "add", "default", "via", "10.81.0.1", "metric", "100")
	kit.WaitFor(t, "an answer at the new address", kit.Limit, func() bool { return s.pings(udpGateway) })
	target.Signal(syscall.SIGTERM)
	target.Wait(kit.Limit)
}

// pings reports whether an address answers a ping of the client's stack.
func (s *udpSite) pings(args ...string) bool {
	return s.as("lklctl", append([]string{"-n", s.Instance, "exec", "--", "ping", "-c1", "-W2"}, args...)...).Run() == nil
}

// TestUDPKeys checks that a client with a wrong key starts nothing, says why in one line, and
// that no key, a stranger's key and a broken file are refused before anything happens.
func TestUDPKeys(t *testing.T) {
	s := newUDPSite(t)
	s.gateway()
	other := filepath.Join(kit.Dir(t), "other")
	s.newKeys(other, "phone")
	before := kit.Take(t, s.Host)
	run := func(spec string) kit.Result {
		return kit.Run(t, kit.Limit, s.as("lklrun", "--if", spec, "--", "echo", "started"))
	}
	refused := func(spec, want string) {
		t.Helper()
		r := run(spec)
		kit.OneLine(t, r, 2, want)
		if r.Stdout != "" {
			t.Errorf("%s: the program started: %v", spec, r)
		}
	}
	refused(s.spec(0, filepath.Join(other, "phone-1.conf")), "it does not answer an unknown key")
	refused(s.spec(0, filepath.Join(s.dir, "gateway.conf")), "gateway.conf cannot be read")
	refused(s.spec(0, filepath.Join(s.dir, "none.conf")), "does not exist; .lklrun gateway --new-key DIR. creates")
	refused("udp:"+udpPublic+":"+udpPort, "key: missing; add key=FILE")
	refused("udp:"+udpPublic+",key=x", "expected udp:HOST:PORT")
	refused(strings.Replace(s.Ifs[0], "via=a0", "via=none0", 1), "the host has no device none0")
	refused(s.Ifs[0]+",ip=10.1.1.1/24", "the key file assigns the addresses")
	refused(s.Ifs[0]+",mtu=1500", "leaves 1440 for the tunnel; lower mtu")
	r := kit.Run(t, kit.Limit, s.as("lklrun", "--if", s.Ifs[0], "--if", s.spec(1, s.key("phone", 0)), "--", "true"))
	kit.OneLine(t, r, 2, "is already used by eth0")
	r = kit.Run(t, kit.Limit, s.as("lklrun", "gateway", "--listen", "7401", "--key", s.key("phone", 0)))
	kit.OneLine(t, r, 2, "requires CAP_NET_ADMIN")
	before.Same()
}
