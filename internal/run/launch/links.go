// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/impair"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/lease"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// liveLink is an interface of the run. It exists from the opening of its host's
// end until all its resources are released.
type liveLink struct {
	cut        atomic.Bool // the host's end is known to have no carrier
	*plan.Link             // copy of the plan's link; Name becomes the name in the stack
	dev        int         // number of the device in lklhost
	host       link.End    // the host's end
	undos      []netdev.Undo
	services   []service // running services of this link
}

// links are the interfaces of a run. After the stack is configured and until it
// ends, interfaces can be added and deleted.
type links struct {
	plan    *plan.Plan
	env     link.Env // environment of each link, without its journal
	journal *undo.Journal
	files   *files
	log     *slog.Logger
	tell    func(string)
	conn    *stackconn.Conn // set after the greeting
	paths   *pathKeeper     // set once the stack is configured
	leases  lease.Leases
	clats   clats

	changing sync.Mutex // held while a link is added or deleted
	over     bool       // no link may be added or deleted any more; protected by changing

	mu      sync.Mutex
	present []*liveLink
}

// all returns the current links.
func (v *links) all() []*liveLink {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.present)
}

func (v *links) put(l *liveLink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.present = append(v.present, l)
}

func (v *links) drop(l *liveLink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.present = slices.DeleteFunc(v.present, func(k *liveLink) bool { return k == l })
}

// open opens the host's end of l and records it. The stack does not have the
// link yet. passed is a descriptor that was passed to lklrun instead of
// inherited; nil if there is none.
func (v *links) open(ctx context.Context, l plan.Link, passed *os.File) (*liveLink, error) {
	k := &liveLink{Link: &l, dev: -1}
	env := v.env
	env.Passed = passed
	env.Journal = func(u netdev.Undo) error {
		k.undos = append(k.undos, u)
		return v.journal.Add(u)
	}
	var err error
	if k.host, err = link.Open(ctx, k.Link, env); err != nil {
		return nil, errors.Join(err, v.undo(ctx, k))
	}
	return k, nil
}

// attach passes the host's end to lklhost. It returns the index of the interface
// in the stack, which is known only after the stack has booted.
func (v *links) attach(ctx context.Context, k *liveLink) (ifindex int, err error) {
	add := ctlproto.LinkAdd{Kind: k.host.Kind, Flags: k.host.Flags, MAC: k.MAC, MTU: uint16(k.MTU)}
	k.dev, ifindex, err = v.conn.AddLink(ctx, add, k.host.File)
	if errors.Is(err, unix.EOPNOTSUPP) && k.host.Fallback != nil {
		k.host.Passed()
		if k.host.File, err = k.host.Fallback(); err == nil {
			add.Kind, add.Flags = ctlproto.CTL_LINK_FRAME, 0
			k.dev, ifindex, err = v.conn.AddLink(ctx, add, k.host.File)
		}
	} else if err == nil && k.host.PeerFD != nil {
		err = v.conn.JoinLink(ctx, k.dev, k.host.PeerFD)
	}
	k.host.Passed()
	if err != nil {
		k.dev = -1
		if k.RawIP && errors.Is(err, unix.EOPNOTSUPP) { // only now is the library's ABI known
			return 0, exit.Usagef("--if %s:%s: %w", k.Type, k.Host(), v.plan.Stack.NoRawIP())
		}
		if k.host.Peers != nil && errors.Is(err, unix.EOPNOTSUPP) {
			return 0, exit.Usagef("--if %s:%s: stack %s does not support wires; use one of lklrun's own stacks", k.Type, k.Host(), v.plan.Stack.Name)
		}
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	return ifindex, nil
}

// undo reverts the changes to the host for k before the end of the run. If an
// undo fails, it remains in the journal for the end of the run.
func (v *links) undo(ctx context.Context, k *liveLink) error {
	k.host.Release()
	err := v.journal.Revert(ctx, k.undos)
	k.undos = nil
	return err
}

// linkServices create the services of a configured link. They return nil if
// this link does not need the service.
var linkServices = []func(v *links, l *liveLink) service{leaseService, clatService, watches}

// serve starts the services of one link.
func (v *links) serve(ctx context.Context, l *liveLink) error {
	if err := v.impair(ctx, l); err != nil {
		return err
	}
	if l.host.Peers != nil {
		err := l.host.Peers(ctx, func(ctx context.Context, bell *os.File) error { return v.conn.JoinLink(ctx, l.dev, bell) })
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	for _, made := range linkServices {
		s := made(v, l)
		if s == nil {
			continue
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		l.services = append(l.services, s)
	}
	return nil
}

// impair applies the link's impairments in the stack.
func (v *links) impair(ctx context.Context, l *liveLink) error {
	if len(l.Impair) == 0 {
		return nil
	}
	step, err := impair.ParseStep(l.Name, []stacknet.Way{stacknet.In}, l.Impair)
	if err != nil {
		return err
	}
	paths, err := impair.Open(ctx, v.conn)
	if err != nil {
		return err
	}
	defer paths.Close()
	return paths.Apply(step)
}

// stopServices stops the services of a link in reverse order.
func (k *liveLink) stopServices() {
	for _, s := range slices.Backward(k.services) {
		s.Stop()
	}
	k.services = nil
}

// leaseService returns the service of a link that gets addresses from its
// network.
func leaseService(v *links, l *liveLink) service {
	if !l.Leases() {
		return nil
	}
	return v.leases.Add(l.Link, l.StackDevice())
}

// leasesChanged updates the run's files after a lease has changed.
func (v *links) leasesChanged() { v.files.leases(v) }

// awaitLeases waits until the links have their leased addresses.
func (v *links) awaitLeases(ctx context.Context) error {
	configured := slices.ContainsFunc(v.all(), func(l *liveLink) bool { return len(l.Addrs) > 0 })
	if err := v.leases.Await(ctx, configured); err != nil {
		return err
	}
	v.leasesChanged()
	return v.paths.Sync(ctx) // let the first connection use all paths
}
