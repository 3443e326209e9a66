// SPDX-License-Identifier: Apache-2.0

// Package clat follows the network under a clat interface: its NAT64 prefix, by router
// advertisements (RFC 8781) or DNS (RFC 7050), and the stack's IPv6 address there. It
// configures the translator, and the stack's forwarding between both interfaces.
package clat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/link/clat"
	"github.com/lklrun/lklrun/internal/link/clat/siit"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

const (
	// ReadyLimit bounds the wait of a start for a prefix.
	ReadyLimit = 3 * time.Second
	stopLimit  = 5 * time.Second
	// The waits between unsuccessful attempts, which double.
	firstPause, lastPause = 2 * time.Second, 5 * time.Minute
	// rest is the minimum time between two attempts, for a flood of changes.
	rest = 50 * time.Millisecond
)

// Uplink is an interface that a clat can be over.
type Uplink struct {
	Name    string // of the stack's device
	Table   int    // its own routing table
	Shared  bool   // it has the host's address, so packets to other addresses do not reach it
	Servers []netip.Addr
}

// Options are the parameters of a Service.
type Options struct {
	Conn       *stackconn.Conn
	Name       string // of the stack's device
	Plan       clat.Part
	Metric     int                                      // of its default route
	Translate  func(own netip.Addr, nat64 netip.Prefix) // link.End.CLAT
	Uplinks    func() []Uplink                          // in order
	Forwarding *Forwarding                              // of the stack
	Log        *slog.Logger
	Tell       func(string) // prints a line for the user
}

// Service follows the network under one clat.
type Service struct {
	Options

	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // capacity 1
	ready  chan struct{} // closed when IPv4 works for the first time

	mu         sync.Mutex
	announced  map[int]map[netip.Addr]announcement // prefixes of each interface, by router
	why        string                              // why IPv4 does not work; empty: it does
	toldReady  bool
	applied    *state             // nil: none
	complete   bool               // all settings of applied have been made
	stopAsking context.CancelFunc // ends the DNS queries; nil: there are none

	found      finding // of the last DNS query
	identifier [8]byte // of our IPv6 address
}

type announcement struct {
	prefix netip.Prefix
	until  time.Time
}

// New returns the service of a clat.
func New(o Options) *Service {
	return &Service{Options: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), announced: map[int]map[netip.Addr]announcement{}}
}

// Start starts to look for a network. It does not wait for it; Await does.
func (s *Service) Start(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.newIdentifier()
	s.work.Go(func() { s.monitor(run) })
	s.work.Go(func() { s.follow(run) })
	return nil
}

// Stop ends the translation and undoes the settings in the stack.
func (s *Service) Stop() {
	s.cancel()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := errors.Join(s.set(ctx, nil), s.Forwarding.stop(ctx, s.Conn, s.Name)); err != nil {
		s.Log.Debug("clat: undoing the settings", "link", s.Name, "error", err)
	}
}

// Await waits until IPv4 works, or a limit, and returns why it does not.
func (s *Service) Await(ctx context.Context) error {
	limit := time.NewTimer(ReadyLimit)
	defer limit.Stop()
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-limit.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toldReady = true // print the later success
	return errors.New(s.why)
}

// monitor reports changes of the stack's interfaces to follow.
func (s *Service) monitor(ctx context.Context) {
	for ctx.Err() == nil {
		err := stacknet.Monitor(ctx, s.Conn, func(n stacknet.News) {
			if n.PREF64 != nil {
				s.announce(n.IfIndex, n.PREF64)
			}
			s.signal()
		})
		if errors.Is(err, stackconn.ErrClosed) || ctx.Err() != nil {
			return
		}
		s.Log.Debug("clat: watching the interfaces", "link", s.Name, "error", err)
		sleep(ctx, firstPause)
	}
}

func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// mostRouters is the maximum number of routers of an interface whose prefixes are kept.
const mostRouters = 8

// announce stores the prefix that a router announces.
func (s *Service) announce(ifindex int, p *stacknet.PREF64) {
	if siit.CheckPrefix(p.Prefix) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.announced[ifindex]
	if of == nil {
		of = map[netip.Addr]announcement{}
		s.announced[ifindex] = of
	}
	delete(of, p.Router)
	if p.Lifetime > 0 && len(of) < mostRouters {
		of[p.Router] = announcement{p.Prefix, time.Now().Add(p.Lifetime)}
		if s.stopAsking != nil {
			s.stopAsking()
		}
	}
}

// pref64 returns the announced prefix of an interface, and how long it is valid. Of several,
// it is the one in use, or the lowest.
func (s *Service) pref64(ifindex int) (best netip.Prefix, valid time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for router, a := range s.announced[ifindex] {
		left := time.Until(a.until)
		inUse := s.applied != nil && s.applied.prefix == a.prefix
		switch {
		case left <= 0:
			delete(s.announced[ifindex], router)
		case !best.IsValid() || inUse || a.prefix.Addr().Less(best.Addr()) && (s.applied == nil || s.applied.prefix != best):
			best, valid = a.prefix, left
		}
	}
	return best, valid
}

// follow keeps the settings up to date until ctx is done.
func (s *Service) follow(ctx context.Context) {
	pause := firstPause
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-s.wake:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		want, valid, err := s.want(ctx)
		if ctx.Err() != nil {
			return
		}
		if serr := s.set(ctx, want); serr != nil {
			err = serr
		}
		s.report(err)
		switch {
		case errors.Is(err, stackconn.ErrClosed):
			return
		case err != nil:
			again.Reset(pause)
			pause = min(2*pause, lastPause)
		default:
			pause = firstPause
			again.Reset(valid)
		}
		sleep(ctx, rest)
	}
}

// report stores the result of an attempt, and prints what has changed for the user.
func (s *Service) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.why
	if err != nil {
		s.why = err.Error()
		s.Log.Debug("clat: IPv4 does not work", "link", s.Name, "error", err)
		if s.toldReady && before == "" {
			s.Tell(fmt.Sprintf("%s: %v; IPv4 does not work until there is one", s.Name, err))
		}
		return
	}
	s.why = ""
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	if !s.toldReady || before != "" {
		s.toldReady = true
		s.Tell(fmt.Sprintf("%s: IPv4 goes through the NAT64 %s of %s", s.Name, s.applied.prefix, s.applied.uplink))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
