// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"os"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/base/runas"
)

// CheckSetUID returns an error if the program is set-user-ID and this has no
// effect in the run. The filter needs no_new_privs if the caller is not root,
// or if the target runs as another user, as (nil: the same user). The program
// would then run without its rights and fail in unclear ways. Set-group-ID and
// file capabilities are not checked, because they matter less: ping has
// capabilities, but needs none on the stack.
func CheckSetUID(p *program.Program, as *runas.User) error {
	for p != nil && p.Interpreter != nil {
		p = p.Interpreter // the file of a script's interpreter counts
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
