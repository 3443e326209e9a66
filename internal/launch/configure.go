// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// RefusedError says that the stack refused what it was asked for: a setting it
// does not have, a value or an address that cannot be.
type RefusedError struct{ Err error }

// Error names what was asked for, and what the stack said.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *RefusedError) Unwrap() error { return e.Err }

// wrongInput are the errors by which a kernel says that it was asked for what
// cannot be, as against one that fails.
var wrongInput = []error{
	unix.EINVAL, unix.ERANGE, unix.EDOM, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.EACCES, unix.EPERM,
	unix.EEXIST, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.EOPNOTSUPP, unix.ENODEV,
}

// refused makes err a *RefusedError where it is one.
func refused(err error) error {
	if slices.ContainsFunc(wrongInput, func(no error) bool { return errors.Is(err, no) }) {
		return &RefusedError{err}
	}
	return err
}

// configure brings the stack to what the plan says, through the control
// connection.
func (r *run) configure(ctx context.Context) error {
	cfg := stacknet.Config{}
	for _, s := range r.plan.Sysctls {
		cfg.Sysctls = append(cfg.Sysctls, stacknet.Sysctl{Key: s.Name, Value: s.Value})
	}
	for i := range r.plan.Links {
		l := &r.plan.Links[i]
		link := stacknet.Link{
			Name: l.Name, MTU: l.MTU, Addrs: l.Addrs, GW4: l.GW4, GW6: l.GW6,
			Table: l.Table, Endpoint: l.Endpoint,
		}
		if !l.MAC.IsZero() {
			link.MAC = l.MAC[:]
		}
		cfg.Links = append(cfg.Links, link)
	}
	if r.plan.Stack.MPTCP {
		cfg.MPTCP = &stacknet.MPTCPLimits{Subflows: r.plan.MPTCPLimit(), AddAddrAccepted: r.plan.MPTCPLimit()}
	}
	err := stacknet.Configure(ctx, r.conn, cfg)
	var (
		setting *stacknet.SysctlError
		link    *stacknet.LinkError
	)
	if errors.As(err, &setting) {
		return refused(err)
	}
	if errors.As(err, &link) {
		for i := range r.plan.Links {
			// What the gateway has is lklrun's own choice.
			if l := &r.plan.Links[i]; l.Name == link.Link && l.Type != config.TypeUser {
				return refused(fmt.Errorf("--if %s:%s (%s): %w", l.Type, l.Host(), l.Name, link.Err))
			}
		}
	}
	return err
}
