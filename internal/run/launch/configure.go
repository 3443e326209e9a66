// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/sysctl"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// wrongInput lists the errors with which a kernel rejects an impossible request. Other
// errors are failures of the kernel itself.
var wrongInput = []error{
	unix.EINVAL, unix.ERANGE, unix.EDOM, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.EACCES, unix.EPERM,
	unix.EEXIST, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.EOPNOTSUPP, unix.ENODEV,
}

// refused wraps err in a *exit.UsageError if it is one of wrongInput.
func refused(err error) error {
	if slices.ContainsFunc(wrongInput, func(no error) bool { return errors.Is(err, no) }) {
		return &exit.UsageError{Err: err}
	}
	return err
}

// configure applies the plan to the stack through the control connection, and
// starts the run's services.
func (r *run) configure(ctx context.Context) error {
	cfg := stacknet.Config{Without: func(why error) {
		r.notes = append(r.notes, why.Error()+"; ignored")
	}}
	var after []stacknet.Sysctl
	for _, l := range r.links.all() {
		cfg.Sysctls, after = append(cfg.Sysctls, deviceSettings(l.Link)...), append(after, vlanSettings(l.Link)...)
		cfg.Links = append(cfg.Links, l.InStack())
	}
	for _, s := range r.plan.Sysctls {
		cfg.Sysctls = append(cfg.Sysctls, stacknet.Sysctl{Key: s.Name, Value: s.Value, Optional: s.Optional})
	}
	if r.plan.Stack.MPTCP {
		cfg.MPTCP = stacknet.MaxMPTCP()
	}
	r.links.keepPaths(ctx)
	n, err := r.links.paths.Netlink()
	if err != nil {
		return err
	}
	if err := r.links.refusal(ctx, n.Configure(ctx, cfg)); err != nil {
		return err
	}
	if err := r.links.refusal(ctx, stacknet.ApplySysctls(ctx, r.conn, after, nil)); err != nil {
		return err
	}
	if err := mount(ctx, r.conn, r.plan.Mount); err != nil {
		return err
	}
	return r.serve(ctx)
}

// refusal adds to a refusal of the stack the name of the setting or the --if option that
// caused it.
func (v *links) refusal(ctx context.Context, err error) error {
	var (
		setting *stacknet.SysctlError
		about   *stacknet.LinkError
	)
	if errors.As(err, &setting) {
		return refused(sysctl.Explain(ctx, v.conn, err))
	}
	if errors.As(err, &about) {
		for _, l := range v.all() {
			// The user did not choose the configuration of a managed link;
			// lklrun did.
			if l.Name == about.Link && !l.Managed {
				return refused(fmt.Errorf("--if %s:%s (%s): %w", l.Type, l.Host(), l.Name, about.Err))
			}
		}
	}
	return err
}
