// SPDX-License-Identifier: Apache-2.0

package stress

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/works.py
var works string

// A hunt is a run whose target waits while the test starts other programs in the same
// run.
type hunt struct {
	*patient
	user bool
	bin  string
	env  string // XDG_RUNTIME_DIR of an ordinary user
	run  *kit.Proc
}

// newHunt starts an instance as root or as an ordinary user.
func newHunt(t *testing.T, user bool, flags ...string) *hunt {
	t.Helper()
	kit.Need(t, "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	h := &hunt{user: user, bin: filepath.Dir(kit.Bin("lklrun"))}
	dir := "/run/lklrun"
	if user {
		h.bin, h.env = kit.PublicBin(t), kit.Dir(t)
		kit.Host.Run(t, "chown", fmt.Sprint(kit.OrdinaryUID), h.env)
		dir = filepath.Join(h.env, "lklrun")
	}
	name := kit.NewName()
	// These settings limit how long TCP keeps a closed connection whose peer does not
	// answer.
	args := append([]string{"--name", name, "--sysctl", "net.ipv4.tcp_fin_timeout=1", "--sysctl", "net.ipv4.tcp_orphan_retries=1"}, flags...)
	h.run = kit.Start(t, h.command("lklrun", append(args, "--", "sleep", "100000")...))
	h.patient = observe(t, filepath.Join(dir, name))
	kit.WaitFor(t, "the target's start", kit.Limit, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
		defer cancel()
		hello, err := h.ctl.Refresh(ctx)
		return err == nil && hello.State == ctlproto.CTL_STATE_RUNNING
	})
	return h
}

func (h *hunt) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(h.bin, program), args...)
	if h.user {
		return kit.AsUser(cmd, h.env)
	}
	return cmd
}

// inside is a command line of `lklctl exec` in the instance.
func (h *hunt) inside(args ...string) *exec.Cmd {
	return h.command("lklctl", append([]string{"exec", "-n", h.name, "--"}, args...)...)
}

// works checks that the stack serves a new program.
func (h *hunt) works() {
	h.t.Helper()
	if r := kit.Run(h.t, kit.Limit, h.inside("/usr/bin/python3", "-c", works)); r.Status != 0 || r.Signal != 0 {
		h.t.Fatalf("the stack does not serve an ordinary program: %v", r)
	}
}

// end ends the instance, which must end without an error.
func (h *hunt) end() {
	h.t.Helper()
	kit.OK(h.t, kit.Limit, h.command("lklctl", "stop", "-n", h.name))
	if r := h.run.Wait(kit.Limit); r.Status == 125 || r.Status == 2 {
		h.t.Errorf("lklrun after a fuzzer: %v", r)
	}
}

// TestFuzz starts a target that makes every socket call with random arguments. Each call
// must return. lklhost must survive, serve other programs, and release all resources in
// the end.
func TestFuzz(t *testing.T) {
	seconds, seed := kit.Setting(t, "FUZZ_SECONDS", 4), kit.Setting(t, "FUZZ_SEED", 1)
	for _, tt := range []struct {
		name  string
		user  bool
		flags []string
	}{
		{"MPTCP, root", false, []string{"--stack", "mptcp"}},
		{"TCP, ordinary user", true, []string{"--stack", "vanilla"}},
		{"little memory", false, []string{"--stack", "vanilla", "--mem", "32M"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fuzz := built(t, "fuzz")
			h := newHunt(t, tt.user, tt.flags...)
			hunt := func(seed, seconds int) {
				t.Helper()
				cmd := h.inside(fuzz, fmt.Sprint(seed), fmt.Sprint(seconds))
				cmd.Dir = kit.Dir(t) // an empty directory
				r := kit.Run(t, time.Duration(seconds)*time.Second+3*kit.Limit, cmd)
				t.Logf("%v", r)
				if r.Status != 0 || r.Signal != 0 {
					t.Fatalf("the fuzzer, seed %d", seed)
				}
			}
			h.works()
			hunt(seed+1, 3) // lets lklhost create the resources that it keeps; slow on a busy machine
			before := h.settled()
			hunt(seed, seconds)
			// MPTCP keeps a closed connection for a minute (TCP_TIMEWAIT_LEN in
			// net/mptcp/protocol.c). Short runs do not wait for that.
			h.forgiving = tt.name[:5] == "MPTCP" && os.Getenv("FUZZ_SECONDS") == ""
			after := h.recovers(before, 4*kit.Limit)
			t.Logf("before: %v\nafter:  %v", before, after)
			h.works()
			h.end()
		})
	}
}

// built returns a program of csrc/tests, at a path where the ordinary user can execute
// it.
func built(t *testing.T, name string) string {
	t.Helper()
	from := filepath.Join(kit.Root(), "build", "csrc", "tests", name)
	kit.Need(t, from)
	to := filepath.Join(kit.Dir(t), name)
	kit.Host.Run(t, "cp", from, to)
	return to
}
