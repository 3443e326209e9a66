// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestSecondFinding02Descriptor checks that a target gains nothing by exchanging the file
// of a descriptor while lklhost decides about a call: it gets no socket of the host from an
// accomplice, and no address of a host's device.
func TestSecondFinding02Descriptor(t *testing.T) {
	who := append(slices.Clone(escapeWho), "user without namespaces")
	exchange(t, who, func(attempt string) bool { return !strings.HasPrefix(attempt, "exchange-name-") })
}

// TestSecondFinding09NameServices checks that a target reaches no name service of the host,
// by any spelling of its name or by exchanging the name. Without namespaces nothing hides
// the services, see TestAllowWithoutNamespaces.
func TestSecondFinding09NameServices(t *testing.T) {
	exchange(t, escapeWho, func(attempt string) bool { return strings.HasPrefix(attempt, "exchange-name-") })
}

// exchange makes the attempts of the exchanges that the function selects.
func exchange(t *testing.T, who []string, selects func(attempt string) bool) {
	for _, who := range who {
		for _, engine := range []string{"supervise", "trace"} {
			t.Run(who+"/"+engine, func(t *testing.T) {
				user, bare := strings.CutSuffix(who, " without namespaces")
				e := newEscapee(t, user, engine)
				names := slices.DeleteFunc(kit.Lines(kit.OK(t, kit.Limit, exec.Command(e.program("escape"), "list"))), func(n string) bool {
					return !strings.HasPrefix(n, "exchange-") || !selects(n)
				})
				if len(names) == 0 {
					t.Fatal("the program makes no such exchanges")
				}
				attempt := e.attempt
				if bare {
					attempt = e.attemptWithoutNamespaces
				}
				got := attempt(names)
				for _, n := range names {
					if got[n] != "withheld" {
						t.Errorf("%s: %q", n, got[n])
					}
				}
				for _, h := range e.silent() {
					t.Errorf("the host heard: %s", h)
				}
			})
		}
	}
}

// TestAllowWithoutNamespaces checks that a program with allowed destinations is refused if
// the host's name services cannot be hidden from it: by any spelling of their names, it
// would have them resolve names over the host's network.
func TestAllowWithoutNamespaces(t *testing.T) {
	for _, engine := range escapeEngines {
		t.Run(engine, func(t *testing.T) {
			e := newEscapee(t, "user", engine)
			for _, f := range e.inherited() {
				defer f.Close()
			}
			r := kit.Run(t, kit.Limit, e.withoutNamespaces("--allow", "192.0.2.1:80", "--", e.program("escape"), "exchange-name-spelled"))
			if r.Status != 2 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "--allow 192.0.2.1:80: this host allows no namespaces") {
				t.Errorf("%v", r)
			}
			for _, h := range e.silent() {
				t.Errorf("the host heard: %s", h)
			}
		})
	}
}

// TestAllowWithoutMounts checks the same for root, if the target cannot mount.
func TestAllowWithoutMounts(t *testing.T) {
	for _, engine := range escapeEngines {
		t.Run(engine, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", `echo 0 >/proc/sys/user/max_mnt_namespaces && exec "$@"`,
				"sh", kit.Bin("lklrun"), "-q", "--engine", engine, "--name", kit.NewName(), "--allow", "192.0.2.1:80", "--", "echo", "executed")
			cmd.SysProcAttr = kit.InUserNamespace()
			if r := kit.Run(t, kit.Limit, cmd); r.Status == 0 || r.Stdout != "" || !strings.Contains(r.Stderr, "hiding the host's name services from the command: No space left on device") {
				t.Errorf("%v", r)
			}
		})
	}
}

// TestTracedZygote checks that a target without namespaces, which can trace the helper
// that starts programs of `lklctl exec`, gets no socket of the host from it.
func TestTracedZygote(t *testing.T) {
	e := newEscapee(t, "user", "supervise")
	cmd := e.withoutNamespaces("--if", "fd:3,ip=10.99.0.2/24", "--", e.program("escape"), "wait", "ptrace-zygote")
	cmd.ExtraFiles = e.inherited()
	defer e.link.Close()
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	kit.WaitFor(t, "the target", kit.Limit, func() bool {
		out, _ := p.Output()
		return strings.HasPrefix(out, "ready ") || !p.Running()
	})
	lklctl := exec.Command(e.bin+"/lklctl", "-n", e.name, "exec", "true") // from now on, the zygote is known
	lklctl.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	kit.OK(t, kit.Limit, lklctl)
	_, err = in.Write([]byte("\n"))
	kit.Must(t, err)
	r := p.Wait(kit.Limit)
	if got := outcomes(r.Stdout)["ptrace-zygote"]; got != "ECONNREFUSED" && got != "absent" {
		t.Errorf("%q: %v", got, r)
	}
	for _, h := range e.silent() {
		t.Errorf("the host heard: %s", h)
	}
}
