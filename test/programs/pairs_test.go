// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

// A pair is a server program and the work of its clients. testPair runs both in every
// role.
type pair struct {
	needs  []string // required programs
	port   int
	udp    bool
	server func(dir string) []string // listens on every address; its files are in dir
	client func(c *client)
	heavy  bool // run each role on one of the stacks only
	inside role // roles in which it is a single process, which can have the kernel inside
	once   bool // the server serves one client and ends
}

// A role is the role of a program in a pair.
type role int

const (
	asServer role = 1 << iota
	asClient
)

// inside returns the name by which onStack selects a stack whose kernel is in the program
// itself.
func inside(stack string) string { return stack + "+preload" }

// A client describes where the clients of a pair run, and which server they use.
type client struct {
	*testing.T
	addr string // the server's address
	dir  string // the server's files
	tmp  string // the client's own files
	host bool   // on the host's stack
	in   func(args ...string) *exec.Cmd
}

// ok runs a client that must succeed, and returns its output.
func (c *client) ok(args ...string) string {
	c.Helper()
	return kit.OK(c, kit.Limit, c.in(args...))
}

// sh is like ok, for a shell command line.
func (c *client) sh(format string, args ...any) string {
	c.Helper()
	return c.ok("sh", "-c", fmt.Sprintf(format, args...))
}

// says runs a client that must succeed and print exactly want.
func (c *client) says(want string, args ...string) {
	c.Helper()
	if got := c.ok(args...); got != want {
		c.Errorf("%s: %q, want %q", strings.Join(args, " "), got, want)
	}
}

// testPair runs a pair in its roles, on each stack. In the role asServer, the server runs
// on the stack. Its clients run on the host, and then, with lklctl exec, on the stack's
// own lo. In the role asClient, the client runs on the stack, and the server on the other
// side of the wire.
func testPair(s *kit.Site, p pair) {
	t := s.T
	t.Helper()
	kit.Need(t, p.needs...)
	for _, stack := range stacks(t) {
		if !p.heavy || stack == "mptcp" {
			t.Run("server on "+stack, func(t *testing.T) { serverOn(s.In(t), stack, p) })
		}
		if (!p.heavy || stack == "vanilla") && !standing(t) {
			t.Run("client on "+stack, func(t *testing.T) { clientOn(s.In(t), stack, p) })
		}
	}
	if standing(t) {
		return
	}
	if p.inside&asServer != 0 {
		t.Run("server with mptcp inside", func(t *testing.T) { serverOn(s.In(t), inside("mptcp"), p) })
	}
	if p.inside&asClient != 0 {
		t.Run("client with mptcp inside", func(t *testing.T) { clientOn(s.In(t), inside("mptcp"), p) })
	}
}

func serverOn(s *kit.Site, stack string, p pair) {
	t := s.T
	before := kit.Take(t, s.Server)
	for _, where := range []string{"host", "lo"} {
		if where == "lo" && (standing(t) || p.once || strings.Contains(stack, "+")) {
			break // this needs a second client and lklctl exec, which a kernel inside the program does not support
		}
		dir, tmp := kit.Dir(t), kit.Dir(t)
		r := serveOn(s, stack, p, dir)
		c := &client{T: t, addr: kit.StackAddr, dir: dir, tmp: tmp, host: true, in: func(args ...string) *exec.Cmd {
			return exec.Command(args[0], args[1:]...)
		}}
		if where == "lo" {
			c.addr, c.host = "127.0.0.1", false
			c.in = func(args ...string) *exec.Cmd {
				return exec.Command(kit.Bin("lklctl"), append([]string{"exec", "-n", r.name, "--"}, args...)...)
			}
		}
		if p.once || where == "lo" {
			p.client(c)
		} else {
			r.keepsNothing(func() { p.client(c) })
			r.stands(func() {
				c.tmp = filepath.Join(tmp, "round")
				kit.Must(t, os.RemoveAll(c.tmp), os.Mkdir(c.tmp, 0o755))
				p.client(c)
			})
		}
		if t.Failed() {
			out, errs := r.proc.Output()
			t.Fatalf("by %s; the server said:\n%s%s", where, out, errs)
		}
		if !p.once {
			r.proc.Signal(unix.SIGTERM)
		}
		r.proc.Wait(kit.Limit)
		for _, d := range []string{dir, tmp} {
			if err := os.RemoveAll(d); err != nil {
				t.Fatal(err)
			}
		}
	}
	before.Settles(kit.Limit)
}

func clientOn(s *kit.Site, stack string, p pair) {
	t := s.T
	dir := kit.Dir(t)
	args := p.server(dir)
	server := kit.Start(t, s.Server.Command(args...))
	kind := "t"
	if p.udp {
		kind = "u"
	}
	up := kit.Within(kit.Limit, func() bool { return !server.Running() || s.Server.Listening(t, kind, p.port) })
	if out, errs := server.Output(); !up || !server.Running() {
		t.Fatalf("%s does not listen on port %d:\n%s%s", strings.Join(args, " "), p.port, out, errs)
	}
	p.client(&client{T: t, addr: kit.ServerAddr, dir: dir, tmp: kit.Dir(t), in: func(args ...string) *exec.Cmd {
		return onStack(s, stack, args...)
	}})
	if t.Failed() {
		out, errs := server.Output()
		t.Logf("the server said:\n%s%s", out, errs)
	}
	if server.Running() {
		server.Signal(unix.SIGTERM)
		kit.Within(kit.Limit, func() bool { return !server.Running() })
	}
	for _, pid := range strings.Fields(kit.Host.Run(t, "ip", "netns", "pids", s.Server.Name)) { // including its children
		_ = exec.Command("kill", "-9", pid).Run() // it may have ended already
	}
}

// onStack runs a target on the tap, with a name of its own. The stack may be inside the
// target.
func onStack(s *kit.Site, stack string, args ...string) *exec.Cmd {
	stack, engine, ok := strings.Cut(stack, "+")
	if !ok {
		engine = "supervise"
	}
	return kit.Lklrun(append([]string{"--name", kit.NewName(), "--engine", engine, "--stack", stack, "--if", s.TapIf(), "--"}, args...)...)
}

// A running is a program that serves on a stack.
type running struct {
	t    *testing.T
	name string
	proc *kit.Proc
}

// serveOn starts the server of a pair on a stack and waits until it listens.
func serveOn(s *kit.Site, stack string, p pair, dir string) *running {
	s.T.Helper()
	r := startOn(s, stack, p.server(dir)...)
	r.listens(p.port)
	return r
}

// startOn starts a program on the tap, with the given stack.
func startOn(s *kit.Site, stack string, args ...string) *running {
	s.T.Helper()
	cmd := onStack(s, stack, args...)
	return &running{t: s.T, name: cmd.Args[2], proc: kit.Start(s.T, cmd)}
}

// listens waits until the stack has a listening socket on port. It asks the stack
// instead of connecting, because some servers accept only one connection.
func (r *running) listens(port int) {
	r.t.Helper()
	up := kit.Within(kit.Limit, func() bool { return !r.proc.Running() || kit.StackListens(r.t, r.name, port) })
	if out, errs := r.proc.Output(); !up || !r.proc.Running() {
		r.t.Fatalf("port %d is not served:\n%s%s", port, out, errs)
	}
	// The bridge detects the tap's carrier a little later, and drops earlier packets. A
	// lost datagram would not be repeated.
	kit.WaitFor(r.t, "the bridge to forward", kit.Limit, func() bool {
		return strings.TrimSpace(kit.ReadFile(r.t, "/sys/class/net/tap0/brport/state")) == "3" // BR_STATE_FORWARDING
	})
}

// held describes the resources that lklhost holds for the program.
type held struct {
	sockets int64 // in the stack
	files   int   // own descriptors, except those for the program's living threads and cached names of remote peers
	heapKB  int   // resident memory, except the stack's own
	values  int   // of the account, which has some for each process
}

func (r *running) held() held {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
	defer cancel()
	c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", r.name, "ctl.sock"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	stats, err := c.Stats(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	h := held{heapKB: kit.HeapKB(r.t, int(c.Hello().HostPID)), values: len(stats)}
	for _, x := range stats {
		switch x.Name {
		case "sockets.open":
			h.sockets = x.Value
		case "sockets.peers":
			h.files -= int(x.Value)
		}
	}
	proc := fmt.Sprintf("/proc/%d/", c.Hello().HostPID)
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		// Do not count a descriptor that has been closed meanwhile.
		name, err := os.Readlink(proc + "fd/" + f.Name())
		if err != nil {
			continue
		}
		info, _ := os.ReadFile(proc + "fdinfo/" + f.Name())
		if !strings.Contains(name, "pidfd") || strings.Contains(string(info), "\nPid:\t-1\n") {
			h.files++
		}
	}
	return h
}

// fewFiles is the number of descriptors that lklhost may keep for reuse: some unbound
// sockets, a pipe, and one for each process that has just ended.
const fewFiles = 12

// keepsNothing checks that lklhost holds as few resources after use as before. use creates far
// more than fewFiles connections if it can.
func (r *running) keepsNothing(use func()) {
	r.t.Helper()
	before := r.held()
	use()
	var after held
	if !kit.Within(kit.Limit, func() bool {
		after = r.held()
		return after.sockets <= before.sockets && after.files <= before.files+fewFiles
	}) {
		r.t.Errorf("the stack host holds %+v, before the clients %+v\n%s", after, before, kit.Lklctl(r.t, "-n", r.name, "netstat"))
	}
}

// standing reports whether the servers run for PROGRAMS_SECONDS (make standing).
func standing(t *testing.T) bool { return kit.Setting(t, "PROGRAMS_SECONDS", 0) > 0 }

// stacks lists the stacks of a test. A standing server has one.
func stacks(t *testing.T) []string {
	if standing(t) {
		return []string{"mptcp"}
	}
	return []string{"mptcp", "vanilla"}
}

// stands repeats the checks of a server for as long as `make standing` says. Only two servers are
// checked at a time, because the checks have time limits. After the first rounds, which fill
// caches, lklhost must have no more sockets, files and memory than before.
func (r *running) stands(use func()) {
	r.t.Helper()
	if !standing(r.t) {
		return
	}
	turn, err := os.OpenFile(fmt.Sprintf("%s/build/standing.%d", kit.Root(), os.Getppid()%2), os.O_RDWR|os.O_CREATE, 0o600)
	kit.Must(r.t, err)
	defer turn.Close()
	const first, moreKB = 5, 8 << 10
	var before, after held
	end := time.Now().Add(time.Duration(kit.Setting(r.t, "PROGRAMS_SECONDS", 0)) * time.Second)
	for n := 1; n <= first || time.Now().Before(end); n++ {
		kit.Must(r.t, unix.Flock(int(turn.Fd()), unix.LOCK_EX))
		start := time.Now()
		use()
		took := time.Since(start)
		kit.Must(r.t, unix.Flock(int(turn.Fd()), unix.LOCK_UN))
		settled := kit.Within(kit.Limit, func() bool {
			after = r.held()
			return n <= first || after.sockets <= before.sockets && after.files <= before.files+fewFiles && after.heapKB <= before.heapKB+moreKB
		})
		r.t.Logf("round %d, %.1f s: %+v", n, took.Seconds(), after)
		if n == first {
			before = after
		}
		if !settled {
			r.t.Errorf("the stack host holds %+v, after %d rounds %+v", after, first, before)
		}
		if r.t.Failed() {
			return
		}
	}
}
