// SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// exchange is a program whose child, in another process, is the client of its server. The
// child has closed all descriptors that it did not open, and changes its root if it may.
const exchange = `
import os, signal, socket
signal.signal(signal.SIGUSR1, lambda *_: print("signal"))
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen()
name = l.getsockname()
if not os.fork():
    os.closerange(3, 1024)
    if not os.getuid():
        os.chroot("/proc")
    c = socket.socket()
    c.connect(name)
    c.sendall(b"from the child")
    os._exit(0)
s, _ = l.accept()
print(s.recv(100).decode(), s.fileno())
os.wait()
os.kill(os.getpid(), signal.SIGUSR1)
`

// hideNotification makes cmd run as on a kernel without seccomp user notification.
func hideNotification(cmd *exec.Cmd, lacks ...string) *exec.Cmd {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "LKLRUN_TEST_LACKS="+strings.Join(append(lacks, "notify"), ","))
	return cmd
}

// TestTrace runs programs with the engine trace as root and as an ordinary user.
func TestTrace(t *testing.T) {
	kit.Need(t, "gcc", "/usr/bin/python3")
	bin := kit.PublicBin(t)
	for _, who := range []string{"root", "user"} {
		run := func(t *testing.T, args ...string) kit.Result {
			cmd := exec.Command(filepath.Join(bin, "lklrun"), append([]string{"-q", "--stack", "vanilla"}, args...)...)
			if who == "user" {
				kit.AsUser(cmd, "")
			}
			return kit.Run(t, kit.Limit, hideNotification(cmd))
		}
		t.Run(who+"/children", func(t *testing.T) {
			r := run(t, "--engine", "trace", "--", "/usr/bin/python3", "-c", exchange)
			if r.Status != 0 || r.Stdout != "from the child 4\nsignal\n" || r.Stderr != "" {
				t.Errorf("%v", r)
			}
		})
		t.Run(who+"/status", func(t *testing.T) {
			if r := run(t, "--engine", "trace", "--", "sh", "-c", "(exit 3); echo $?; kill -TERM $$"); r.Stdout != "3\n" || r.Signal != syscall.SIGTERM {
				t.Errorf("%v", r)
			}
		})
		t.Run(who+"/untraced", func(t *testing.T) {
			r := run(t, "--engine", "trace", "--", compile(t, "untraced"))
			if want := "untraced: Operation not permitted\nclone3: Function not implemented\nlistener: Device or resource busy\nptrace: Operation not permitted\nparent: socket: Success\n"; r.Stdout != want || !strings.Contains(r.Stderr, "ptrace is refused") {
				t.Errorf("%v, want %q", r, want)
			}
		})
		t.Run(who+"/crowd", func(t *testing.T) {
			if r := run(t, "--engine", "trace", "--", compile(t, "crowd")); r.Stdout != "300 300 300 300 of 300\n" || r.Stderr != "" {
				t.Errorf("%v", r)
			}
		})
		t.Run(who+"/supervise", func(t *testing.T) {
			if r := run(t, "--engine", "supervise", "--", "true"); r.Status != 2 || !strings.Contains(r.Stderr, "no seccomp user notification") {
				t.Errorf("%v", r)
			}
		})
	}
}

// TestTraceFilter checks that lklrun notices a seccomp filter that refuses listeners.
func TestTraceFilter(t *testing.T) {
	kit.Need(t, "gcc", "/usr/bin/python3")
	lklrun := func(args ...string) *exec.Cmd {
		return exec.Command("/usr/bin/python3", append([]string{"-c", kit.NoListener, kit.Bin("lklrun")}, args...)...)
	}
	if plan := kit.OK(t, kit.Limit, lklrun("--dry-run", "--", compile(t, "untraced"))); !strings.Contains(plan, "engine    trace\n") {
		t.Errorf("the plan:\n%s", plan)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, lklrun("--engine", "supervise", "--", "true")), 2, "no seccomp user notification.*SECCOMP_FILTER_FLAG_NEW_LISTENER")
}

// TestTraceConformance checks that the tests of CPython that pass on the host's own sockets
// also pass with the engine trace, without seccomp user notification. Kernels before 5.6
// lack pidfd_getfd as well.
func TestTraceConformance(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "unshare", "ip")
	bin := kit.PublicBin(t)
	shared := kit.Dir(t)
	kit.Must(t, os.Chmod(shared, 0o777))
	runner := filepath.Join(shared, "runner.py")
	kit.WriteFile(t, runner, kit.ReadFile(t, filepath.Join(kit.Root(), "test", "conformance", "python", "runner.py")))
	report := func(who string) string { return filepath.Join(shared, strings.ReplaceAll(who, " ", "-")) }
	t.Run("each", func(t *testing.T) {
		for _, who := range []string{"natively", "root", "user", "without pidfd_getfd"} {
			tests := kit.CPython{Runner: runner, Report: report(who)}
			cmd := exec.Command("sh", "-c", tests.Natively())
			if who != "natively" {
				args := []string{"-c", kit.NoListener, filepath.Join(bin, "lklrun"), "--engine", "trace", "--stack", "vanilla", "--"}
				cmd = exec.Command("/usr/bin/python3", append(args, tests.Args()...)...)
			}
			switch who {
			case "user":
				kit.AsUser(cmd, "")
			case "without pidfd_getfd":
				cmd.Env = append(os.Environ(), "LKLRUN_TEST_LACKS=pidfd-getfd")
			}
			cmd.Dir = shared
			t.Run(who, func(t *testing.T) {
				t.Parallel() // they mostly wait
				r := kit.Run(t, 4*time.Minute, cmd)
				if r.Status != 0 {
					t.Fatalf("%v", r)
				}
				kit.WriteFile(t, tests.Report+".errors", r.Stderr)
			})
		}
	})
	results := func(who string) kit.CPythonResults { return kit.ReadCPython(kit.ReadFile(t, report(who))) }
	for _, who := range []string{"root", "user", "without pidfd_getfd"} {
		passed, lost := results(who).Lost(results("natively"), who != "user")
		if len(lost) != 0 || passed < 200 {
			t.Errorf("%s: %d pass; these pass only on the host's own sockets:\n%s\n%s", who, passed, strings.Join(lost, "\n"), kit.ReadFile(t, report(who)+".errors"))
		}
	}
}

// compile compiles a program of testdata as a static program in a folder of its own.
func compile(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(kit.Dir(t), name)
	kit.OK(t, kit.Limit, exec.Command("gcc", "-static", "-pthread", "-O2", "-Wall", "-Werror", "-o", program, kit.TestData(name+".c")))
	return program
}

// TestTraceAuto checks that lklrun chooses the engine trace for a program that the engine
// preload cannot run.
func TestTraceAuto(t *testing.T) {
	kit.Need(t, "gcc")
	program := compile(t, "untraced")
	lklrun := func(args ...string) *exec.Cmd {
		return hideNotification(exec.Command(kit.Bin("lklrun"), args...))
	}
	if plan := kit.OK(t, kit.Limit, lklrun("--dry-run", "--", program)); !strings.Contains(plan, "engine    trace\n") {
		t.Errorf("the plan:\n%s", plan)
	}
	if plan := kit.OK(t, kit.Limit, lklrun("--dry-run", "--", "/bin/true")); !strings.Contains(plan, "engine    preload\n") {
		t.Errorf("the plan of a dynamic program:\n%s", plan)
	}
	if r := kit.Run(t, kit.Limit, lklrun("--", program)); !strings.Contains(r.Stderr, "the engine trace catches") || !strings.Contains(r.Stdout, "parent: socket: Success\n") {
		t.Errorf("%v", r)
	}
	if found := kit.OK(t, kit.Limit, lklrun("doctor", program)); !strings.Contains(found, "trace: this host supports ptrace and seccomp filters") {
		t.Errorf("lklrun doctor:\n%s", found)
	}
}
