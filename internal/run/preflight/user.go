// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/host/netdev"
)

// lookUser determines the user that the target runs as.
func (f *Facts) lookUser(word string, dry bool) error {
	if word == "" {
		return nil
	}
	u, err := runas.Lookup(word)
	if err == nil {
		err = checkUser(u)
	}
	if dry && errors.As(err, new(*netdev.RightsError)) {
		f.Lacks = append(f.Lacks, fmt.Sprintf("--user %v", err))
		err = nil
	}
	if err != nil {
		return fmt.Errorf("--user %w", err)
	}
	if !u.Self() {
		f.User = u
	}
	return nil
}

// userRights are the capabilities that are necessary to change the user and to
// serve that user's programs.
var userRights = []struct {
	capability int
	name       string
}{
	{unix.CAP_SETUID, "CAP_SETUID"},
	{unix.CAP_SETGID, "CAP_SETGID"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},   // for the target's namespaces and mounts, which are created before the user changes
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, // for access to the target's memory and descriptors
	{unix.CAP_KILL, "CAP_KILL"},
}

// checkUser returns an error if this process cannot run a command as u. If u is
// the present user, no rights are necessary.
func checkUser(u *runas.User) error {
	if u.Self() {
		return nil
	}
	if os.Geteuid() != 0 {
		return &netdev.RightsError{Err: fmt.Errorf("%s: only root can run a command as another user, and this is uid %d; remove --user", u, os.Geteuid())}
	}
	for _, n := range userRights {
		if !netdev.Capable(n.capability) {
			return &netdev.RightsError{Err: fmt.Errorf("%s: root lacks %s here, so it cannot run a command as another user; start lklrun itself as that user, with the capabilities of its interfaces as ambient capabilities", u, n.name)}
		}
	}
	return nil
}

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
