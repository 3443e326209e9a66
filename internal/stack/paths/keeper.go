// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// rest is the minimum time between two scans of the stack, for a flood of
// changes.
const rest = 20 * time.Millisecond

// SyncLimit bounds Sync.
const SyncLimit = 20 * time.Second

// Keeper maintains the paths of one stack.
type Keeper struct {
	conn  *stackconn.Conn
	wants func() []Want
	log   *slog.Logger
	now   func() time.Time

	ctx      context.Context //nolint:containedctx // of its life, which is not that of any call
	cancel   context.CancelFunc
	starting func() bool // stops the start's context from ending the Keeper
	ended    sync.WaitGroup
	wake     chan struct{} // capacity 1: something has changed

	looking chan struct{} // capacity 1: full during a scan of the stack
	netlink *stacknet.Netlink
	memory  Memory
	last    []string // the last changes made
	joins   joins

	mu      sync.Mutex
	known   []Want // of the last scan
	indexes []int  // of their interfaces
}

// New returns a Keeper for the stack behind conn. wants returns the present
// wishes for its interfaces. Until Start has returned, the Keeper ends with
// ctx.
func New(ctx context.Context, conn *stackconn.Conn, wants func() []Want, log *slog.Logger) *Keeper {
	k := &Keeper{conn: conn, wants: wants, log: log, now: time.Now, wake: make(chan struct{}, 1), looking: make(chan struct{}, 1)}
	k.joins.wake = make(chan struct{}, 1)
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.starting = context.AfterFunc(ctx, k.cancel)
	return k
}

// Netlink returns the Keeper's connection, for use before Start.
func (k *Keeper) Netlink() (*stacknet.Netlink, error) {
	if k.netlink == nil {
		n, err := stacknet.Open(k.ctx, k.conn)
		if err != nil {
			return nil, err
		}
		k.netlink = n
	}
	return k.netlink, nil
}

// Start creates the paths and maintains them until Stop.
func (k *Keeper) Start() error {
	_, err := k.sync()
	if !k.starting() && err == nil {
		err = k.ctx.Err()
	}
	if err != nil {
		k.cancel()
		return err
	}
	// The rest of the start and the program's own start come first. Each of the three
	// begins with a scan, so it misses no change.
	k.ended.Go(func() {
		select {
		case <-time.After(rest):
		case <-k.ctx.Done():
			return
		}
		k.ended.Go(func() { k.listenForever("listening to the stack's rtnetlink", k.receive) })
		k.ended.Go(k.keep)
		k.ended.Go(k.rejoin)
	})
	return nil
}

// Stop ends the maintenance. The stack keeps its present configuration.
func (k *Keeper) Stop() {
	k.cancel()
	k.ended.Wait()
	k.looking <- struct{}{} // scans that Sync no longer waits for have also ended
	<-k.looking
}

// Changed reports that the result of wants has changed.
func (k *Keeper) Changed() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Sync updates the paths to the present wishes. If a change fails, it still
// makes the other changes, and returns the first error. It waits for at most
// SyncLimit; later answers are handled in the background.
func (k *Keeper) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, SyncLimit, fmt.Errorf("configuring the interfaces' paths: the stack did not answer within %v", SyncLimit))
	defer cancel()
	select {
	case k.looking <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-k.looking }()
		_, err := k.reconcile()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sync calls reconcile when no other scan is running.
func (k *Keeper) sync() (again time.Duration, err error) {
	select {
	case k.looking <- struct{}{}:
	case <-k.ctx.Done():
		return 0, k.ctx.Err()
	}
	defer func() { <-k.looking }()
	return k.reconcile()
}

// reconcile updates the paths and returns when to scan again, or zero. Another
// scan is needed if
//
//   - there is a new endpoint, which needs time to settle;
//   - a deleted endpoint may not come back yet;
//   - an endpoint stays for connections that may have found another path.
func (k *Keeper) reconcile() (again time.Duration, err error) {
	n, err := k.Netlink()
	if err != nil {
		return 0, err
	}
	wants := k.wants()
	state, err := look(n, wants)
	if err != nil {
		n.Close()
		k.netlink = nil
		return 0, err
	}
	if cut := state.cutOff(wants); len(cut) > 0 {
		if state.Alone, err = alone(k.ctx, k.conn, cut); err != nil {
			k.log.Debug("looking for connections with one path", "error", err)
		}
	}
	k.remember(wants, state)
	changes, notes := Reconcile(state, wants, &k.memory, k.now())
	for _, note := range notes {
		k.log.Debug(note)
	}
	var texts []string
	for _, c := range changes {
		texts = append(texts, c.String())
	}
	// The stack does not report when the endpoint was created.
	again = k.memory.held
	if len(state.Alone) > 0 {
		again = Settle / 4
	}
	if len(changes) == 0 || slices.Equal(texts, k.last) {
		k.last = texts
		return again, nil
	}
	k.last = texts
	var left []netip.Addr
	for i, e := range do(n, changes) {
		if e == nil {
			k.log.Debug("in the stack: " + texts[i])
		} else {
			k.log.Debug("in the stack: "+texts[i], "error", e)
			k.memory.failed(changes[i])
			err = cmp.Or(err, fmt.Errorf("%s: %w", texts[i], e))
		}
		if changes[i].AddEndpoint != nil {
			again = cmp.Or(again, Settle) // Settle is the longest of these delays
		}
		if gone := changes[i].DelEndpoint; gone != nil {
			left = append(left, gone.Addr)
		}
	}
	if len(left) > 0 {
		if err := abandon(k.ctx, k.conn, left); err != nil {
			k.log.Debug("closing subflows without a path", "error", err)
		}
	}
	k.joins.lookSoon(k.now())
	k.Changed() // this is a change too
	return again, err
}

// look reads the state that Reconcile needs.
func look(n *stacknet.Netlink, wants []Want) (*State, error) {
	var (
		s         State
		endpoints bool
		err       error
	)
	for _, w := range wants {
		l, ok, err := n.Link(w.Name)
		if err != nil {
			return nil, err
		}
		if ok {
			s.Links = append(s.Links, l)
		}
		endpoints = endpoints || w.Endpoint != 0
	}
	if s.Addrs, err = n.Addresses(); err != nil {
		return nil, err
	}
	if s.Routes, err = n.Routes(); err != nil {
		return nil, err
	}
	// A kernel without policy routing has no rules to list.
	if s.Rules, err = n.Rules(); errors.Is(err, syscall.EOPNOTSUPP) {
		s.OneTable = true
	} else if err != nil {
		return nil, err
	}
	if endpoints {
		if s.Endpoints, err = n.Endpoints(); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// do makes changes and returns the result of each.
func do(n *stacknet.Netlink, changes []Change) []error {
	var all []stacknet.Request
	errs := make([]error, len(changes))
	for i, c := range changes {
		if c.Refresh == 0 {
			all = append(all, c.request())
			continue
		}
		// Refreshes come first. Nothing waits for their answers.
		ask, err := n.Unanswered(c.Refresh)
		errs[i] = cmp.Or(err, errors.Join(n.Do(ask...)...))
	}
	copy(errs[len(errs)-len(all):], n.Do(all...))
	return errs
}

func (c Change) request() stacknet.Request {
	switch {
	case c.SetRoute != nil:
		return stacknet.SetRoute(*c.SetRoute)
	case c.DelRoute != nil:
		return stacknet.DelRoute(*c.DelRoute)
	case c.AddRule != nil:
		return stacknet.AddRule(*c.AddRule)
	case c.DelRule != nil:
		return stacknet.DelRule(*c.DelRule)
	case c.AddEndpoint != nil:
		return stacknet.AddEndpoint(*c.AddEndpoint)
	default:
		return stacknet.DelEndpoint(*c.DelEndpoint)
	}
}

// keep scans the stack whenever there is a reason.
func (k *Keeper) keep() {
	again := time.NewTimer(Settle) // for the endpoints that Start has added
	defer again.Stop()
	for {
		select {
		case <-k.wake:
		case <-again.C:
		case <-k.ctx.Done():
			return
		}
		soon, err := k.sync()
		if k.ctx.Err() != nil || errors.Is(err, stackconn.ErrClosed) {
			return
		}
		if err != nil {
			k.log.Debug("maintaining the paths", "error", err)
		}
		if err != nil {
			soon = cmp.Or(soon, Settle)
		}
		if soon > 0 {
			again.Reset(soon)
		}
		select {
		case <-time.After(rest):
		case <-k.ctx.Done():
			return
		}
	}
}
