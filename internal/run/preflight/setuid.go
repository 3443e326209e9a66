// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"os"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/base/runas"
)

// CheckSetUID returns an error if the program is set-user-ID but would not get
// that user's rights in the run. The filter requires no_new_privs if the caller
// is not root, or if the target runs as another user. as is that user; nil
// means the same user. Without its rights, the program would fail in unclear
// ways. CheckSetUID does not check set-group-ID and file capabilities, because
// they matter less: ping has capabilities, but does not need them on the stack.
func CheckSetUID(p *program.Program, as *runas.User) error {
	for p != nil && p.Interpreter != nil {
		p = p.Interpreter // for a script, the interpreter's file counts
	}
	if p == nil || !p.SetUID || p.NoSUID {
		return nil
	}
	if as != nil && p.UID != as.UID {
		return fmt.Errorf("%s is set-user-ID to %d, which has no effect with --user (no_new_privs); remove --user", p.Path, p.UID)
	}
	if as != nil || p.UID == os.Geteuid() || !NeedsUserNamespaces() {
		return nil
	}
	return fmt.Errorf("%s is set-user-ID to %d, which has no effect if an ordinary user runs lklrun (no_new_privs); run lklrun as root", p.Path, p.UID)
}
