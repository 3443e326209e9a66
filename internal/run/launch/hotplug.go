// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// This file adds and removes links while the stack runs: `lklctl link add` and
// `del`.

// leaveLimit bounds the wait until the stack has removed a link. A paused stack
// removes the link when it continues.
const leaveLimit = 30 * time.Second

// errEnding reports that the run no longer accepts changes.
var errEnding = errors.New("the run is ending")

// addLink answers rpc.AddLink. If it fails, it undoes all its changes.
func (v *links) addLink(ctx context.Context, spec rpc.LinkSpec, file *os.File) (rpc.LinkAdded, error) {
	var added rpc.LinkAdded
	i, err := config.ParseInterface(spec.Spec)
	if err != nil {
		return added, userError(err)
	}
	if (i.FD != 0) != (file != nil) {
		return added, fmt.Errorf("%s: a descriptor must be passed with fd:N, and only with it", spec.Spec)
	}
	v.changing.Lock()
	defer v.changing.Unlock()
	if v.over {
		return added, errEnding
	}
	l, notes, err := v.planLink(i, file)
	if err != nil {
		return added, userError(err)
	}
	k, err := v.open(ctx, l, file)
	if err != nil {
		return added, afterFirstChange(err)
	}
	if err := v.join(ctx, k); err != nil {
		return added, errors.Join(refusedLink(&l, spec.Spec, err), v.leave(ctx, k))
	}
	if err := v.files.change(func(s *instance.State) { s.Interfaces = append(s.Interfaces, shown(k.Link)) }); err != nil {
		return added, errors.Join(err, v.leave(ctx, k), v.forget(k))
	}
	v.leasesChanged()
	v.log.Debug("an interface was added", "name", k.Name, "spec", spec.Spec)
	return rpc.LinkAdded{Name: k.Name, Notes: notes}, nil
}

// planLink examines the host and plans an additional interface.
func (v *links) planLink(i config.Interface, passed *os.File) (plan.Link, []string, error) {
	found, machine, err := preflight.LookLink(i, passed)
	if err != nil {
		return plan.Link{}, nil, err
	}
	var have []plan.Link
	for _, k := range v.all() {
		have = append(have, *k.Link)
	}
	return v.plan.More(found, machine, have)
}

// join adds a link, whose host's end is open, to the stack.
func (v *links) join(ctx context.Context, k *liveLink) error {
	ifindex, err := v.attach(ctx, k)
	if !k.RawIP && errors.Is(err, syscall.EOPNOTSUPP) { // LKL's older interface cannot add links at run time
		return exit.Usagef("%s: the stack %s accepts devices only before it boots; pass them to lklrun with --if", k.Name, v.plan.Stack.Name)
	}
	if err != nil {
		return err
	}
	states, err := stacknet.Links(ctx, v.conn)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(states, func(s stacknet.LinkState) bool { return s.Index == ifindex })
	if at < 0 {
		return fmt.Errorf("%s: the interface has disappeared from the stack", k.Name)
	}
	k.Name = states[at].Name // the planned name may already be in use
	v.put(k)
	if err := stacknet.ApplySysctls(ctx, v.conn, deviceSettings(k.Link), nil); err != nil {
		return err
	}
	if err := stacknet.ConfigureLinks(ctx, v.conn, k.InStack()); err != nil {
		return err
	}
	if err := stacknet.ApplySysctls(ctx, v.conn, vlanSettings(k.Link), nil); err != nil {
		return err
	}
	if err := v.serve(ctx, k); err != nil {
		return err
	}
	return v.paths.Sync(ctx) // create the paths before the link is reported
}

// leave removes a link from the stack and reverts its host changes.
func (v *links) leave(ctx context.Context, k *liveLink) error {
	k.stopServices()
	v.drop(k)
	// Complete a removal that has begun, even if ctx ends.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), leaveLimit, fmt.Errorf("the stack did not answer within %v", leaveLimit))
	defer cancel()
	var err error
	if k.dev >= 0 {
		if err = v.conn.DelLink(ctx, k.dev); errors.Is(err, syscall.ENODEV) {
			err = nil
		}
		if err == nil {
			err = v.paths.Sync(ctx)
		}
	}
	return errors.Join(err, v.undo(ctx, k))
}

// delLink answers rpc.DelLink.
func (v *links) delLink(ctx context.Context, l rpc.LinkName, _ *os.File) (struct{}, error) {
	v.changing.Lock()
	defer v.changing.Unlock()
	if v.over {
		return struct{}{}, errEnding
	}
	all := v.all()
	at := slices.IndexFunc(all, func(k *liveLink) bool { return k.Name == l.Name })
	if at < 0 {
		return struct{}{}, rpc.Usagef("%s: not an interface that lklrun created%s", l.Name, availableLinks(all))
	}
	v.log.Debug("removing an interface", "name", l.Name)
	if err := errors.Join(v.leave(ctx, all[at]), v.forget(all[at])); err != nil {
		return struct{}{}, fmt.Errorf("%s: %w", l.Name, err)
	}
	v.leasesChanged()
	v.log.Debug("an interface was removed", "name", l.Name)
	return struct{}{}, nil
}

// forget removes a link from the published state of the run.
func (v *links) forget(k *liveLink) error {
	return v.files.change(func(s *instance.State) {
		s.Interfaces = slices.DeleteFunc(s.Interfaces, func(i instance.Interface) bool { return i.Name == k.Name })
	})
}

func availableLinks(all []*liveLink) string {
	var names []string
	for _, k := range all {
		names = append(names, k.Name)
	}
	if len(names) == 0 {
		return "; there are none"
	}
	return "; there are: " + strings.Join(names, ", ")
}

// shown converts a link to its form in state.json.
func shown(l *plan.Link) instance.Interface {
	s := instance.Interface{Name: l.Name, Type: l.Type, Host: l.Host()}
	for _, a := range l.Addrs {
		s.Addr = append(s.Addr, a.String())
	}
	return s
}

// userError marks an error as a mistake of the caller. At the start of a run, it
// would be an error in the command line.
func userError(err error) error {
	return rpc.Usagef("%s", strings.TrimPrefix(err.Error(), "--if "))
}

// afterFirstChange is like userError, for errors that occur after the first change to the
// host. The user can fix only some of these errors.
func afterFirstChange(err error) error {
	if exit.Status(err) == exit.Usage {
		return userError(err)
	}
	return err
}

// refusedLink is like refusal, for a single link.
func refusedLink(l *plan.Link, spec string, err error) error {
	var about *stacknet.LinkError
	if errors.As(err, &about) && !l.Managed && exit.Status(refused(about.Err)) == exit.Usage {
		return userError(fmt.Errorf("%q: %w", spec, about.Err))
	}
	return afterFirstChange(err)
}
