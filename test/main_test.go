// SPDX-License-Identifier: Apache-2.0

// Package test holds the end-to-end tests: bin/lklrun and bin/lklctl as a user
// has them, real programs, real peers on real wires.
package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testutil "github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

// limit is the limit for one run. A run that takes longer hangs.
const limit = 30 * time.Second

// probe returns the path of the static Go program ./probe.
func probe() string { return filepath.Join(testutil.Root(), "build", "test", "probe") }

func TestMain(m *testing.M) {
	testutil.Main(m, func(root string) error {
		// Build here: inside the namespace, there is no network, and, if it lies under
		// /tmp, no cache of the go command.
		for name, dir := range map[string]string{"probe": "test/probe", "bench": "bench"} {
			cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(root, "build", "test", name))
			cmd.Dir = filepath.Join(root, dir)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("building %s: %w: %s", dir, err, out)
			}
		}
		if os.Geteuid() != 0 {
			return nil // no phones: they need namespaces
		}
		return fakedevice.Build(root, "amd64", "arm64", "386")
	})
}

// The addresses on the wire of newSite.
const (
	hostAddr, hostAddr6     = "10.73.0.2", "fd73::2"
	serverAddr, serverAddr6 = "10.73.0.1", "fd73::1"
	stackAddr, stackAddr6   = "10.73.0.10", "fd73::10"
	serverURL               = "http://" + serverAddr
)

// A site is the host, a server behind one wire, and the tap device "tap0" on
// the same wire for a stack:
//
//	host: br0 10.73.0.2 ─┬─ veth ─ server: s0 10.73.0.1
//	                     └─ tap0 (10.73.0.10 in the stack)
type site struct {
	t      *testing.T
	server *testutil.Netns
	dir    string // served by the server's nginx: hello, file
}

func newSite(t *testing.T) *site {
	t.Helper()
	testutil.Need(t, "ip", "nginx", "curl", "/usr/bin/python3", testutil.Bin("lklrun"), testutil.Bin("lklctl"), testutil.Bin("lklhost"))
	s := &site{t: t, server: testutil.NewNetns(t, "server"), dir: testutil.Dir(t)}
	host := testutil.Host
	testutil.Veth(t, host, "v0", s.server, "s0")
	host.Tap(t, "tap0")
	host.Bridge(t, "br0", "v0", "tap0")
	host.Addr(t, "br0", hostAddr+"/24", hostAddr6+"/64")
	s.server.Addr(t, "s0", serverAddr+"/24", serverAddr6+"/64")
	if err := os.WriteFile(filepath.Join(s.dir, "hello"), []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// in returns the site for a subtest.
func (s *site) in(t *testing.T) *site {
	sub := *s
	sub.t = t
	return &sub
}

// web starts the server's nginx.
func (s *site) web(c testutil.Nginx) {
	s.t.Helper()
	c.Root = s.dir
	s.server.Nginx(s.t, c)
}

// tapIf returns the interface specification of the site's tap.
func (s *site) tapIf() string {
	return fmt.Sprintf("tap:tap0,ip=%s/24,ip6=%s/64", stackAddr, stackAddr6)
}

var runCount atomic.Int32

// lklrun is a command line of bin/lklrun; flags end with "--".
func lklrun(args ...string) *exec.Cmd {
	return exec.Command(testutil.Bin("lklrun"), args...)
}

// onTap runs a target on the tap, with a name of its own.
func (s *site) onTap(args ...string) *exec.Cmd {
	return lklrun(append([]string{"--name", s.name(), "--if", s.tapIf(), "--"}, args...)...)
}

// newName returns a fresh instance name.
func newName() string { return fmt.Sprintf("t%d", runCount.Add(1)) }

// name returns a fresh instance name.
func (s *site) name() string { return newName() }

// lklctl runs a verb, which must succeed or find nothing for its document, and returns
// its output.
func lklctl(t *testing.T, args ...string) string {
	t.Helper()
	r := testutil.Run(t, limit, exec.Command(testutil.Bin("lklctl"), args...))
	nothing := r.Status == 1 && r.Stderr == "" && json.Valid([]byte(r.Stdout))
	if r.Status != 0 && !nothing {
		t.Fatalf("lklctl %s: %v", strings.Join(args, " "), r)
	}
	return r.Stdout
}

// lines splits a text into its non-empty lines.
func lines(text string) []string {
	var all []string
	for _, l := range strings.Split(text, "\n") {
		if strings.TrimSpace(l) != "" {
			all = append(all, l)
		}
	}
	return all
}

// status returns $? of a shell.
func status(r testutil.Result) int {
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	return r.Status
}
