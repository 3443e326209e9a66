// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestFinding4ForgedCarrier checks that lklhost takes no socket for a carrier because of
// its name, and sends nothing to a socket that has taken a carrier's name or file.
func TestFinding4ForgedCarrier(t *testing.T) {
	forgedCarrier(t, "root", "same", "nobody", "container")
	forgedCarrier(t, "user without namespaces", "same")
}

// TestFinding5FullQueue checks that a program cannot stop the stack by filling the queues
// of the sockets to which lklhost connects.
func TestFinding5FullQueue(t *testing.T) {
	forgedCarrier(t, "user without namespaces", "flood")
}

func forgedCarrier(t *testing.T, where string, attackers ...string) {
	kit.Need(t, "/usr/bin/python3")
	for _, who := range attackers {
		for _, engine := range []string{"supervise", "trace"} {
			t.Run(where+"/"+who+"/"+engine, func(t *testing.T) {
				e := newEscapee(t, "user", engine)
				args := []string{"--if", "fd:3,ip=10.99.0.2/24", "--", "/usr/bin/python3", kit.TestData("forged_carrier.py"), who}
				cmd := kit.Lklrun(append([]string{"-q", "--name", e.name, "--engine", engine}, args...)...)
				if where != "root" {
					cmd = e.withoutNamespaces(args...)
				}
				cmd.ExtraFiles = e.inherited()
				defer e.link.Close()
				r := kit.Run(t, kit.Limit, cmd)
				if want := "names seen, got nothing\npassword secret\n"; r.Status != 0 || r.Stdout != want {
					t.Errorf("%v\nwant %q", r, want)
				}
			})
		}
	}
}
