// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// checkEvery is the longest time until missing rules are noticed. If
	// the kernel reports changes (nftables, NFNLGRP_NFTABLES), they are
	// noticed at once.
	checkEvery = 5 * time.Second
	// checkRest is the minimum time between two checks, for a host that
	// changes its rules all the time.
	checkRest  = 100 * time.Millisecond
	checkLimit = 10 * time.Second

	nfnlgrpNFTables = 7 // NFNLGRP_NFTABLES, linux/netfilter/nfnetlink.h
)

// watching is the state of the guard's goroutines, from Start to Stop.
type watching struct {
	cancel context.CancelFunc
	done   chan struct{}
	news   *netlink.Conn // nil: the kernel does not report changes
}

// Start starts to watch the rules.
func (g *Guard) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{cancel: cancel, done: make(chan struct{})}
	// Without these reports, the timer still triggers checks.
	if c, err := (hostNetlink{}).Netlink(ctx, unix.NETLINK_NETFILTER, nfnlgrpNFTables); err == nil {
		w.news = c
	}
	g.watching = w
	changed := make(chan struct{}, 1)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for w.news != nil {
			// The content of a report does not matter. ENOBUFS
			// means that some reports were lost.
			if _, err := w.news.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return // the watch ends, or only the timer remains
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	go func() {
		defer close(w.done)
		g.watch(ctx, changed)
		if w.news != nil {
			w.news.Close() // this ends Receive
		}
		<-heard
	}()
	return nil
}

// Stop ends the watch and leaves the rules in place.
func (g *Guard) Stop() {
	if g.watching == nil {
		return
	}
	g.watching.cancel()
	<-g.watching.done
	g.watching = nil
}

func (g *Guard) watch(ctx context.Context, changed <-chan struct{}) {
	clock := time.NewTicker(checkEvery)
	defer clock.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-clock.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		g.mu.Lock()
		if g.backend != nil {
			one, cancel := context.WithTimeout(ctx, checkLimit)
			if err := g.check(one); err != nil && ctx.Err() == nil {
				g.cfg.Log.Debug("checking the guard's rules", "error", err)
			}
			cancel()
		}
		g.mu.Unlock()
		rest.Reset(checkRest)
	}
}

// check restores missing rules and updates the counters. The caller holds g.mu.
func (g *Guard) check(ctx context.Context) error {
	if len(g.set.Links) == 0 {
		return nil
	}
	complete, counted, err := g.backend.look(ctx, &g.set)
	if err != nil {
		return err
	}
	if counted.Packets < g.last.Packets { // the counters were reset, or are new
		g.earlier.add(g.last)
	}
	g.last = counted
	if complete {
		return nil
	}
	if err := g.backend.apply(ctx, &g.set); err != nil {
		if !g.failed {
			g.failed = true
			g.cfg.Tell("the host's firewall was changed, and the rules that guard the shared address cannot be restored: " + err.Error())
		}
		return err
	}
	g.failed = false
	g.earlier.add(counted)
	g.last = Count{}
	if g.restored++; g.restored == 1 {
		g.cfg.Tell("the host's firewall was changed, and lklrun has restored the rules that guard the shared address; lklctl guard counts how often this happens")
	}
	return nil
}
