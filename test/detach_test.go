// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	testutil "github.com/lklrun/lklrun/test/kit"
)

// daemonNginx writes the configuration of an nginx that daemonizes. It returns the
// command line and a function that removes its files.
func (s *site) daemonNginx() (args []string, tidy func()) {
	s.t.Helper()
	dir := testutil.Dir(s.t)
	args = testutil.Nginx{Root: s.dir, Workers: 2}.Config(s.t, dir)
	conf := args[len(args)-1]
	text, err := os.ReadFile(conf)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte(strings.Replace(string(text), "daemon off;", "daemon on;", 1)), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return args, func() {
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	}
}

// fetch makes the server's side fetch a page from the stack.
func (s *site) fetch() string {
	s.t.Helper()
	return s.server.Run(s.t, "curl", "-s", "--retry", "50", "--retry-connrefused", "--retry-delay", "1", "http://"+stackAddr+"/hello")
}

// TestDetach checks that a daemon that forks runs in the background until it is told to
// stop. lklrun prints the name, and lklctl works on it.
func TestDetach(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	name := s.name()
	nginx, tidy := s.daemonNginx()
	// The test would wait for a pipe that a background process still holds open.
	r := testutil.Run(t, limit, lklrun(append([]string{"--detach", "--name", name, "--if", s.tapIf(), "--"}, nginx...)...))
	if r.Status != 0 || r.Stdout != name+"\n" || r.Stderr != "" {
		t.Fatalf("%v", r)
	}
	if out := s.fetch(); out != "hello\n" {
		t.Errorf("the daemon says %q", out)
	}
	if list := lklctl(t, "list"); !strings.Contains(list, name) {
		t.Errorf("it is not listed:\n%s", list)
	}
	if out := testutil.OK(t, limit, exec.Command(testutil.Bin("lklctl"), "exec", "-n", name, "--", "curl", "-sS", "http://127.0.0.1/hello")); out != "hello\n" {
		t.Errorf("lklctl exec: %q", out)
	}
	// The first process has ended with 0 long ago, which is the run's status.
	wait := testutil.Start(t, exec.Command(testutil.Bin("lklctl"), "wait", "-n", name))
	lklctl(t, "stop", "-n", name)
	if w := wait.Wait(limit); w.Status != 0 && !strings.Contains(w.Stderr, name) { // it may have stopped before wait asked
		t.Errorf("lklctl wait: %v", w)
	}
	tidy()
	before.Same()
}

// TestDetachWait checks that lklctl wait ends with the program's status.
func TestDetachWait(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	for script, want := range map[string]int{"read x <fifo; exit 7": 7, "read x <fifo; kill -TERM $$": 128 + int(unix.SIGTERM)} {
		dir, name := testutil.Dir(t), s.name()
		fifo := filepath.Join(dir, "fifo")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(dir, "log")
		cmd := lklrun("--detach", "--log", log, "--name", name, "--if", s.tapIf(), "--", "sh", "-c", "echo out; echo err >&2; cat; "+script)
		cmd.Dir = dir
		if r := testutil.Run(t, limit, cmd); r.Status != 0 || r.Stdout != name+"\n" {
			t.Fatalf("%v", r)
		}
		wait := testutil.Start(t, exec.Command(testutil.Bin("lklctl"), "wait", "-n", name))
		watchers := regexp.MustCompile(`control\.watchers +2\n`) // lklrun is one of them
		testutil.WaitFor(t, "lklctl wait's subscription", limit, func() bool {
			return watchers.MatchString(lklctl(t, "-n", name, "counters", "control.watchers"))
		})
		if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
		if r := wait.Wait(limit); status(r) != want || r.Stderr != "" {
			t.Errorf("%s: lklctl wait: %v, want %d", script, r, want)
		}
		text, err := os.ReadFile(log)
		if err != nil || string(text) != "out\nerr\n" {
			t.Errorf("the log: %q (%v)", text, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	before.Same()
}

// TestDetachFails checks that an error that prevents the command from running is
// reported at the terminal, and that nothing remains.
func TestDetachFails(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	for want, args := range map[int][]string{
		127: {"--", "no-such-command-here"},
		126: {"--", "/etc/passwd"},
		2:   {"--log", "/no/such/folder/file", "--", "true"},
	} {
		r := testutil.Run(t, limit, lklrun(append([]string{"--detach", "--name", s.name(), "--if", s.tapIf()}, args...)...))
		if r.Status != want || r.Stdout != "" || len(lines(r.Stderr)) != 1 || !strings.HasPrefix(r.Stderr, "lklrun: ") {
			t.Errorf("%q: %v, want %d", args, r, want)
		}
	}
	// An error that only the stack can detect.
	r := testutil.Run(t, limit, lklrun("--detach", "--if", s.tapIf(), "--sysctl", "net.no.such=1", "--", "true"))
	if r.Status != 2 || len(lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "net.no.such") {
		t.Errorf("a sysctl that is not there: %v", r)
	}
	if r := testutil.Run(t, limit, lklrun("--log", "x", "--", "true")); r.Status != 2 || !strings.Contains(r.Stderr, "--detach") {
		t.Errorf("--log alone: %v", r)
	}
	before.Same()
}

// TestWaitAll checks that without --wait-all, the run ends with its first process and
// ends the daemon. With --wait-all the daemon continues, and ends when lklrun is told
// to end.
func TestWaitAll(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	nginx, tidy := s.daemonNginx()
	if r := testutil.Run(t, limit, s.onTap(nginx...)); r.Status != 0 {
		t.Errorf("without: %v", r)
	}
	tidy()
	before.Same()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		nginx, tidy := s.daemonNginx()
		p := testutil.Start(t, lklrun(append([]string{"--wait-all", "--name", s.name(), "--if", s.tapIf(), "--"}, nginx...)...))
		if out := s.fetch(); out != "hello\n" {
			t.Errorf("the daemon says %q", out)
		}
		p.Signal(sig)
		if r := p.Wait(limit); sig != unix.SIGKILL && (r.Status != 0 || r.Signal != 0) {
			t.Errorf("signal %d: %v, want the first process's status 0", sig, r)
		}
		tidy()
		before.Settles(limit)
	}
	// With --wait-all, the run ends with its last process and returns the status of the
	// first one.
	r := testutil.Run(t, limit, lklrun("--wait-all", "--name", s.name(), "--if", s.tapIf(), "--", "sh", "-c", "(exec 2>/dev/null; setsid sh -c 'while kill -0 '$$'; do :; done; echo last') & exit 5"))
	if r.Status != 5 || r.Stdout != "last\n" {
		t.Errorf("a last process: %v", r)
	}
	before.Same()
}

// TestDetachKilled checks that nothing is left after lklrun is killed in the
// background, as in the foreground.
func TestDetachKilled(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	nginx, tidy := s.daemonNginx()
	testutil.OK(t, limit, lklrun(append([]string{"--detach", "--name", s.name(), "--if", s.tapIf(), "--"}, nginx...)...))
	pids, err := exec.Command("pgrep", "-f", "lklrun --detached").Output()
	if err != nil {
		t.Fatalf("pgrep: %v", err)
	}
	for _, pid := range strings.Fields(string(pids)) {
		testutil.Host.Run(t, "kill", "-9", pid)
	}
	tidy()
	before.Settles(limit)
}
