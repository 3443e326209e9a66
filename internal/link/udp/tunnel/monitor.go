// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// How a cut path is noticed: as long as packets arrive, the path works. If none
// has arrived for quietFor although the stack uses the path, the monitor sends an
// echo request to the gateway. If no packet arrives within the limit, the path is
// cut. A path that the stack does not use costs one echo request in holdFor,
// which also keeps the state of NATs on the way.
const (
	quietFor  = 200 * time.Millisecond
	activeFor = 3 * time.Second // after the last packet, the stack still uses the path
	holdFor   = 25 * time.Second
	repeat    = 150 * time.Millisecond // between echo requests without an answer
	minLimit  = 500 * time.Millisecond // for an answer
	maxLimit  = 5 * time.Second
	longCut   = 2 * time.Second
)

// retryAfter returns the time between tries to use a path again.
func retryAfter(cutFor time.Duration) time.Duration {
	switch {
	case cutFor < 10*time.Second:
		return 500 * time.Millisecond
	case cutFor < time.Minute:
		return 2 * time.Second
	}
	return 10 * time.Second
}

// action is what the monitor has to do.
type action int

const (
	nothing action = iota
	ask            // send an echo request
	cut            // report that the path is cut
	retry          // open a new socket, and send an echo request
	up             // report that the path works again
)

// path is the state of a path. All times count from the start.
type path struct {
	isCut bool
	since time.Duration // start of the cut
	asked time.Duration // time of the first echo request without an answer; 0: none
	last  time.Duration // time of the last echo request
	limit time.Duration // for an answer; 0: minLimit
}

// times are the times of the last packets.
type times struct {
	now      time.Duration
	received time.Duration // from the gateway
	used     time.Duration // of the stack, in either direction
}

// step returns what to do now, and the time until the next step.
func (p *path) step(t times, failed bool) (action, time.Duration) {
	if p.asked != 0 && t.received >= p.asked {
		p.measured(t.received - p.asked)
		p.asked = 0
	}
	if p.isCut {
		return p.whileCut(t)
	}
	if failed {
		return p.cut(t)
	}
	if p.asked != 0 {
		limit := max(p.limit, minLimit)
		switch {
		case t.now-p.asked >= limit:
			return p.cut(t)
		case t.now-p.last >= repeat:
			p.last = t.now
			return ask, min(repeat, limit-(t.now-p.asked))
		}
		return nothing, min(repeat-(t.now-p.last), limit-(t.now-p.asked))
	}
	quiet := holdFor
	if t.now-t.used < activeFor {
		quiet = quietFor
	}
	if left := quiet - (t.now - t.received); left > 0 {
		return nothing, left
	}
	p.asked, p.last = t.now, t.now
	return ask, repeat
}

// measured adapts the limit to the time that an answer took. The answer may have
// been another packet, so a shorter time counts only slowly.
func (p *path) measured(took time.Duration) {
	p.limit = min(max(minLimit, 3*took, p.limit*7/8), maxLimit)
}

func (p *path) cut(t times) (action, time.Duration) {
	p.isCut, p.since, p.last, p.asked = true, t.now, t.now, 0
	return cut, retryAfter(0)
}

func (p *path) whileCut(t times) (action, time.Duration) {
	if t.received > p.since {
		p.isCut = false
		return up, quietFor
	}
	every := retryAfter(t.now - p.since)
	if left := every - (t.now - p.last); left > 0 {
		return nothing, left
	}
	p.last = t.now
	return retry, every
}

// monitor notices that a path is cut, and that it works again.
type monitor struct {
	probe  func()          // sends an echo request
	rebind func(long bool) // opens a new socket
	report func(carries bool)

	start       time.Time
	lastHeard   atomic.Int64 // nanoseconds since the start
	lastUsed    atomic.Int64
	unreachable atomic.Bool   // the host has no way to the gateway
	sleeping    atomic.Bool   // the next packet of the stack must wake the monitor
	wake        chan struct{} // capacity 1
	path        path

	mu  sync.Mutex
	err error // the last error of the host's network
}

func newMonitor(report func(bool)) *monitor {
	// The start is before all packets, so that no time is 0.
	return &monitor{report: report, start: time.Now().Add(-time.Second), wake: make(chan struct{}, 1)}
}

func (m *monitor) now() time.Duration { return time.Since(m.start) }

// recordReceived records a packet of the gateway, which may be for the stack.
func (m *monitor) recordReceived(forStack bool) {
	now := int64(m.now())
	m.lastHeard.Store(now)
	if forStack {
		m.use(now)
	}
	if m.sleeping.Load() {
		m.sendProbe()
	}
}

// sent records a packet of the stack.
func (m *monitor) sent() { m.use(int64(m.now())) }

func (m *monitor) use(now int64) {
	m.lastUsed.Store(now)
	if m.sleeping.Load() {
		m.sendProbe()
	}
}

// fail records that the host has no way to the gateway.
func (m *monitor) fail(err error) {
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	m.unreachable.Store(true)
	m.sendProbe()
}

func (m *monitor) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *monitor) sendProbe() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// answers reports whether the gateway answers an echo request.
func (m *monitor) answers(ctx context.Context, probe func()) bool {
	m.sleeping.Store(true)
	defer m.sleeping.Store(false)
	again := time.NewTicker(repeat)
	defer again.Stop()
	began := m.now()
	for limit := time.After(echoLimit); ; {
		probe()
		select {
		case <-m.wake:
			if heard := time.Duration(m.lastHeard.Load()); heard != 0 {
				m.path.measured(heard - began)
				return true
			}
		case <-again.C:
		case <-limit:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// run watches the path until ctx ends.
func (m *monitor) run(ctx context.Context) {
	m.unreachable.Store(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-m.wake:
		}
		m.sleeping.Store(false)
		t := times{now: m.now(), received: time.Duration(m.lastHeard.Load()), used: time.Duration(m.lastUsed.Load())}
		do, wait := m.path.step(t, m.unreachable.Swap(false))
		m.do(do, t)
		// While the stack uses the path, the timer suffices. Otherwise its
		// next packet must wake us.
		m.sleeping.Store(wait > repeat)
		timer.Reset(wait)
	}
}

func (m *monitor) do(do action, t times) {
	switch do {
	case ask:
		m.probe()
	case cut:
		m.report(false)
	case retry:
		m.rebind(t.now-m.path.since >= longCut)
		m.probe()
	case up:
		m.report(true)
	case nothing:
	}
}
