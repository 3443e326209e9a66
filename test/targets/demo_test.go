// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// demo is the command line of `make demo`; env are further variables.
func demo(env ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(kit.Root(), "test", "demo.sh"))
	cmd.Env = append(cmd.Environ(), env...)
	// Use a separate process group, like a foreground job of a terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// TestDemo runs the demo, which checks its results itself.
func TestDemo(t *testing.T) {
	kit.NewSite(t)
	before := kit.Take(t)
	r := kit.Run(t, 2*time.Minute, demo())
	if r.Status != 0 {
		t.Errorf("make demo: %v", r)
	}
	t.Log(r.Stdout)
	before.Same()
}

// TestDemoWires runs only the demo's network, with the host kernel's own MPTCP as the
// client.
func TestDemoWires(t *testing.T) {
	kit.Need(t, "ip", "tc", "nginx", "mptcpize", "curl", "nstat", "nft")
	before := kit.Take(t)
	if r := kit.Run(t, 2*time.Minute, demo("DEMO_CLIENT=host")); r.Status != 0 {
		t.Errorf("make demo, host client: %v", r)
	}
	before.Same()
}

// TestDemoInterrupted checks that Ctrl-C leaves nothing behind, at any time.
func TestDemoInterrupted(t *testing.T) {
	kit.NewSite(t)
	before := kit.Take(t)
	for _, after := range []string{"Two links", "lklctl"} {
		p := kit.Start(t, demo())
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
