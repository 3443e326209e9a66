// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestRefusedByTheStack checks values that only the stack can refuse, after it has
// started. The target must not start, and all changes must be undone.
func TestRefusedByTheStack(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for names, args := range map[string][]string{
		`no_such_thing=1: the stack has no such setting`: {"--sysctl", "net.ipv4.no_such_thing=1"},
		`tcp_ecn=0.*did you mean net.ipv4.tcp_ecn`:       {"--sysctl", "tcp_ecn=0"},
		`tcp_congestion_control=steam.*refused`:          {"--sysctl", "net.ipv4.tcp_congestion_control=steam"},
		`kernel.osrelease=1.*not writable`:               {"--sysctl", "kernel.osrelease=1"},
		// This gateway is the stack's own address.
		`tap:new0 \(eth1\).*fd73::10: .*[Gg]ateway`: {"--if", "tap:new0,ip6=fd73::11/64,gw6=" + kit.StackAddr6},
	} {
		args = append([]string{"--if", s.TapIf()}, append(args, "--", "echo", "released")...)
		kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun(args...)), 2, names)
		before.Same()
	}
}

// TestBrokenLibrary checks a file that is not a library, and a library for another
// machine.
func TestBrokenLibrary(t *testing.T) {
	s := kit.NewSite(t)
	dir := kit.Dir(t)
	kit.Host.Run(t, "cp", kit.Bin("stacks/vanilla/stack.json"), dir)
	library := filepath.Join(dir, "liblkl.so")
	before := func() *kit.Inventory { return kit.Take(t, s.Server) }

	inv := before()
	kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun("--stack", dir, "--", "true")), 2, "liblkl.so")
	inv.Same()
	if err := os.WriteFile(library, []byte("not a library"), 0o755); err != nil {
		t.Fatal(err)
	}
	inv = before()
	r := kit.Run(t, kit.Limit, kit.Lklrun("--stack", dir, "--", "true"))
	kit.OneLine(t, r, 2, "liblkl.so")
	inv.Same()
	// This library is not a stack.
	libc := strings.Fields(kit.Host.Run(t, "sh", "-c", "ldd /usr/bin/curl | grep libz.so"))[2]
	kit.Host.Run(t, "cp", libc, library)
	inv = before()
	r = kit.Run(t, kit.Limit, kit.Lklrun("--stack", dir, "--", "true"))
	kit.OneLine(t, r, 2, "liblkl.so")
	inv.Same()
}

// TestTapInUse checks a tap that another run has open, and a device that is not a tap.
func TestTapInUse(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	before := kit.Take(t, s.Server)
	r := kit.Run(t, kit.Limit, kit.Lklrun("--if", "tap:tap0,ip=10.73.0.11/24", "--", "true"))
	kit.OneLine(t, r, 2, "tap0")
	r = kit.Run(t, kit.Limit, kit.Lklrun("--if", "tap:v0,ip=10.73.0.11/24", "--", "true"))
	kit.OneLine(t, r, 2, "v0")
	before.Same()
	k.End()
}

// TestTapCreated checks that a tap that lklrun creates is removed afterwards. An existing
// tap stays. Every other test checks this with the tap of NewSite.
func TestTapCreated(t *testing.T) {
	kit.NewSite(t)
	before := kit.Take(t)
	r := kit.Run(t, kit.Limit, kit.Lklrun("--if", "tap:new0,ip=10.75.0.1/24", "--", "sh", "-c", "ls /proc/sys/net/ipv4/conf; exit 3"))
	if r.Status != 3 {
		t.Errorf("with a new tap: %v", r)
	}
	before.Same()
}

// TestDryRunWithoutRights checks that an ordinary user can print the plan of a run that
// this user may not start. The missing rights are lines of the plan.
func TestDryRunWithoutRights(t *testing.T) {
	t.Parallel()
	kit.Need(t)
	bin := kit.PublicBin(t)
	for args, want := range map[string][]string{
		"--if tap:new0,ip=10.75.0.1/24":  {"create tap new0", `--if "tap:new0,ip=10.75.0.1/24": `},
		"--if tap:new0,nat":              {"masquerade", "CAP_NET_ADMIN is required"},
		"--if raw:lo0":                   nil,
		"--user root":                    {"user      root", "--user root (0:0): only root can run a command as another user"},
		"--if tap:new0,bridge=nonesuch0": nil,
	} {
		r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(bin+"/lklrun", append(strings.Fields("--dry-run "+args), "--", "true")...), ""))
		if want == nil { // a device that does not exist is not about rights
			kit.OneLine(t, r, 2, "--if")
			continue
		}
		lacks := strings.Contains(r.Stdout, "\nlacks ")
		for _, w := range want {
			lacks = lacks && strings.Contains(r.Stdout, w)
		}
		if r.Status != 0 || r.Stderr != "" || !lacks {
			t.Errorf("%s, want %q: %v", args, want, r)
		}
	}
}

// TestDryRun checks that --dry-run prints the plan and changes nothing.
func TestDryRun(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	r := kit.Run(t, kit.Limit, kit.Lklrun("--dry-run", "--stack", "mptcp", "--if", "tap:new0,ip=10.75.0.1/24,gw=10.75.0.254", "--", "touch", "/tmp/released"))
	if r.Status != 0 || !strings.Contains(r.Stdout, "new0") || !strings.Contains(r.Stdout, "10.75.0.1/24") {
		t.Errorf("--dry-run: %v", r)
	}
	before.Same()
}

// TestKilled kills each process of a run in turn, with each engine. The others end and clean
// up: within seconds, no device, namespace, process, rule or file is left.
func TestKilled(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		for who, want := range map[string]int{"pid": 137, "host_pid": 125, "target_pid": 137} {
			t.Run(engine+", "+who, func(t *testing.T) {
				s := kit.NewSite(t)
				s.Web(kit.Nginx{})
				before := kit.Take(t, s.Server)
				// tap0 exists before the run and must stay; the run creates new0. The target
				// has a child, and a descendant in another session.
				k := s.Talk("--engine", engine, "--if", s.TapIf(), "--if", "tap:new0,ip=10.75.0.1/24")
				k.Say(`__import__("subprocess").Popen(["sleep", "1000"]).pid`)
				k.Say(`__import__("subprocess").Popen(["setsid", "sh", "-c", "sleep 1000 & sleep 1000"]).pid`)
				k.Connect("c", kit.ServerAddr, 80)
				if err := unix.Kill(kit.ProcessOf(t, k, who), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				r := k.Proc.Wait(kit.Limit)
				if kit.ShellStatus(r) != want {
					t.Errorf("want status %d: %v", want, r)
				}
				if said := kit.Lines(r.Stderr); want == 125 && (len(said) != 1 || !strings.HasPrefix(said[0], "lklrun:")) || want != 125 && r.Stderr != "" {
					t.Errorf("standard error: %v", r)
				}
				if who == "pid" || engine == "preload" {
					before.Settles(kit.Limit) // lklhost cleans up in the background
				} else {
					before.Same()
				}
			})
		}
	}
}

// TestStoppedHost checks a stopped lklhost, which answers no requests. The user can
// still end the run without delay, whatever the target is waiting for.
func TestStoppedHost(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--if", s.TapIf())
	k.Say(`keep.__setitem__("p", __import__("subprocess").Popen(["sh", "-c", "while :; do cat /proc/net/tcp; ip addr; done >/dev/null 2>&1"]).pid)`)
	kit.Pause(t, kit.ProcessOf(t, k, "host_pid"), kit.Limit)
	k.Proc.Signal(unix.SIGTERM)
	r := k.Proc.Wait(kit.Limit)
	if said := kit.Lines(r.Stderr); r.Status != 125 || len(said) != 1 || !strings.Contains(said[0], "does not answer") {
		t.Errorf("want one line and 125: %v", r)
	}
	before.Same()
}

// TestCleanupVerb kills all three at once. No process is left to clean up, so `lklrun
// cleanup` does.
func TestCleanupVerb(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--if", "tap:new0,ip=10.75.0.1/24")
	k.Say("1")
	k.KillAll() // lklhost may still be running, and hold the lock
	if got := kit.OK(t, kit.Limit, kit.Lklrun("cleanup")); got != k.Name+": cleaned up\n" {
		t.Errorf("cleanup says %q", got)
	}
	before.Settles(kit.Limit)
	kit.OK(t, kit.Limit, kit.Lklrun("cleanup")) // without leftovers, cleanup succeeds
}

// TestCleanupSparesTheLiving checks that cleanup does not touch resources in use.
func TestCleanupSparesTheLiving(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", "tap:new0,ip=10.75.0.1/24")
	k.Say("1")
	before := kit.Take(t, s.Server)
	if r := kit.Run(t, kit.Limit, kit.Lklrun("cleanup")); r.Status != 0 || r.Stdout != "" || !strings.HasPrefix(r.Stderr, "lklrun: "+k.Name+": is running (pid ") {
		t.Errorf("beside one that runs: %v", r)
	}
	before.Same()
	if got := k.Say("2"); got != "2" {
		t.Errorf("after cleanup the run says %q", got)
	}
	k.End()
}

// TestRuntimeDir checks a runtime directory that cannot be used: lklrun prints one line
// and does nothing.
func TestRuntimeDir(t *testing.T) {
	kit.NewSite(t)
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	before := kit.Take(t)
	for _, runtime := range []string{dir, dir + "/none", "/dev/null", "/" + strings.Repeat("x", 120)} {
		cmd := kit.AsUser(exec.Command(filepath.Join(bin, "lklrun"), "--", "echo", "released"), runtime)
		kit.OneLine(t, kit.Run(t, kit.Limit, cmd), 2, "set XDG_RUNTIME_DIR to")
	}
	before.Same()
}

// TestFullDisk checks a full disk under the run directory.
func TestFullDisk(t *testing.T) {
	s := kit.NewSite(t)
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
			before := kit.Take(t, s.Server)
			r := kit.Run(t, kit.Limit, kit.Lklrun("--if", "tap:new0,ip=10.75.0.1/24", "--", "echo", "released"))
			kit.OneLine(t, r, max(r.Status, 1), "no space left")
			before.Same()
		})
	}
	t.Run("full while it runs", func(t *testing.T) {
		mount(t, "/run/lklrun", "1m")
		before := kit.Take(t, s.Server)
		k := s.In(t).Talk("--if", "tap:new0,ip=10.75.0.1/24")
		k.Say("1")
		_ = exec.Command("cp", "/dev/zero", "/run/lklrun/full").Run() // ends when the disk is full
		kit.Lklctl(t, "-n", k.Name, "sysctl", "-w", "net.ipv4.ip_default_ttl=63")
		if r := k.End(); r.Status != 0 {
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
	kit.Host.Run(t, "mount", "-n", "-t", "tmpfs", "-o", "size="+size+",mode=755", "small", dir)
	t.Cleanup(func() {
		kit.Host.Run(t, "umount", "-n", dir)
		_ = os.Remove(dir) // fails if it existed before and has content
	})
}

// TestInterruptedStart checks, with each engine, that SIGTERM in the middle of the start undoes
// everything done so far. After SIGKILL, lklhost does so if it already runs, otherwise the next
// `lklrun cleanup`.
func TestInterruptedStart(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for i := range 80 {
		engine, sig := []string{"supervise", "preload"}[i%2], []unix.Signal{unix.SIGTERM, unix.SIGTERM, unix.SIGKILL, unix.SIGKILL}[i%4]
		p := kit.Start(t, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--if", s.TapIf(), "--if", "tap:new0,ip=10.75.0.1/24", "--", "sleep", "60"))
		kit.Spread(i / 2)
		p.Signal(sig)
		if r := p.Wait(kit.Limit); r.Status == 0 {
			t.Errorf("%v", r)
		}
		if sig == unix.SIGKILL {
			kit.Within(5*time.Second, func() bool { return len(before.Left()) == 0 })
			kit.OK(t, kit.Limit, kit.Lklrun("cleanup"))
		}
		before.Settles(kit.Limit)
		if t.Failed() {
			t.Fatalf("%s, %v, moment %d of the start", engine, sig, i/2)
		}
	}
}

// TestNameReused checks that leftovers of a killed run do not prevent a new run with
// the same name.
func TestNameReused(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	dir := "/run/lklrun/again"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lock": "", "state.json": "{", "journal": "", "ctl.sock": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := kit.Run(t, kit.Limit, kit.Lklrun("--name", "again", "--if", s.TapIf(), "--", "echo", "well"))
	if r.Stdout != "well\n" {
		t.Errorf("over a leftover: %v", r)
	}
	kit.OK(t, kit.Limit, kit.Lklrun("cleanup"))
	before.Same()
}

// TestManyRuns checks that many short parallel runs, each with a name that lklrun
// chose, leave nothing behind.
func TestManyRuns(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	var procs []*kit.Proc
	for i := range 12 {
		procs = append(procs, kit.Start(t, kit.Lklrun("--if", "user", "--", "sh", "-c", fmt.Sprintf("echo %d", i))))
	}
	for i, p := range procs {
		if r := p.Wait(kit.Limit); r.Stdout != fmt.Sprintf("%d\n", i) {
			t.Errorf("run %d: %v", i, r)
		}
	}
	before.Same()
}
