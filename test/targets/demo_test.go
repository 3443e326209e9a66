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
	cmd := exec.Command(filepath.Join(testutil.Root(), "test", "demo.sh"))
	cmd.Env = append(cmd.Environ(), env...)
	// A process group of its own, like a foreground job of a terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// TestDemo runs the demo, which checks its own promises.
func TestDemo(t *testing.T) {
	testutil.NewSite(t)
	before := testutil.Take(t)
	r := testutil.Run(t, 2*time.Minute, demo())
	if r.Status != 0 {
		t.Errorf("make demo: %v", r)
	}
	t.Log(r.Stdout)
	before.Same()
}

// TestDemoWires runs the wires alone, with the host kernel's own MPTCP as the client.
func TestDemoWires(t *testing.T) {
	testutil.Need(t, "ip", "tc", "nginx", "mptcpize", "curl", "nstat", "nft")
	before := testutil.Take(t)
	if r := testutil.Run(t, 2*time.Minute, demo("DEMO_CLIENT=host")); r.Status != 0 {
		t.Errorf("make demo, host client: %v", r)
	}
	before.Same()
}

// TestDemoInterrupted checks that Ctrl-C leaves nothing behind, at any time.
func TestDemoInterrupted(t *testing.T) {
	testutil.NewSite(t)
	before := testutil.Take(t)
	for _, after := range []string{"Two links", "lklctl"} {
		p := testutil.Start(t, demo())
		testutil.WaitFor(t, after, time.Minute, func() bool {
			out, _ := p.Output()
			return strings.Contains(out, after) || !p.Running()
		})
		if err := unix.Kill(-p.Pid(), unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if r := p.Wait(testutil.Limit); r.Status != 130 {
			t.Errorf("Ctrl-C after %q: %v", after, r)
		}
		before.Settles(5 * time.Second)
	}
}
