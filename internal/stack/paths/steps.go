// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Steps maintains the paths of a stack in virtual time as a Keeper does in real time. It
// does nothing by itself and uses no clock of its own: the caller decides when the next
// step is, and what time it is then.
//
// Nothing happens in the stack during a step. A call that would wait for an event fails
// with EDEADLK, and the caller learns that the event is there from the stack's process.
type Steps struct {
	k       *Keeper
	now     time.Time
	again   time.Time           // of the next scan; zero: none is needed
	changes *netlink.Conn       // reports changes of the stack; nil before the first step
	joins   *mptcpevent.Watcher // reports subflows; nil: the stack does not retry them
	file    *stackconn.File     // retries subflows
}

// NewSteps returns the Steps for the stack behind conn. wants are the wishes for its
// interfaces. Two with the same seed make the same decisions.
func NewSteps(ctx context.Context, conn *stackconn.Conn, wants []Want, seed uint64) *Steps {
	s := &Steps{}
	s.k = New(ctx, conn, func() []Want { return wants }, slog.New(slog.DiscardHandler))
	s.k.now = func() time.Time { return s.now }
	s.k.joins.chance = rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	return s
}

// Netlink returns the connection of the Steps.
func (s *Steps) Netlink() (*stacknet.Netlink, error) { return s.k.Netlink() }

// Close ends the Steps. The stack keeps its present configuration.
func (s *Steps) Close() { s.k.cancel() }

// Step does what is due, and handles the changes that the stack has reported. It returns the
// time at which more will be due; zero: only after another change.
func (s *Steps) Step(now time.Time) (next time.Time, err error) {
	first := s.changes == nil
	if s.now = now; first {
		if err := s.start(); err != nil {
			return next, err
		}
	} else if err := s.listen(); err != nil {
		return next, err
	}
	if first || s.woken() || !s.again.IsZero() && !now.Before(s.again) {
		s.again = time.Time{}
		soon, err := s.k.reconcile()
		switch {
		case err != nil && (first || errors.Is(err, stackconn.ErrClosed)):
			return next, err
		case err != nil:
			soon = Settle
		case s.woken():
			soon = rest
		}
		if soon > 0 {
			s.again = now.Add(soon)
		}
	}
	next = s.again
	if s.joins == nil {
		return next, nil
	}
	if at := s.k.joins.next(); !at.IsZero() && !now.Before(at) {
		if err := s.k.join(s.file); err != nil {
			return next, err
		}
	}
	if at := s.k.joins.next(); next.IsZero() || !at.IsZero() && at.Before(next) {
		next = at
	}
	if !next.IsZero() && next.Before(now.Add(rest)) {
		next = now.Add(rest)
	}
	return next, nil
}

// start opens the connections that report changes.
func (s *Steps) start() (err error) {
	if s.changes, err = s.k.openChanges(); err != nil {
		return err
	}
	if s.file, err = s.k.conn.Open(s.k.ctx, stacknet.JoinFile, unix.O_WRONLY); errors.Is(err, syscall.ENOENT) {
		return s.listen() // a stack without MPTCP
	} else if err != nil {
		return err
	}
	if s.joins, err = s.k.openJoins(); err != nil {
		return err
	}
	return s.listen()
}

// listen handles what the stack has reported.
func (s *Steps) listen() error {
	err := s.k.runChanges(s.changes)
	if errors.Is(err, syscall.EDEADLK) && s.joins != nil {
		err = s.k.runJoins(s.joins)
	}
	if errors.Is(err, syscall.EDEADLK) {
		return nil
	}
	return err
}

// woken reports, once, whether the stack has changed.
func (s *Steps) woken() bool {
	select {
	case <-s.k.wake:
		return true
	default:
		return false
	}
}
