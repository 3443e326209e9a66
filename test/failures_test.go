// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	testutil "github.com/lklrun/lklrun/test/kit"
)

// oneLine checks the output of a refused run: one line from lklrun that names the
// problem, and nothing on standard output.
func oneLine(t *testing.T, r testutil.Result, status int, names string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("want status %d: %v", status, r)
	}
	if r.Stdout != "" {
		t.Errorf("standard output is the target's own: %q", r.Stdout)
	}
	said := lines(r.Stderr)
	if len(said) != 1 || !regexp.MustCompile(names).MatchString(said[0]) || !strings.HasPrefix(said[0], "lklrun:") {
		t.Errorf("want one line of lklrun's about %s: %q", names, r.Stderr)
	}
}

// TestWrongInput checks that wrong input gives one line that names it and status 2,
// before anything is done.
func TestWrongInput(t *testing.T) {
	s := newSite(t)
	notAStack := testutil.Dir(t)
	broken := testutil.Dir(t)
	if err := os.WriteFile(filepath.Join(broken, "stack.json"), []byte(`{"name": `), 0o644); err != nil {
		t.Fatal(err)
	}
	before := testutil.Take(t, s.server)
	for _, tt := range []struct {
		names string
		args  []string
	}{
		{`nosuch.*(bbr|mptcp)`, []string{"--stack", "nosuch", "--", "true"}},
		{regexp.QuoteMeta(notAStack), []string{"--stack", notAStack, "--", "true"}},
		{`stack.json`, []string{"--stack", broken, "--", "true"}},
		{`veth:x`, []string{"--if", "veth:x", "--", "true"}},
		{`10\.0\.0\.300`, []string{"--if", "tap:tap0,ip=10.0.0.300/24", "--", "true"}},
		{`prefix`, []string{"--if", "tap:tap0,ip=10.0.0.3", "--", "true"}},
		{`addr`, []string{"--if", "tap:tap0,addr=1", "--", "true"}},
		{`mtu`, []string{"--if", "tap:tap0,mtu=1", "--", "true"}},
		{`15`, []string{"--if", "tap:a-name-too-long-for-linux", "--", "true"}},
		{`tap0`, []string{"--if", "tap:tap0", "--if", "tap:tap0", "--", "true"}},
		{`fd:77.*not open`, []string{"--if", "fd:77", "--", "true"}},
		{`fd:3.*not open`, []string{"--if", "fd:3", "--", "true"}},
		{`sysctl`, []string{"--sysctl", "nonsense", "--", "true"}},
		{`dns`, []string{"--dns", "not-an-address", "--", "true"}},
		{`mem`, []string{"--mem", "lots", "--", "true"}},
		{`name`, []string{"--name", "../x", "--", "true"}},
		{`engine`, []string{"--engine", "steam", "--", "true"}},
		{`no-such-flag`, []string{"--no-such-flag", "--", "true"}},
		{`command`, []string{}},
		{`command`, []string{"--if", "user", "--"}},
	} {
		oneLine(t, testutil.Run(t, limit, lklrun(tt.args...)), 2, tt.names)
		before.Same()
		if t.Failed() {
			t.Fatalf("lklrun %s", strings.Join(tt.args, " "))
		}
	}
}

// TestRefusedByTheStack checks values that only the stack can refuse, once it runs. The
// target is not released, and everything is undone.
func TestRefusedByTheStack(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	for names, args := range map[string][]string{
		`no_such_thing=1: the stack has no such setting`: {"--sysctl", "net.ipv4.no_such_thing=1"},
		`tcp_congestion_control=steam.*refused`:          {"--sysctl", "net.ipv4.tcp_congestion_control=steam"},
		`kernel.osrelease=1.*cannot be written`:          {"--sysctl", "kernel.osrelease=1"},
		// Its gateway is the stack's own address.
		`tap:new0 \(eth1\).*fd73::10: .*[Gg]ateway`: {"--if", "tap:new0,ip6=fd73::11/64,gw6=" + stackAddr6},
	} {
		args = append([]string{"--if", s.tapIf()}, append(args, "--", "echo", "released")...)
		oneLine(t, testutil.Run(t, limit, lklrun(args...)), 2, names)
		before.Same()
	}
}

// TestBrokenLibrary checks a file that is not a library, or is for another machine.
func TestBrokenLibrary(t *testing.T) {
	s := newSite(t)
	dir := testutil.Dir(t)
	testutil.Host.Run(t, "cp", testutil.Bin("stacks/vanilla/stack.json"), dir)
	library := filepath.Join(dir, "liblkl.so")
	before := func() *testutil.Inventory { return testutil.Take(t, s.server) }

	inv := before()
	oneLine(t, testutil.Run(t, limit, lklrun("--stack", dir, "--", "true")), 2, "liblkl.so")
	inv.Same()
	if err := os.WriteFile(library, []byte("not a library"), 0o755); err != nil {
		t.Fatal(err)
	}
	inv = before()
	r := testutil.Run(t, limit, lklrun("--stack", dir, "--", "true"))
	oneLine(t, r, 2, "liblkl.so")
	inv.Same()
	// A library that is not a stack.
	libc := strings.Fields(testutil.Host.Run(t, "sh", "-c", "ldd /usr/bin/curl | grep libz.so"))[2]
	testutil.Host.Run(t, "cp", libc, library)
	inv = before()
	r = testutil.Run(t, limit, lklrun("--stack", dir, "--", "true"))
	oneLine(t, r, 2, "liblkl.so")
	inv.Same()
}

// TestOneName starts two runs with one name: the second is refused, the first
// continues.
func TestOneName(t *testing.T) {
	s := newSite(t)
	k := s.talk("--if", s.tapIf())
	k.say("1")
	before := testutil.Take(t, s.server)
	oneLine(t, testutil.Run(t, limit, lklrun("--name", k.name, "--if", "user", "--", "true")), 2, k.name)
	before.Same()
	if got := k.say("2"); got != "2" {
		t.Errorf("the first run says %q", got)
	}
	k.end()
}

// TestTapInUse checks a tap that another run has open, and a device that is not a tap.
func TestTapInUse(t *testing.T) {
	s := newSite(t)
	k := s.talk("--if", s.tapIf())
	k.say("1")
	before := testutil.Take(t, s.server)
	r := testutil.Run(t, limit, lklrun("--if", "tap:tap0,ip=10.73.0.11/24", "--", "true"))
	oneLine(t, r, 2, "tap0")
	r = testutil.Run(t, limit, lklrun("--if", "tap:v0,ip=10.73.0.11/24", "--", "true"))
	oneLine(t, r, 2, "v0")
	before.Same()
	k.end()
}

// TestTapWithoutRoot checks a tap that the user may not create.
func TestTapWithoutRoot(t *testing.T) {
	newSite(t)
	bin := testutil.PublicBin(t)
	before := testutil.Take(t)
	r := testutil.Run(t, limit, testutil.AsUser(exec.Command(bin+"/lklrun", "--if", "tap:new0,ip=10.0.0.1/24", "--", "true"), ""))
	oneLine(t, r, 2, "new0")
	before.Same()
}

// TestTapCreated checks that a tap that lklrun creates is removed afterwards. An
// existing one stays, as newSite's does in every other test.
func TestTapCreated(t *testing.T) {
	newSite(t)
	before := testutil.Take(t)
	r := testutil.Run(t, limit, lklrun("--if", "tap:new0,ip=10.75.0.1/24", "--", "sh", "-c", "ls /proc/sys/net/ipv4/conf; exit 3"))
	if r.Status != 3 {
		t.Errorf("with a new tap: %v", r)
	}
	before.Same()
}

// TestDryRun checks that --dry-run prints the plan and changes nothing.
func TestDryRun(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	r := testutil.Run(t, limit, lklrun("--dry-run", "--stack", "mptcp", "--if", "tap:new0,ip=10.75.0.1/24,gw=10.75.0.254", "--", "touch", "/tmp/released"))
	if r.Status != 0 || !strings.Contains(r.Stdout, "new0") || !strings.Contains(r.Stdout, "10.75.0.1/24") {
		t.Errorf("--dry-run: %v", r)
	}
	before.Same()
}

// processOf returns the process id that lklctl list prints under key.
func processOf(t *testing.T, k *talker, key string) int {
	t.Helper()
	return processIn(t, lklctl(t, "-o", "json", "list"), k, key)
}

// processIn finds it in the output of lklctl list.
func processIn(t *testing.T, text string, k *talker, key string) int {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i["name"] == k.name {
			if pid, ok := i[key].(float64); ok && pid > 1 {
				return int(pid)
			}
		}
	}
	t.Fatalf("lklctl list does not tell %s of %s: %v", key, k.name, list)
	return 0
}

// TestKilled kills each process of a run in turn. The others end and clean up: within
// seconds, no device, namespace, process, rule or file is left.
func TestKilled(t *testing.T) {
	for _, tt := range []struct {
		who   string
		check func(t *testing.T, r testutil.Result)
	}{
		{"pid", func(t *testing.T, r testutil.Result) {
			if r.Signal != unix.SIGKILL {
				t.Errorf("the killed lklrun: %v", r)
			}
		}},
		{"host_pid", func(t *testing.T, r testutil.Result) {
			if r.Status <= 0 || r.Status > 125 {
				t.Errorf("lklrun without its stack host should end with a status of its own: %v", r)
			}
			if said := lines(r.Stderr); len(said) != 1 || !strings.HasPrefix(said[0], "lklrun:") {
				t.Errorf("not one clear line: %q", r.Stderr)
			}
		}},
		{"target_pid", func(t *testing.T, r testutil.Result) {
			if status(r) != 137 || r.Stderr != "" {
				t.Errorf("the target's own end, 137 without a word: %v", r)
			}
		}},
	} {
		t.Run(tt.who, func(t *testing.T) {
			s := newSite(t)
			s.web(testutil.Nginx{})
			before := testutil.Take(t, s.server)
			// tap0 exists before the run and stays; the run creates new0. The target
			// has a child, and a descendant in another session.
			k := s.talk("--if", s.tapIf(), "--if", "tap:new0,ip=10.75.0.1/24")
			k.say(`__import__("subprocess").Popen(["sleep", "1000"]).pid`)
			k.say(`__import__("subprocess").Popen(["setsid", "sh", "-c", "sleep 1000 & sleep 1000"]).pid`)
			k.connect("c", serverAddr, 80)
			if err := unix.Kill(processOf(t, k, tt.who), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			tt.check(t, k.proc.Wait(limit))
			if tt.who == "pid" {
				before.Settles(limit) // lklhost cleans up, and no process waits for it
			} else {
				before.Same()
			}
		})
	}
}

// TestStoppedHost checks a stopped lklhost, which answers no requests. The user can
// still end the run without delay, whatever the target is waiting for.
func TestStoppedHost(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	k := s.talk("--if", s.tapIf())
	k.say(`keep.__setitem__("p", __import__("subprocess").Popen(["sh", "-c", "while :; do cat /proc/net/tcp; ip addr; done >/dev/null 2>&1"]).pid)`)
	testutil.Pause(t, processOf(t, k, "host_pid"), limit)
	k.proc.Signal(unix.SIGTERM)
	r := k.proc.Wait(limit)
	if said := lines(r.Stderr); r.Status != 125 || len(said) != 1 || !strings.Contains(said[0], "does not answer") {
		t.Errorf("want one line and 125: %v", r)
	}
	before.Same()
}

// killAll kills lklrun, lklhost and the target, and returns their process ids.
func (k *talker) killAll() []int {
	k.t.Helper()
	pids := []int{processOf(k.t, k, "pid"), processOf(k.t, k, "host_pid"), processOf(k.t, k, "target_pid")}
	for _, pid := range pids { // stop them first, so that none sees the end of another
		testutil.Pause(k.t, pid, limit)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			k.t.Fatal(err)
		}
	}
	k.proc.Wait(limit)
	return pids
}

// TestCleanupVerb kills all three at once. No process is left to clean up, so `lklrun
// cleanup` does.
func TestCleanupVerb(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	k := s.talk("--if", "tap:new0,ip=10.75.0.1/24")
	k.say("1")
	k.killAll() // lklhost may still be ending, and hold the lock
	if got := testutil.OK(t, limit, lklrun("cleanup")); got != k.name+": cleaned up\n" {
		t.Errorf("cleanup says %q", got)
	}
	before.Settles(limit)
	testutil.OK(t, limit, lklrun("cleanup")) // with nothing to do, it succeeds
}

// TestCleanupSparesTheLiving checks that cleanup does not touch resources in use.
func TestCleanupSparesTheLiving(t *testing.T) {
	s := newSite(t)
	k := s.talk("--if", "tap:new0,ip=10.75.0.1/24")
	k.say("1")
	before := testutil.Take(t, s.server)
	if r := testutil.Run(t, limit, lklrun("cleanup")); r.Status != 0 || r.Stdout != "" || !strings.HasPrefix(r.Stderr, "lklrun: "+k.name+" runs (pid ") {
		t.Errorf("beside one that runs: %v", r)
	}
	before.Same()
	if got := k.say("2"); got != "2" {
		t.Errorf("after cleanup the run says %q", got)
	}
	k.end()
}

// TestPanic checks that a kernel panic in the stack ends the run with one line that
// quotes it.
func TestPanic(t *testing.T) {
	s := newSite(t)
	s.web(testutil.Nginx{})
	before := testutil.Take(t, s.server)
	k := s.talk("--if", s.tapIf(), "--if", "tap:new0,ip=10.75.0.1/24")
	k.connect("c", serverAddr, 80)
	crash(t, k)
	r := k.proc.Wait(limit)
	if r.Status <= 0 || r.Status > 125 {
		t.Errorf("a panic should end lklrun with a status of its own: %v", r)
	}
	if said := lines(r.Stderr); len(said) != 1 || !strings.HasPrefix(said[0], "lklrun:") || !strings.Contains(said[0], "panic") || !strings.Contains(said[0], "sysrq triggered crash") {
		t.Errorf("not one line that quotes the panic: %q", r.Stderr)
	}
	before.Same()
}

// crash makes the stack's kernel panic.
func crash(t *testing.T, k *talker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", k.name, "ctl.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Command c of sysrq-trigger crashes the kernel on purpose, see
	// Documentation/admin-guide/sysrq.rst. That kernel is the stack, so no answer
	// arrives.
	_ = c.WriteFile(ctx, "/proc/sysrq-trigger", []byte("c"))
}

// TestRuntimeDir checks a runtime directory that cannot be used: lklrun prints one line
// and does nothing.
func TestRuntimeDir(t *testing.T) {
	newSite(t)
	bin, dir := testutil.PublicBin(t), testutil.Dir(t)
	before := testutil.Take(t)
	for _, runtime := range []string{dir, dir + "/none", "/dev/null", "/" + strings.Repeat("x", 120)} {
		cmd := testutil.AsUser(exec.Command(filepath.Join(bin, "lklrun"), "--", "echo", "released"), runtime)
		oneLine(t, testutil.Run(t, limit, cmd), 2, "set XDG_RUNTIME_DIR to")
	}
	before.Same()
}

// TestFullDisk checks a full disk under the run directory.
func TestFullDisk(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		name string
		size string // of the file system
		fill bool
	}{{"no room at all", "64k", true}, {"room for the first file alone", "8k", false}} {
		t.Run(tt.name, func(t *testing.T) {
			mount(t, "/run/lklrun", tt.size)
			if tt.fill {
				// Nothing fits: cp ends with "No space left on device".
				if err := exec.Command("cp", "/dev/zero", "/run/lklrun/full").Run(); err == nil {
					t.Fatal("the file system did not fill up")
				}
			}
			before := testutil.Take(t, s.server)
			r := testutil.Run(t, limit, lklrun("--if", "tap:new0,ip=10.75.0.1/24", "--", "echo", "released"))
			oneLine(t, r, max(r.Status, 1), "no space left")
			before.Same()
		})
	}
	t.Run("full while it runs", func(t *testing.T) {
		mount(t, "/run/lklrun", "1m")
		before := testutil.Take(t, s.server)
		k := s.in(t).talk("--if", "tap:new0,ip=10.75.0.1/24")
		k.say("1")
		_ = exec.Command("cp", "/dev/zero", "/run/lklrun/full").Run() // ends when the disk is full
		lklctl(t, "-n", k.name, "sysctl", "-w", "net.ipv4.ip_default_ttl=63")
		if r := k.end(); r.Status != 0 {
			t.Errorf("the target's own end: %v", r)
		}
		if err := os.Remove("/run/lklrun/full"); err != nil {
			t.Fatal(err)
		}
		before.Same()
	})
}

// mount mounts a small file system at dir for the duration of the test.
func mount(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	testutil.Host.Run(t, "mount", "-n", "-t", "tmpfs", "-o", "size="+size+",mode=755", "small", dir)
	t.Cleanup(func() {
		testutil.Host.Run(t, "umount", "-n", dir)
		_ = os.Remove(dir) // fails if it existed before and has content
	})
}

// spread returns after a delay that depends on i, to hit different moments of a start.
// The delay is the purpose; it does not wait for an event.
func spread(i int) { time.Sleep(time.Duration(i) * 3 * time.Millisecond) }

// TestInterruptedStart checks that Ctrl-C or SIGTERM in the middle of the start undoes
// everything done so far.
func TestInterruptedStart(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	for i := range 40 {
		cmd := lklrun("--name", s.name(), "--if", s.tapIf(), "--if", "tap:new0,ip=10.75.0.1/24", "--", "sleep", "60")
		p := testutil.Start(t, cmd)
		spread(i)
		p.Signal(unix.SIGTERM)
		if r := p.Wait(limit); r.Status == 0 {
			t.Errorf("after %d ms: %v", i*3, r)
		}
		before.Same()
		if t.Failed() {
			t.Fatalf("SIGTERM %d ms after the start", i*3)
		}
	}
}

// TestKilledStart does the same with SIGKILL. lklhost undoes the changes if it already
// runs, otherwise the next `lklrun cleanup`.
func TestKilledStart(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	for i := range 20 {
		p := testutil.Start(t, lklrun("--name", s.name(), "--if", "tap:new0,ip=10.75.0.1/24", "--", "sleep", "60"))
		spread(2 * i)
		p.Signal(unix.SIGKILL)
		p.Wait(limit)
		testutil.Within(5*time.Second, func() bool { return len(before.Left()) == 0 })
		testutil.OK(t, limit, lklrun("cleanup"))
		before.Settles(limit)
		if t.Failed() {
			t.Fatalf("SIGKILL %d ms after the start", i*6)
		}
	}
}

// TestNameReused checks that leftovers of a killed run do not prevent a new run with
// the same name.
func TestNameReused(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	dir := "/run/lklrun/again"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lock": "", "state.json": "{", "journal": "", "ctl.sock": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := testutil.Run(t, limit, lklrun("--name", "again", "--if", s.tapIf(), "--", "echo", "well"))
	if r.Stdout != "well\n" {
		t.Errorf("over a leftover: %v", r)
	}
	testutil.OK(t, limit, lklrun("cleanup"))
	before.Same()
}

// TestManyRuns checks that many short parallel runs, each with a name that lklrun
// chose, leave nothing behind.
func TestManyRuns(t *testing.T) {
	s := newSite(t)
	before := testutil.Take(t, s.server)
	var procs []*testutil.Proc
	for i := range 12 {
		procs = append(procs, testutil.Start(t, lklrun("--if", "user", "--", "sh", "-c", fmt.Sprintf("echo %d", i))))
	}
	for i, p := range procs {
		if r := p.Wait(limit); r.Stdout != fmt.Sprintf("%d\n", i) {
			t.Errorf("run %d: %v", i, r)
		}
	}
	before.Same()
}
