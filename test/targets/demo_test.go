// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// demo returns the command line of `make demo` by an ordinary user.
func demo(t *testing.T) func() *exec.Cmd {
	bin := kit.PublicBin(t)
	folder := filepath.Dir(bin)
	script := filepath.Join(folder, "demo.sh")
	kit.Must(t, os.WriteFile(script, []byte(kit.ReadFile(t, filepath.Join(kit.Root(), "test", "demo.sh"))), 0o755))
	return func() *exec.Cmd {
		cmd := kit.AsUser(exec.Command(script), "")
		cmd.Env = append(cmd.Env, "LKLRUN_BIN="+bin)
		return inGroup(cmd)
	}
}

// inGroup gives a command its own process group, like a foreground job of a terminal.
func inGroup(cmd *exec.Cmd) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	return cmd
}

// TestDemo runs the demo as an ordinary user. It checks its results itself.
func TestDemo(t *testing.T) {
	kit.Need(t, "nginx", "curl", "ps")
	kit.NewSite(t)
	run := demo(t)
	before := kit.Take(t)
	r := kit.Run(t, 2*time.Minute, run())
	if r.Status != 0 {
		t.Errorf("make demo: %v", r)
	}
	t.Log(r.Stdout)
	before.Same()
}

// TestDemoInterrupted checks that Ctrl-C leaves nothing behind, at any time.
func TestDemoInterrupted(t *testing.T) {
	kit.NewSite(t)
	run := demo(t)
	before := kit.Take(t)
	for _, after := range []string{"Two paths", "lklctl mptcp", "lab set"} {
		p := kit.Start(t, run())
		kit.WaitFor(t, after, time.Minute, func() bool {
			out, _ := p.Output()
			return strings.Contains(out, after) || !p.Running()
		})
		if err := unix.Kill(-p.Pid(), unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(kit.Limit); r.Status != 130 {
			t.Errorf("Ctrl-C after %q: %v", after, r)
		}
		before.Settles(5 * time.Second)
	}
}

// TestInstall checks that the programs that `make install` installs run from there, as root
// and as an ordinary user.
func TestInstall(t *testing.T) {
	kit.Need(t, "make")
	dest := filepath.Dir(kit.PublicBin(t))
	kit.Host.Run(t, "make", "-s", "-C", kit.Root(), "install", "DESTDIR="+dest, "PREFIX=/opt/lklrun")
	installed := filepath.Join(dest, "opt/lklrun/bin/lklrun")
	for _, cmd := range []*exec.Cmd{exec.Command(installed, "lab", "--", "true"), kit.AsUser(exec.Command(installed, "lab", "--", "true"), "")} {
		if r := kit.Run(t, kit.Limit, cmd); r.Status != 0 || r.Stderr != "" {
			t.Errorf("%v: %v", cmd.Args, r)
		}
	}
}
