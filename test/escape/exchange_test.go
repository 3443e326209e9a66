// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestExchange checks that a target gains nothing by exchanging the file of a descriptor
// while lklhost decides about a call: it gets no socket of the host from an accomplice
// (finding 2), and no address of a host's device.
func TestExchange(t *testing.T) {
	for _, who := range append(slices.Clone(escapeWho), "user without namespaces") {
		for _, engine := range []string{"supervise", "trace"} {
			t.Run(who+"/"+engine, func(t *testing.T) {
				user, bare := strings.CutSuffix(who, " without namespaces")
				e := newEscapee(t, user, engine)
				names := slices.DeleteFunc(kit.Lines(kit.OK(t, kit.Limit, exec.Command(e.program("escape"), "list"))), func(n string) bool {
					return !strings.HasPrefix(n, "exchange-")
				})
				if len(names) == 0 {
					t.Fatal("the program makes no exchanges")
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
