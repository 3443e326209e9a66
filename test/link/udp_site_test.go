// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// Addresses of a udpSite. The tunnel's own are those of `lklrun gateway --new-key`.
const (
	udpPort     = "7400"
	udpPublic   = "198.51.100.2"
	udpGateway  = "10.86.0.1"
	udpPathRate = "50mbit"
)

// A udpSite is a client in two networks, each behind its own NAT, and a gateway that both
// reach at one address:
//
//	client a0 10.81.0.2 ── in NAT out 198.51.100.1 ── s0 198.51.100.2 server
//	       a1 10.81.1.2 ── in NAT out 203.0.113.1 ─── s1 203.0.113.2
//
// The client is an ordinary user without capabilities.
type udpSite struct {
	*kit.PathSite
	routers [2]*kit.Netns
	dir     string // the keys
	bin     string
	run     string // XDG_RUNTIME_DIR of the client
	etc     string // the client's own /etc; empty: that of the tests
}

func newUDPSite(t *testing.T) *udpSite {
	kit.Need(t, "ip", "tc", "nft", "setpriv", "ping", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	s := newClient(t)
	s.dir, s.Addr = filepath.Join(kit.Dir(t), "keys"), udpGateway
	outs := [2]string{"198.51.100", "203.0.113"}
	for n := range s.routers {
		r := kit.NewNetns(t, "nat")
		s.routers[n] = r
		a, srv := fmt.Sprint("a", n), fmt.Sprint("s", n)
		kit.Veth(t, s.Host, a, r, "in")
		kit.Veth(t, r, "out", s.Server, srv)
		s.Host.Addr(t, a, fmt.Sprintf("10.81.%d.2/24", n))
		r.Addr(t, "in", fmt.Sprintf("10.81.%d.1/24", n))
		r.Addr(t, "out", outs[n]+".1/24")
		s.Server.Addr(t, srv, outs[n]+".2/24")
		s.Host.Run(t, "ip", "route", "add", "default", "via", fmt.Sprintf("10.81.%d.1", n), "metric", fmt.Sprint(100+n))
		r.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
		r.Run(t, "nft", "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post oifname out masquerade")
		r.Rate(t, "in", udpPathRate)
		r.Rate(t, "out", udpPathRate)
	}
	s.routers[1].Run(t, "ip", "route", "add", udpPublic, "via", "203.0.113.2")
	s.newKeys(s.dir, "phone")
	for n := range s.Ifs {
		s.Devs[n] = fmt.Sprint("a", n)
		s.Ifs[n] = s.spec(n, s.key("phone", n))
	}
	return s
}

// newClient makes a udpSite without a network, for an ordinary user.
func newClient(t *testing.T) *udpSite {
	s := &udpSite{PathSite: kit.NewPeers(t), bin: kit.PublicBin(t), run: kit.Dir(t)}
	kit.Host.Run(t, "chown", "-R", fmt.Sprint(kit.OrdinaryUID), s.run)
	return s
}

// newKeys creates keys of which the client's user can read its own.
func (s *udpSite) newKeys(dir, client string) {
	s.Helper()
	kit.Host.Run(s, kit.Bin("lklrun"), "gateway", "--new-key", dir, "--client", client)
	kit.Host.Run(s, "chmod", "711", dir)
	kit.Host.Run(s, "sh", "-c", fmt.Sprintf("chown %d %s/%s-*", kit.OrdinaryUID, dir, client))
}

func (s *udpSite) key(client string, n int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d.conf", client, n+1))
}

func (s *udpSite) spec(n int, key string) string {
	return fmt.Sprintf("udp:%s:%s,via=a%d,key=%s", udpPublic, udpPort, n, key)
}

// gateway starts the gateway on the server's own stack.
func (s *udpSite) gateway(args ...string) *kit.Proc {
	s.Helper()
	p := kit.Start(s, s.Server.Command(append([]string{kit.Bin("lklrun"), "gateway", "--listen", udpPort, "--key", filepath.Join(s.dir, "gateway.conf")}, args...)...))
	s.says(p, "gateway on UDP port")
	return p
}

// says waits until a program has printed text to its standard error.
func (s *udpSite) says(p *kit.Proc, text string) {
	s.Helper()
	kit.WaitFor(s, text, kit.Limit, func() bool {
		_, errs := p.Output()
		return strings.Contains(errs, text) || !p.Running()
	})
	if _, errs := p.Output(); !strings.Contains(errs, text) {
		s.Fatalf("it never says %q: %s", text, errs)
	}
}

// as returns a command of the client's user, who has no capability and gets none.
func (s *udpSite) as(program string, args ...string) *exec.Cmd {
	id := fmt.Sprint(kit.OrdinaryUID)
	var own []string
	if s.etc != "" {
		own = []string{"unshare", "-m", "sh", "-c", `mount -n --bind "$0" /etc && exec "$@"`, s.etc}
	}
	cmd := s.Host.Command(append(append(own, "setpriv", "--reuid="+id, "--regid="+id, "--clear-groups",
		"--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs", filepath.Join(s.bin, program)), args...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent", "LANG=C.UTF-8", "XDG_RUNTIME_DIR=" + s.run}
	cmd.Dir = "/"
	return cmd
}

// start starts a program on the given interfaces.
func (s *udpSite) start(engine string, ifs []string, args ...string) *kit.Proc {
	s.Helper()
	flags := []string{"--name", s.Instance, "--engine", engine}
	for _, i := range ifs {
		flags = append(flags, "--if", i)
	}
	return kit.Start(s, s.as("lklrun", append(append(flags, "--"), args...)...))
}

// lklctl runs lklctl as the client's user.
func (s *udpSite) lklctl(args ...string) string {
	s.Helper()
	return kit.OK(s, kit.Limit, s.as("lklctl", append([]string{"-n", s.Instance}, args...)...))
}

// carrier reports whether an interface of the client has a carrier.
func (s *udpSite) carrier(n int) bool {
	out, err := s.as("lklctl", "-n", s.Instance, "cat", fmt.Sprintf("/sys/class/net/eth%d/carrier", n)).Output()
	return err == nil && strings.TrimSpace(string(out)) == "1"
}

// cut stops a router, which neither end notices by itself.
func (s *udpSite) cut(n int)  { s.routers[n].Run(s, "sysctl", "-qw", "net.ipv4.ip_forward=0") }
func (s *udpSite) mend(n int) { s.routers[n].Run(s, "sysctl", "-qw", "net.ipv4.ip_forward=1") }
