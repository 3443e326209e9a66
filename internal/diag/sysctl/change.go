// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Change is a setting with its requested value and the result of the change.
type Change struct {
	Key   string  `json:"key"`             // setting, with dots
	Old   *string `json:"old,omitempty"`   // previous value, if readable
	Asked string  `json:"asked"`           // requested value
	New   *string `json:"new,omitempty"`   // resulting value; absent with --dry-run
	Error string  `json:"error,omitempty"` // reason why the value was not set, if ignored

	where  string
	ignore bool
	err    error
}

// Same reports whether the setting already has the value.
func (c *Change) Same() bool { return c.Old != nil && same(c.Asked, *c.Old) }

// Differs reports whether the stack accepted the value but changed it.
func (c *Change) Differs() bool { return c.New != nil && !same(c.Asked, *c.New) }

// same compares two values as the stack does: blanks separate fields, and numbers are
// compared by value. asked may contain only the first numbers of a list.
func same(asked, is string) bool {
	a, b := strings.Fields(asked), strings.Fields(is)
	if len(a) > len(b) || len(a) < len(b) && (len(a) == 0 || !numeric(b)) {
		return false
	}
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		n, err1 := strconv.ParseInt(a[i], 0, 64)
		m, err2 := strconv.ParseInt(b[i], 0, 64)
		if err1 != nil || err2 != nil || n != m {
			return false
		}
	}
	return true
}

func numeric(fields []string) bool {
	for _, f := range fields {
		if _, err := strconv.ParseInt(f, 10, 64); err != nil {
			return false
		}
	}
	return true
}

// Plan converts lines to changes. It expands globs, checks whether each setting exists
// and is writable, and reads its value. It changes nothing. If ignore or the line's own
// mark is set, problems are recorded in Change.Error. Otherwise Plan returns all problems
// in one error.
func Plan(ctx context.Context, c *stackconn.Conn, lines []Line, ignore bool) ([]Change, error) {
	var all []string
	named := map[string]bool{} // globs do not apply to these settings
	globs := false
	for i := range lines {
		if globs = globs || lines[i].isGlob(); !lines[i].isGlob() {
			named[dotted(lines[i].Key)] = true
		}
	}
	if globs {
		var err error
		if all, err = Keys(ctx, c, ""); err != nil {
			return nil, err
		}
	}
	var changes []Change
	var errs []error
	for i := range lines {
		l := &lines[i]
		keys := []string{dotted(l.Key)}
		switch {
		case l.Except:
			continue
		case l.isGlob():
			keys = nil
			for _, k := range all {
				if !named[k] && l.matches(k) {
					keys = append(keys, k)
				}
			}
			if keys == nil {
				keys = []string{l.Key} // the setting does not exist
			}
		}
		for _, k := range keys {
			ch := Change{Key: k, Asked: l.Value, where: l.Where, ignore: ignore || l.Ignore}
			if err := ch.look(ctx, c); ctx.Err() != nil {
				return nil, err
			} else if err != nil && !ch.ignore {
				errs = append(errs, ch.failed(err))
			} else if err != nil {
				ch.Error, ch.err = err.Error(), err
			}
			changes = append(changes, ch)
		}
	}
	return changes, errors.Join(errs...)
}

// look checks whether a setting exists and is writable.
func (c *Change) look(ctx context.Context, conn *stackconn.Conn) error {
	path, err := stacknet.SysctlPath(c.Key)
	if err != nil {
		return err
	}
	f, err := conn.Open(ctx, path, unix.O_WRONLY)
	if err != nil {
		return Explain(ctx, conn, &stacknet.SysctlError{Key: c.Key, Value: c.Asked, Write: true, Err: err})
	}
	f.Close()
	c.Old, err = readable(ctx, conn, c.Key)
	return err
}

// Writable reports whether a setting is writable.
func Writable(ctx context.Context, c *stackconn.Conn, key string) bool {
	return (&Change{Key: key}).look(ctx, c) == nil
}

// readable reads a setting. It returns nil if the setting can only be written, such as
// net.ipv4.route.flush.
func readable(ctx context.Context, conn *stackconn.Conn, key string) (*string, error) {
	value, err := stacknet.GetSysctl(ctx, conn, key)
	for _, no := range []syscall.Errno{syscall.EACCES, syscall.EINVAL, syscall.EIO} { // EIO: the setting has no value yet, such as stable_secret
		if errors.Is(err, no) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &value, nil
}

func (c *Change) failed(err error) error {
	if c.where == "" {
		return err
	}
	return fmt.Errorf("%s: %w", c.where, err)
}

// UndoneError reports a change that the stack refused. The earlier changes were undone.
type UndoneError struct {
	Err    error   // error of the refused change
	Undone int     // number of earlier changes that were undone
	Stuck  []error // errors of changes that could not be undone
}

// Error describes the refused change and the result of the undo.
func (e *UndoneError) Error() string {
	s := e.Err.Error()
	if e.Undone > 0 {
		s += fmt.Sprintf("; earlier changes undone: %d", e.Undone)
	}
	if len(e.Stuck) > 0 {
		s += "; not restored: " + errors.Join(e.Stuck...).Error()
	}
	return s
}

// Unwrap returns the error of the refused change.
func (e *UndoneError) Unwrap() error { return e.Err }

// Apply makes the changes in order and reads back each result. It skips settings that
// already have the requested value. If the stack refuses a change whose failure may not
// be ignored, Apply restores the old values of the earlier changes.
func Apply(ctx context.Context, c *stackconn.Conn, changes []Change) error {
	for i := range changes {
		ch := &changes[i]
		if ch.err != nil {
			continue
		}
		// An earlier change may have modified this setting: another line of the
		// file, or ip_forward, which changes the forwarding of each interface.
		if old, err := readable(ctx, c, ch.Key); err == nil {
			ch.Old = old
		}
		if ch.Same() {
			ch.New = ch.Old
			continue
		}
		written := i
		err := stacknet.SetSysctl(ctx, c, ch.Key, ch.Asked)
		if err == nil {
			written++
			ch.New, err = readable(ctx, c, ch.Key)
		}
		switch {
		case err == nil:
		case ch.ignore && ctx.Err() == nil:
			ch.Error, ch.err = err.Error(), err
		default:
			return undo(ctx, c, changes[:written], ch.failed(Explain(ctx, c, err)))
		}
	}
	return nil
}

// undo restores the old values in reverse order.
func undo(ctx context.Context, c *stackconn.Conn, done []Change, why error) error {
	e := &UndoneError{Err: why}
	ctx = context.WithoutCancel(ctx)
	for i := len(done) - 1; i >= 0; i-- {
		ch := &done[i]
		switch {
		case ch.err != nil || ch.Same():
		case ch.Old == nil:
			e.Stuck = append(e.Stuck, fmt.Errorf("%s, which is write-only", ch.Key))
		default:
			if err := stacknet.SetSysctl(ctx, c, ch.Key, *ch.Old); err != nil {
				e.Stuck = append(e.Stuck, err)
				continue
			}
			e.Undone++
		}
	}
	return e
}

// dotted formats a key with dots, for output.
func dotted(key string) string {
	file, err := stacknet.SysctlPath(key)
	if err != nil {
		return key // the key was checked before
	}
	return stacknet.SysctlKey(file)
}
