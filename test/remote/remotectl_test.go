// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

// remoteLimit bounds one call over ssh.
const remoteLimit = 60 * time.Second

// A farRun is a run on a machine that is reached by ssh, with the desk's commands for
// it.
type farRun struct {
	t      *testing.T
	s      *kit.SSHServer
	target string
}

// desk runs one of the desk's commands for the run's machine.
func (f *farRun) desk(name string, args ...string) kit.Result {
	f.t.Helper()
	cmd := exec.Command(kit.Bin(name), args...)
	cmd.Env = append(f.s.Client.Env(), "LKLRUN_DEVICE="+f.target)
	return kit.Run(f.t, remoteLimit, cmd)
}

func (f *farRun) ok(name string, args ...string) string {
	f.t.Helper()
	r := f.desk(name, args...)
	if r.Status != 0 {
		f.t.Fatalf("%s %v: %+v", name, args, r)
	}
	return r.Stdout
}

// there runs lklctl on that machine itself, as the same user.
func (f *farRun) there(args ...string) kit.Result {
	f.t.Helper()
	return kit.Run(f.t, remoteLimit, exec.Command("nsenter", append([]string{"-t", f.pid(), "-m", "-p", "-n", "--", kit.Bin("lklctl")}, args...)...))
}

func (f *farRun) pid() string {
	return strings.TrimSpace(strings.Split(f.s.Path(""), "/")[2])
}

// server is a program of the run. It listens, and has a connection to itself.
const server = `import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 80)); s.listen()
c = socket.create_connection(("127.0.0.1", 80)); a, _ = s.accept()
c.send(b"hello"); print(a.recv(5), flush=True); time.sleep(600)`

func newFarRun(t *testing.T) *farRun {
	t.Helper()
	kit.Need(t, "ssh", "nsenter", "python3", kit.Bin("lklrun"), kit.Bin("lklctl"))
	s := kit.NewSSHD(t, kit.SSHD{})
	f := &farRun{t: t, s: s, target: s.Target(kit.SSHRoot)}
	if name := strings.TrimSpace(f.ok("lklrun", "--stay", "--name", "web", "--", "python3", "-c", server)); name != "web" {
		t.Fatalf("--stay prints %q", name)
	}
	t.Cleanup(func() { f.desk("lklctl", "-n", "web", "stop", "--grace", "1s") })
	kit.WaitFor(t, "the connection", 20*time.Second, func() bool {
		return strings.Contains(f.desk("lklctl", "netstat", "-t").Stdout, "ESTAB")
	})
	return f
}

// unsteady matches numbers that change from moment to moment, and the blanks that
// depend on their widths.
var unsteady = regexp.MustCompile(`[0-9][0-9.:]*(ms|us|s|%)?| +|-`)

// TestRemoteControl checks that every verb prints the same about a run on another machine
// as lklctl prints on that machine.
func TestRemoteControl(t *testing.T) {
	f := newFarRun(t)
	for _, args := range [][]string{
		{"list"}, {"netstat"}, {"netstat", "-p"}, {"netstat", "-o", "json"}, {"mptcp"}, {"mptcp", "limits"}, {"mptcp", "endpoint"},
		{"counters", "-z"}, {"account"}, {"lease"}, {"guard"}, {"dmesg"}, {"sysctl", "-a", "net.*"}, {"cat", "/proc/net/dev"},
		{"link"}, {"addr"}, {"path"},
	} {
		began := time.Now()
		far := f.desk("lklctl", args...)
		took := time.Since(began)
		near := f.there(args...)
		same := func(text string) string { return unsteady.ReplaceAllString(text, "#") }
		if far.Status != near.Status || same(far.Stdout) != same(near.Stdout) || same(far.Stderr) != same(near.Stderr) {
			t.Errorf("%v: far %d, near %d (-near +far):\n%s%s", args, far.Status, near.Status, cmp.Diff(near.Stdout, far.Stdout), cmp.Diff(near.Stderr, far.Stderr))
		}
		t.Logf("%v: %v", args, took.Round(time.Millisecond))
	}
	if text := f.ok("lklctl", "netstat", "-p"); !strings.Contains(text, "python3") || !strings.Contains(text, "fd=") {
		t.Errorf("whose the sockets are:\n%s", text)
	}
	if text := f.ok("lklctl", "top", "-b", "-c", "1", "-d", "0.2"); !strings.Contains(text, "python3") || strings.Count(text, "%") < 4 {
		t.Errorf("top, with the CPU time of the processes there:\n%s", text)
	}
	f.ok("lklctl", "sysctl", "-w", "net.ipv4.tcp_keepalive_time=77")
	if got := f.there("sysctl", "net.ipv4.tcp_keepalive_time").Stdout; got != "net.ipv4.tcp_keepalive_time = 77\n" {
		t.Errorf("a setting changed from afar: %q", got)
	}
	if r := f.desk("lklctl", "link", "add", "fd:9"); r.Status != 2 || !strings.Contains(r.Stderr, "descriptor of this machine") {
		t.Errorf("link add fd: %+v", r)
	}
	// lklctl stores the last shown values with the run.
	f.ok("lklctl", "counters", "-d")
	if r := f.desk("lklctl", "counters", "-d", "-o", "json"); r.Status > 1 || !json.Valid([]byte(r.Stdout)) {
		t.Errorf("counters -d: %+v", r)
	}
}

func TestRemoteExec(t *testing.T) {
	f := newFarRun(t)
	cmd := exec.Command(kit.Bin("lklctl"), "exec", "sh", "-c", "cat; cat /proc/net/tcp | wc -l; echo lost >&2; exit 7")
	cmd.Env = append(f.s.Client.Env(), "LKLRUN_DEVICE="+f.target)
	cmd.Stdin = strings.NewReader("typed\n")
	r := kit.Run(t, remoteLimit, cmd)
	if r.Status != 7 || !strings.HasPrefix(r.Stdout, "typed\n") || r.Stderr != "lost\n" {
		t.Errorf("%+v", r)
	}
	if got := f.ok("lklctl", "exec", "--", "python3", "-c", `import socket; c = socket.create_connection(("127.0.0.1", 80)); print(c.getpeername())`); got != "('127.0.0.1', 80)\n" {
		t.Errorf("a program there: %q", got)
	}
	if r := f.desk("lklctl", "exec", "nowhere"); r.Status != 127 || !strings.Contains(r.Stderr, "nowhere: no such file") {
		t.Errorf("%+v", r)
	}
	if r := f.desk("lklctl", "-n", "none", "exec", "true"); r.Status != 125 {
		t.Errorf("%+v", r)
	}
}

func TestRemoteFiles(t *testing.T) {
	f := newFarRun(t)
	dir := kit.Dir(t)
	to := filepath.Join(dir, "web.tar.gz")
	f.ok("lklctl", "bundle", "--to", to)
	parts := kit.OK(t, kit.Limit, exec.Command("tar", "tzf", to))
	for _, want := range []string{"plan.json", "journal", "log", "state.json", "sockets.json", "dmesg.txt"} {
		if !strings.Contains(parts, "/"+want+"\n") {
			t.Errorf("no %s in the bundle:\n%s", want, parts)
		}
	}
	// Capture packets on the other machine into a file on the desk.
	trace := filepath.Join(dir, "trace.pcapng")
	capture := exec.Command(kit.Bin("lklctl"), "capture", "-w", trace, "-c", "3")
	capture.Env = append(f.s.Client.Env(), "LKLRUN_DEVICE="+f.target)
	p := kit.Start(t, capture)
	kit.WaitFor(t, "packets", 30*time.Second, func() bool {
		f.desk("lklctl", "exec", "--", "python3", "-c", `import socket; socket.create_connection(("127.0.0.1", 80))`)
		return !p.Running()
	})
	if st, err := os.Stat(trace); err != nil || st.Size() < 500 {
		t.Errorf("the capture: %v, %v", st, err)
	}
}

// TestRemoteEnds checks that the verbs end when the run ends, and when the machine fails.
func TestRemoteEnds(t *testing.T) {
	f := newFarRun(t)
	if r := f.desk("lklctl", "-n", "web", "stop", "-s", "KILL"); r.Status != 0 {
		t.Errorf("stop: %+v", r)
	}
	if r := f.desk("lklctl", "netstat"); r.Status != 3 || !strings.Contains(r.Stderr, "no instance is running (looked on "+f.target+")") {
		t.Errorf("when none runs: %+v", r)
	}
	if name := f.ok("lklrun", "--stay", "--name", "short", "--", "sh", "-c", "sleep 2; exit 9"); name != "short\n" {
		t.Errorf("%q", name)
	}
	if r := f.desk("lklctl", "wait"); r.Status != 9 {
		t.Errorf("wait: %+v", r)
	}
	f.target = "ssh:root@127.0.0.1:1"
	if r := f.desk("lklctl", "list"); r.Status != 2 && r.Status != 125 || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("nobody there: %+v", r)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "lklctl-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
