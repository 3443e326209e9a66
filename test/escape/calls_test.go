// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestFinding02ForeignMemory checks a process that gets the process id of another one,
// which was killed in the middle of a call. The memory of the new process must not
// change.
func TestFinding02ForeignMemory(t *testing.T) {
	s := kit.NewSite(t)
	fs := kit.NewStallFS(t)
	script := kit.TestData("finding02.py")
	r := kit.Run(t, kit.Limit, s.OnTap("/usr/bin/python3", script, fs.Dir))
	if r.Status != 0 || r.Stdout != "untouched\n" {
		t.Errorf("%v", r)
	}
}

// buildC compiles a program of testdata.
func buildC(t *testing.T, name string, flags ...string) string {
	t.Helper()
	kit.Need(t, "gcc")
	program := filepath.Join(kit.Dir(t), filepath.Base(name))
	source := kit.TestData(name + ".c")
	if out, err := exec.Command("gcc", append(flags, "-O2", "-Wall", "-Werror", "-pthread", "-o", program, source)...).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v\n%s", source, err, out)
	}
	return program
}

// TestFilterRoom checks that each engine's filter fits, and that the target ends before
// its command if the filter does not.
func TestFilterRoom(t *testing.T) {
	for flag, want := range map[string]syscall.Signal{"-DNDEBUG": 0, "-DMAX_INSNS=60": syscall.SIGABRT} {
		program := buildC(t, "../../../csrc/tests/filter", flag, "-I"+filepath.Join(kit.Root(), "csrc"))
		for _, engine := range []string{"supervise", "trace", "preload"} {
			if r := kit.Run(t, kit.Limit, exec.Command(program, engine)); r.Signal != want || r.Status > 0 && want == 0 {
				t.Errorf("%s %s: %v, want signal %d", flag, engine, r, want)
			}
		}
	}
}

// visits counts the clients that reach an address of the host, by UDP and TCP. It
// returns the port.
func visits(t *testing.T, address string, n *atomic.Int64) int {
	t.Helper()
	l := kit.Host.Listen(t, address+":0")
	port := l.Addr().(*net.TCPAddr).Port
	var udp net.PacketConn
	kit.Host.Do(t, func() (err error) {
		udp, err = net.ListenPacket("udp", fmt.Sprintf("%s:%d", address, port))
		return err
	})
	t.Cleanup(func() { _ = udp.Close() }) // another close is not an error
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener is closed: the test has ended
			}
			n.Add(1)
			_ = c.Close() // the connection is only counted
		}
	}()
	go func() {
		for buf := make([]byte, 100); ; n.Add(1) {
			if _, _, err := udp.ReadFrom(buf); err != nil {
				return // see above
			}
		}
	}()
	return port
}

// TestFinding03HostNet checks that a socket with a destination of --host-net cannot reach
// another destination. It tries a second message, an unknown address family, and an
// address that changes during the call.
func TestFinding03HostNet(t *testing.T) {
	s := kit.NewSite(t)
	program := buildC(t, "finding03")
	for _, way := range []string{"udp", "tcp", "unspec", "mmsg", "options"} {
		t.Run(way, func(t *testing.T) {
			var good, bad atomic.Int64
			chosen, forbidden := visits(t, "127.0.0.1", &good), visits(t, "127.0.0.2", &bad)
			r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "--host-net", fmt.Sprintf("127.0.0.1:%d", chosen), "--",
				program, way, "127.0.0.1", fmt.Sprint(chosen), "127.0.0.2", fmt.Sprint(forbidden)))
			if r.Status != 0 || r.Stdout != "done\n" {
				t.Errorf("%v", r)
			}
			if good.Load() == 0 {
				t.Error("nothing came to the chosen destination")
			}
			if n := bad.Load(); n > 0 {
				t.Errorf("%d times the host's network took the program elsewhere", n)
			}
		})
	}
}

// sendsSockets waits at path for the program in the run, and sends it socket descriptors.
func sendsSockets(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // another close is not an error
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = unix.Close(inet), r.Close(), w.Close() }) // another close is not an error
	pipe := int(r.Fd())
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return // the listener is closed: the test has ended
		}
		defer c.Close()
		for _, m := range []struct {
			text string
			fds  []int
		}{
			{"three", []int{pipe, inet, pipe}},
			{"one", []int{pipe}},
			{"a", []int{pipe}},
			{"b", []int{inet}},
			{"c", []int{pipe}},
			{fmt.Sprint(os.Getpid()), nil},
		} {
			var rights []byte
			if m.fds != nil {
				rights = unix.UnixRights(m.fds...)
			}
			if _, _, err := c.WriteMsgUnix([]byte(m.text), rights, nil); err != nil {
				return // the program reports missing descriptors
			}
		}
		_, _ = c.Read(make([]byte, 1)) // until the program ends
	}()
}

// TestFinding08HostSocket checks that a socket of the host's network is refused if
// another process sends it into the run, or if a program copies it from a process
// outside. The run's account reports it.
func TestFinding08HostSocket(t *testing.T) {
	s := kit.NewSite(t)
	path := filepath.Join(kit.Dir(t), "sender")
	sendsSockets(t, path)
	script := kit.TestData("finding08.py")
	r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "-v", "--require", "stack", "--",
		"sh", "-c", fmt.Sprintf("%s dial %s:1; exec /usr/bin/python3 %s %s", kit.Probe(), kit.ServerAddr, script, path)))
	const want = "three pipe,pipe 8\none pipe 0\nseveral a pipe 0\nseveral b  8\nseveral c pipe 0\n" +
		"taking: Operation not permitted\nown child: pipe\n"
	if !strings.HasSuffix(r.Stdout, want) {
		t.Errorf("%v\nwant %q", r, want)
	}
	for _, line := range []string{
		"a socket of the host's network, received from another process, is refused",
		"--require stack: ",
		"was refused 63 sockets of the host's network that it received from outside the run",
	} {
		if n := strings.Count(r.Stderr, line); n != 1 {
			t.Errorf("%q: %d times in\n%s", line, n, r.Stderr)
		}
	}
	if r.Status != 123 {
		t.Errorf("status %d, want 123", r.Status)
	}
}

// TestFinding14StalledPage checks memory whose page a file system or a userfaultfd does
// not deliver, and a file whose attributes it does not. It must stop neither other programs of the run nor lklctl.
func TestFinding14StalledPage(t *testing.T) {
	s := kit.NewSite(t)
	port := s.Server.EchoTCP(t, kit.ServerAddr+":0")
	script := kit.TestData("finding14.py")
	for _, test := range []string{"fuse/supervise", "attributes/supervise", "attributes/trace", "userfaultfd/supervise", "userfaultfd/trace", "later/supervise", "exec/supervise", "epoll/supervise", "epoll/trace"} {
		how, engine, _ := strings.Cut(test, "/")
		t.Run(test, func(t *testing.T) {
			where := "-"
			if how == "fuse" || how == "attributes" {
				where = kit.NewStallFS(t).Dir
			}
			name := kit.NewName()
			cmd := kit.Lklrun("--name", name, "--engine", engine, "--if", s.TapIf(), "--", "/usr/bin/python3", script, how, where, kit.ServerAddr, fmt.Sprint(port))
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			p := kit.Start(t, cmd)
			kit.WaitFor(t, "the stalled call", kit.Limit, func() bool { out, _ := p.Output(); return out != "" || !p.Running() })
			for _, verb := range [][]string{{"list"}, {"netstat", "--name", name}} {
				kit.Lklctl(t, verb...)
			}
			kit.WaitFor(t, "the transfer", kit.Limit, func() bool { out, _ := p.Output(); return strings.Contains(out, "transferred") || !p.Running() })
			if how == "fuse" { // lklhost's thread ends only when the read ends, like any other thread
				_, _ = os.Stat(filepath.Join(where, "release")) // a lookup of this name releases the read
			}
			_ = in.Close() // no longer needed
			r := p.Wait(kit.Limit)
			end, limits := "killed", "1000 ms"
			switch how {
			case "attributes":
				end, limits = "0", ""
			case "exec":
				limits = "1000 ms 1000 ms"
			}
			if asked := strings.ReplaceAll(r.Stdout, "asking\nasking", "asking"); r.Status != 0 || asked != "asking\ntransferred, the other "+end+"\n" {
				t.Errorf("%v", r)
			}
			var got []string
			for _, m := range regexp.MustCompile(`a page of its memory was not available within (\d+ ms) for .*(?:getsockname|connect)\(\)`).FindAllStringSubmatch(r.Stderr, -1) {
				got = append(got, m[1])
			}
			if strings.Join(got, " ") != limits {
				t.Errorf("limits %q, want %q: %s", got, limits, r.Stderr)
			}
		})
	}
}

// freezer makes a cgroup that can be frozen, and returns its folder; "-" without cgroup v2.
func freezer(t *testing.T) string {
	root := kit.Dir(t)
	if unix.Mount("none", root, "cgroup2", 0, "") != nil {
		return "-"
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	dir := filepath.Join(root, fmt.Sprint("lklrun-test-", os.Getpid()))
	if os.Mkdir(dir, 0o755) != nil {
		return "-"
	}
	t.Cleanup(func() { kit.WaitFor(t, "the end of "+dir, kit.Limit, func() bool { return os.Remove(dir) == nil }) })
	return dir
}

// TestBlocked checks calls that wait for something which the program blocks until another
// process has made 100 round trips: these go on meanwhile, and each call has its effect once.
// With the engine preload, no process waits for another one.
func TestBlocked(t *testing.T) {
	s := kit.NewSite(t)
	port := s.Server.EchoTCP(t, kit.ServerAddr+":0")
	for _, engine := range []string{"supervise", "trace"} {
		t.Run(engine, func(t *testing.T) {
			r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--if", s.TapIf(), "--",
				"/usr/bin/python3", kit.TestData("blocked.py"), kit.ServerAddr, fmt.Sprint(port), engine, freezer(t)))
			worst, done := strings.CutPrefix(r.Stdout, "done ")
			if r.Status != 0 || !done || strings.Contains(r.Stderr, "killed") {
				t.Errorf("%v", r)
			}
			t.Logf("longest round trips of the other process: %s", worst)
		})
	}
}
