// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Limit bounds one run. A run that takes longer hangs.
const Limit = 30 * time.Second

// EndToEnd is the body of a TestMain of end-to-end tests: it calls Main, which first runs
// the functions in more and builds Probe.
func EndToEnd(m *testing.M, more ...func(root string) error) {
	Main(m, func(root string) error {
		// Build outside the namespaces: inside, there is no network. If the go command's
		// cache is below /tmp, it is not visible inside either.
		for _, build := range append(more, GoProgram("probe", "./test/kit/probe")) {
			if err := build(root); err != nil {
				return err
			}
		}
		return nil
	})
}

// GoProgram builds the static Go program in dir as Program(name).
func GoProgram(name, dir string) func(root string) error {
	return func(root string) error {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(root, "build", "test", name))
		cmd.Dir = filepath.Join(root, dir) // it may be a module of its own
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", dir, err, out)
		}
		return nil
	}
}

// Program returns the path of a program that GoProgram has built.
func Program(name string) string { return filepath.Join(Root(), "build", "test", name) }

// Probe returns the path of test/kit/probe, a static Go program.
func Probe() string { return Program("probe") }

// The addresses on the wire of NewSite.
const (
	HostAddr, HostAddr6     = "10.73.0.2", "fd73::2"
	ServerAddr, ServerAddr6 = "10.73.0.1", "fd73::1"
	StackAddr, StackAddr6   = "10.73.0.10", "fd73::10"
	ServerURL               = "http://" + ServerAddr
)

// A Site is the host, a server behind one wire, and the tap device "tap0" on
// the same wire for a stack:
//
//	host: br0 10.73.0.2 ─┬─ veth ─ server: s0 10.73.0.1
//	                     └─ tap0 (10.73.0.10 in the stack)
type Site struct {
	T      *testing.T
	Server *Netns
	Dir    string // served by the server's nginx: hello, file
}

// NewSite makes a site, which ends with the test.
func NewSite(t *testing.T) *Site {
	t.Helper()
	Need(t, "ip", "nginx", "curl", "/usr/bin/python3", Bin("lklrun"), Bin("lklctl"), Bin("lklhost"))
	s := &Site{T: t, Server: NewNetns(t, "server"), Dir: Dir(t)}
	host := Host
	Veth(t, host, "v0", s.Server, "s0")
	host.Tap(t, "tap0")
	host.Bridge(t, "br0", "v0", "tap0")
	host.Addr(t, "br0", HostAddr+"/24", HostAddr6+"/64")
	s.Server.Addr(t, "s0", ServerAddr+"/24", ServerAddr6+"/64")
	if err := os.WriteFile(filepath.Join(s.Dir, "hello"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// In returns the site for a subtest.
func (s *Site) In(t *testing.T) *Site {
	sub := *s
	sub.T = t
	return &sub
}

// Web starts the server's nginx.
func (s *Site) Web(c Nginx) {
	s.T.Helper()
	c.Root = s.Dir
	s.Server.Nginx(s.T, c)
}

// TapIf returns the interface specification of the site's tap.
func (s *Site) TapIf() string {
	return fmt.Sprintf("tap:tap0,ip=%s/24,ip6=%s/64", StackAddr, StackAddr6)
}

// OnTap runs a target on the tap, with a name of its own.
func (s *Site) OnTap(args ...string) *exec.Cmd {
	return Lklrun(append([]string{"--name", NewName(), "--if", s.TapIf(), "--"}, args...)...)
}
