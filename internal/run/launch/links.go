// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// liveLink is an interface of the run, from the opening of its host's end until
// all of it is released.
type liveLink struct {
	cut        atomic.Bool // the host's end is known to have no carrier
	*plan.Link             // a copy of the plan's; Name is the name in the stack, once it has one
	dev        int         // lklhost's number for it
	host       link.End    // the host's end
	undos      []netdev.Undo
	services   []service // running services of this link
}

// open opens the host's end of l and records it. The stack does not have it
// yet. passed is a descriptor that was passed to lklrun instead of inherited;
// nil: there is none.
func (r *run) open(ctx context.Context, l plan.Link, passed *os.File) (*liveLink, error) {
	k := &liveLink{Link: &l, dev: -1}
	var err error
	k.host, err = link.Open(ctx, k.Link, link.Env{
		Journal: func(u netdev.Undo) error {
			k.undos = append(k.undos, u)
			return r.journal.Add(u)
		},
		Passed: passed, Log: r.log, Tell: r.opts.Tell, Guard: r.sharing.Guard,
		UndosOfOthers: func(op string) ([]netdev.Undo, error) { return undo.Others(r.dir, op, r.log) },
		Note: func(text string) {
			if !r.opts.Quiet {
				r.opts.Tell(text)
			}
		},
		Share: func(ctx context.Context, l *link.Link) ([]bpf.RawInstruction, error) {
			if err := r.sharing.Reserve(ctx, l.Shared...); err != nil {
				return nil, err
			}
			return r.sharing.Filter(l)
		},
	})
	if err != nil {
		return nil, errors.Join(err, r.undo(ctx, k))
	}
	return k, nil
}

// attach passes the host's end to lklhost. Before boot, the stack returns no
// index.
func (r *run) attach(ctx context.Context, k *liveLink) (ifindex int, err error) {
	add := ctlproto.LinkAdd{Kind: k.host.Kind, Flags: k.host.Flags, MAC: k.MAC, MTU: uint16(k.MTU)}
	k.dev, ifindex, err = r.conn.AddLink(ctx, add, k.host.File)
	k.host.Passed()
	if err != nil {
		k.dev = -1
		if k.RawIP && errors.Is(err, unix.EOPNOTSUPP) { // the library's ABI was not known until now
			return 0, &RefusedError{Err: fmt.Errorf("--if %s:%s: %w", k.Type, k.Host(), r.plan.Stack.NoRawIP())}
		}
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	return ifindex, nil
}

// undo reverts the host changes for k before the end of the run. The journal
// keeps failed undos for the end of the run.
func (r *run) undo(ctx context.Context, k *liveLink) error {
	k.host.Release()
	err := r.journal.Revert(ctx, k.undos)
	k.undos = nil
	return err
}
