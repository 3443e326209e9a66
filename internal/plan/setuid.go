// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"os"

	"github.com/lklrun/lklrun/internal/program"
	"github.com/lklrun/lklrun/internal/runas"
)

// CheckSetUID says what is wrong with running a program that shall get another
// user's rights by its file: whoever is not root installs the filter with
// no_new_privs, and so does a target that runs as another user, as (nil: ours). It
// would run without them and fail in ways of its own. A group and capabilities
// matter less often: ping has them, and needs none on the stack.
func CheckSetUID(p *program.Program, as *runas.User) error {
	for p != nil && p.Interpreter != nil {
		p = p.Interpreter // whose file counts
	}
	if p == nil || !p.SetUID || p.NoSUID {
		return nil
	}
	if as != nil && p.UID != as.UID {
		return fmt.Errorf("%s is set-user-ID to %d, which has no effect with --user (no_new_privs): leave that out", p.Path, p.UID)
	}
	if as != nil || p.UID == os.Geteuid() || !NeedsUserNamespaces() {
		return nil
	}
	return fmt.Errorf("%s is set-user-ID to %d, which has no effect when an ordinary user's lklrun starts it (no_new_privs): run lklrun as root", p.Path, p.UID)
}
