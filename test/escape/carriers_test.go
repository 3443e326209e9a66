// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestSecondFinding04ForgedCarrier checks that lklhost takes no socket for a carrier because of
// its name, and sends nothing to a socket that has taken a carrier's name or file.
func TestSecondFinding04ForgedCarrier(t *testing.T) {
	forgedCarrier(t, "root", "same", "nobody", "container")
	forgedCarrier(t, "user without namespaces", "same", "other")
}

// TestSecondFinding05FullQueue checks that a program cannot stop the stack by filling the queues
// of the sockets to which lklhost connects.
func TestSecondFinding05FullQueue(t *testing.T) {
	forgedCarrier(t, "user without namespaces", "flood")
}

func forgedCarrier(t *testing.T, where string, attackers ...string) {
	kit.Need(t, "/usr/bin/python3")
	program := []string{"/usr/bin/python3", kit.TestData("forged_carrier.py")}
	for _, who := range attackers {
		for _, engine := range []string{"supervise", "trace"} {
			t.Run(where+"/"+who+"/"+engine, func(t *testing.T) {
				e := newEscapee(t, "user", engine)
				args := append([]string{"--if", "fd:3,ip=10.99.0.2/24", "--"}, append(program, who)...)
				var other *kit.Proc
				if who == "other" {
					dir := kit.Dir(t)
					for _, name := range []string{"ready", "go"} {
						kit.Must(t, unix.Mkfifo(dir+"/"+name, 0))
						kit.Must(t, os.Chmod(dir+"/"+name, 0o666))
					}
					args = append(args, dir)
					cmd := exec.Command(program[0], program[1], "attacker", dir)
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 2, Gid: 2}}
					other = kit.Start(t, cmd)
				}
				cmd := kit.Lklrun(append([]string{"-q", "--name", e.name, "--engine", engine}, args...)...)
				if where != "root" {
					cmd = e.withoutNamespaces(args...)
				}
				cmd.ExtraFiles = e.inherited()
				defer e.link.Close()
				r := kit.Run(t, kit.Limit, cmd)
				got := r.Stdout
				if other != nil {
					got = other.Wait(kit.Limit).Stdout + got
				}
				want := "names seen and taken, got nothing\npassword secret\n"
				if who == "flood" { // which takes none
					want = strings.Replace(want, " and taken", "", 1)
				}
				if r.Status != 0 || got != want {
					t.Errorf("%v\ngot %q\nwant %q", r, got, want)
				}
			})
		}
	}
}
