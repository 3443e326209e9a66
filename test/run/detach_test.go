// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// daemonNginx writes the configuration of an nginx that daemonizes. It returns the
// command line and a function that removes its files.
func daemonNginx(s *kit.Site) (args []string, tidy func()) {
	s.T.Helper()
	dir := kit.Dir(s.T)
	args = kit.Nginx{Root: s.Dir, Workers: 2}.Config(s.T, dir)
	conf := args[len(args)-1]
	text, err := os.ReadFile(conf)
	if err != nil {
		s.T.Fatal(err)
	}
	kit.WriteFile(s.T, conf, strings.Replace(string(text), "daemon off;", "daemon on;", 1))
	return args, func() {
		if err := os.RemoveAll(dir); err != nil {
			s.T.Error(err)
		}
	}
}

// fetchHello makes the server's side fetch a page from the stack.
func fetchHello(s *kit.Site) string {
	s.T.Helper()
	return s.Server.Run(s.T, "curl", "-s", "--retry", "50", "--retry-connrefused", "--retry-delay", "1", "http://"+kit.StackAddr+"/hello")
}

// TestDetach checks that a daemon that forks runs in the background until it is stopped.
// lklrun prints the run's name, and lklctl accepts that name.
func TestDetach(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	name := kit.NewName()
	nginx, tidy := daemonNginx(s)
	// If a background process kept the output pipe open, Run would wait for it.
	r := kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"--detach", "--name", name, "--if", s.TapIf(), "--"}, nginx...)...))
	if r.Status != 0 || r.Stdout != name+"\n" || r.Stderr != "" {
		t.Fatalf("%v", r)
	}
	if out := fetchHello(s); out != "hello\n" {
		t.Errorf("the daemon says %q", out)
	}
	if list := kit.Lklctl(t, "list"); !strings.Contains(list, name) {
		t.Errorf("it is not listed:\n%s", list)
	}
	if out := kit.OK(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "exec", "-n", name, "--", "curl", "-sS", "http://127.0.0.1/hello")); out != "hello\n" {
		t.Errorf("lklctl exec: %q", out)
	}
	// The first process exited long ago. Its status, 0, is the status of the run.
	wait := kit.Start(t, exec.Command(kit.Bin("lklctl"), "wait", "-n", name))
	kit.Lklctl(t, "stop", "-n", name)
	if w := wait.Wait(kit.Limit); w.Status != 0 && !strings.Contains(w.Stderr, name) { // the run may have stopped before lklctl wait connected
		t.Errorf("lklctl wait: %v", w)
	}
	tidy()
	kit.Forget(t, name)
	before.Same()
}

// TestDetachWait checks that lklctl wait ends with the program's status.
func TestDetachWait(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for script, want := range map[string]int{"read x <fifo; exit 7": 7, "read x <fifo; kill -TERM $$": 128 + int(unix.SIGTERM)} {
		dir, name := kit.Dir(t), kit.NewName()
		fifo := filepath.Join(dir, "fifo")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(dir, "log")
		cmd := kit.Lklrun("--detach", "--log", log, "--name", name, "--if", s.TapIf(), "--", "sh", "-c", "echo out; echo err >&2; cat; "+script)
		cmd.Dir = dir
		if r := kit.Run(t, kit.Limit, cmd); r.Status != 0 || r.Stdout != name+"\n" {
			t.Fatalf("%v", r)
		}
		wait := kit.Start(t, exec.Command(kit.Bin("lklctl"), "wait", "-n", name))
		watchers := regexp.MustCompile(`control\.watchers +2\n`) // lklrun is one of them
		kit.WaitFor(t, "lklctl wait's subscription", kit.Limit, func() bool {
			return watchers.MatchString(kit.Lklctl(t, "-n", name, "counters", "control.watchers"))
		})
		if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
		if r := wait.Wait(kit.Limit); kit.ShellStatus(r) != want || r.Stderr != "" {
			t.Errorf("%s: lklctl wait: %v, want %d", script, r, want)
		}
		text, err := os.ReadFile(log)
		if err != nil || string(text) != "out\nerr\n" {
			t.Errorf("the log: %q (%v)", text, err)
		}
		if out := kit.Lklctl(t, "logs", name); out != "out\nerr\n" {
			t.Errorf("lklctl logs: %q", out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		kit.Forget(t, name)
	}
	before.Same()
}

// TestDetachFails checks that an error that prevents the command from running is
// reported at the terminal, and that nothing remains.
func TestDetachFails(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for want, args := range map[int][]string{
		127: {"--", "no-such-command-here"},
		126: {"--", "/etc/passwd"},
		2:   {"--log", "/no/such/folder/file", "--", "true"},
	} {
		r := kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"--detach", "--name", kit.NewName(), "--if", s.TapIf()}, args...)...))
		if r.Status != want || r.Stdout != "" || len(kit.Lines(r.Stderr)) != 1 || !strings.HasPrefix(r.Stderr, "lklrun: ") {
			t.Errorf("%q: %v, want %d", args, r, want)
		}
	}
	// An error that only the stack can detect.
	r := kit.Run(t, kit.Limit, kit.Lklrun("--detach", "--if", s.TapIf(), "--sysctl", "net.no.such=1", "--", "true"))
	if r.Status != 2 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "net.no.such") {
		t.Errorf("a sysctl that is not there: %v", r)
	}
	if r := kit.Run(t, kit.Limit, kit.Lklrun("--log", "x", "--", "true")); r.Status != 2 || !strings.Contains(r.Stderr, "--detach") {
		t.Errorf("--log alone: %v", r)
	}
	before.Same()
}

// TestWaitAll checks --wait-all. Without it, the run ends with its first process and ends
// the daemon. With it, the daemon continues until lklrun is told to end.
func TestWaitAll(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	nginx, tidy := daemonNginx(s)
	if r := kit.Run(t, kit.Limit, s.OnTap(nginx...)); r.Status != 0 {
		t.Errorf("without: %v", r)
	}
	tidy()
	before.Same()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		nginx, tidy := daemonNginx(s)
		p := kit.Start(t, kit.Lklrun(append([]string{"--wait-all", "--name", kit.NewName(), "--if", s.TapIf(), "--"}, nginx...)...))
		if out := fetchHello(s); out != "hello\n" {
			t.Errorf("the daemon says %q", out)
		}
		p.Signal(sig)
		if r := p.Wait(kit.Limit); sig != unix.SIGKILL && (r.Status != 0 || r.Signal != 0) {
			t.Errorf("signal %d: %v, want the first process's status 0", sig, r)
		}
		tidy()
		before.Settles(kit.Limit)
	}
	// With --wait-all, the run ends with its last process and returns the status of the
	// first one.
	r := kit.Run(t, kit.Limit, kit.Lklrun("--wait-all", "--name", kit.NewName(), "--if", s.TapIf(), "--", "sh", "-c", "(exec 2>/dev/null; setsid sh -c 'while kill -0 '$$'; do :; done; echo last') & exit 5"))
	if r.Status != 5 || r.Stdout != "last\n" {
		t.Errorf("a last process: %v", r)
	}
	before.Same()
}

// TestDetachKilled checks that nothing is left after lklrun is killed in the
// background, as in the foreground.
func TestDetachKilled(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	nginx, tidy := daemonNginx(s)
	name := kit.NewName()
	kit.OK(t, kit.Limit, kit.Lklrun(append([]string{"--detach", "--name", name, "--if", s.TapIf(), "--"}, nginx...)...))
	pids, err := exec.Command("pgrep", "-f", "lklrun --detached").Output()
	if err != nil {
		t.Fatalf("pgrep: %v", err)
	}
	for _, pid := range strings.Fields(string(pids)) {
		kit.Host.Run(t, "kill", "-9", pid)
	}
	tidy()
	var r kit.Result
	kit.WaitFor(t, "the record of the run", kit.Limit, func() bool {
		r = kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "wait", name))
		return strings.Contains(r.Stderr, "lklrun was killed")
	})
	if r.Status != 125 || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("lklctl wait: %v", r)
	}
	kit.Forget(t, name)
	before.Settles(kit.Limit)
}

// TestEndedRun checks the record of a run in the background: its status, its output, and
// its deletion.
func TestEndedRun(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	name := kit.NewName()
	lklctl := func(args ...string) kit.Result {
		t.Helper()
		return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), args...))
	}
	run := func(script string) {
		t.Helper()
		r := kit.Run(t, kit.Limit, kit.Lklrun("-q", "--detach", "--name", name, "--", "sh", "-c", script))
		if r.Status != 0 || r.Stdout != name+"\n" || r.Stderr != "" {
			t.Fatalf("%s: %v", script, r)
		}
	}
	// The program may end before lklrun does.
	run("echo boom >&2; exit 3")
	if r := lklctl("wait", name); r.Status != 3 || r.Stderr != "" {
		t.Errorf("wait: %v", r)
	}
	if r := lklctl("logs", "-f", name); r.Status != 0 || r.Stdout != "boom\n" {
		t.Errorf("logs: %v", r)
	}
	if r := lklctl("list"); r.Stdout != "" {
		t.Errorf("list without -a: %v", r)
	}
	if r := lklctl("list", "-a"); !strings.Contains(r.Stdout, "exit 3") || !strings.Contains(r.Stdout, "echo boom") {
		t.Errorf("list -a: %v", r)
	}
	if r := lklctl("-n", name, "netstat"); r.Status != 3 || r.Stderr != fmt.Sprintf("lklctl: instance %q has ended (exit 3); see lklctl logs %[1]s\n", name) {
		t.Errorf("netstat: %v", r)
	}
	if r := kit.Run(t, kit.Limit, kit.Lklrun("cleanup")); r.Status != 0 || r.Stdout != "" {
		t.Errorf("lklrun cleanup considers the record a leftover: %v", r)
	}
	st, err := os.Stat("/run/lklrun/.ended/" + name)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the record: %v, %v", st, err)
	}

	// A run of the same name replaces it. logs -f follows until the end of the run.
	dir := kit.Dir(t)
	fifo := filepath.Join(dir, "fifo")
	kit.Must(t, unix.Mkfifo(fifo, 0o600))
	run("echo first; cat " + fifo + "; kill -TERM $$")
	if r := lklctl("rm", name); r.Status != 2 || !strings.Contains(r.Stderr, "is running; stop it") {
		t.Errorf("rm of a running instance: %v", r)
	}
	if r := lklctl("logs", name); r.Stdout != "first\n" {
		t.Errorf("logs of a running instance: %v", r)
	}
	follow := kit.Start(t, exec.Command(kit.Bin("lklctl"), "logs", "-f", name))
	kit.WaitFor(t, "the first line", kit.Limit, func() bool {
		out, _ := follow.Output()
		return out == "first\n"
	})
	kit.Must(t, os.WriteFile(fifo, []byte("second\nthird\n"), 0))
	if r := follow.Wait(kit.Limit); r.Status != 0 || r.Stdout != "first\nsecond\nthird\n" {
		t.Errorf("logs -f: %v", r)
	}
	if r := lklctl("logs", "--tail", "2", name); r.Stdout != "second\nthird\n" {
		t.Errorf("logs --tail: %v", r)
	}
	if r := lklctl("wait", name, "--json"); r.Signal != unix.SIGTERM || !strings.Contains(r.Stdout, `"signal": 15`) {
		t.Errorf("wait: %v", r)
	}

	// The end of a long output remains.
	run("yes | head -c 20000000; echo last")
	if r := lklctl("wait", name); r.Status != 0 {
		t.Errorf("wait: %v", r)
	}
	if r := lklctl("logs", name); len(r.Stdout) != 1<<20 || !strings.HasSuffix(r.Stdout, "y\nlast\n") {
		t.Errorf("logs: %d bytes that end with %q", len(r.Stdout), r.Stdout[max(len(r.Stdout)-20, 0):])
	}
	kit.Forget(t, name)
	if r := lklctl("rm", name); r.Status != 1 || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("rm of nothing: %v", r)
	}
	kit.Must(t, os.RemoveAll(dir))
	before.Same()
}
