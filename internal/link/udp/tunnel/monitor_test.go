// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// world is a path whose gateway answers after delay, or not.
type world struct {
	path
	times
	delay   time.Duration
	answers bool
	pending time.Duration // arrival of the next answer; 0: none
	asks    int
}

// runs lets time pass until the end, or until an action other than asking.
func (w *world) runs(until time.Duration) action {
	for {
		if w.pending != 0 && w.now >= w.pending {
			w.received, w.pending = w.pending, 0
		}
		do, wait := w.step(w.times, false)
		switch do {
		case ask, retry:
			w.asks++
			if w.answers && w.pending == 0 {
				w.pending = w.now + w.delay
			}
		case cut, up:
			return do
		case nothing:
		}
		next := w.now + wait
		if w.pending != 0 {
			next = min(next, max(w.pending, w.now+1))
		}
		if next > until {
			w.now = until
			return nothing
		}
		w.now = next
	}
}

// A path that the stack uses is cut at most a second after the last packet, and an idle one
// costs few packets.
func TestMonitor(t *testing.T) {
	w := &world{times: times{now: time.Second, received: time.Second}, delay: 20 * ms, answers: true}
	if do := w.runs(10 * time.Minute); do != nothing || w.asks > 40 {
		t.Errorf("idle for 10 minutes: %v, %d echo requests", do, w.asks)
	}
	w.used = w.now
	w.asks = 0
	if do := w.runs(w.now + 2*time.Second); do != nothing || w.asks == 0 {
		t.Errorf("after a packet of the stack: %v, %d echo requests", do, w.asks)
	}
	w.answers, w.pending = false, 0
	w.used, w.received = w.now, w.now
	began := w.now
	if do := w.runs(w.now + time.Minute); do != cut || w.now-began > time.Second {
		t.Errorf("a silent gateway: %v after %v", do, w.now-began)
	}
	began = w.now
	w.asks = 0
	if do := w.runs(w.now + time.Hour); do != nothing || w.asks < 100 || w.asks > 500 {
		t.Errorf("an hour without an answer: %v, %d tries", do, w.asks)
	}
	w.answers = true
	if do := w.runs(w.now + time.Minute); do != up {
		t.Errorf("an answer after %v: %v", w.now-began, do)
	}
}

// A path with a long delay is not mistaken for a cut one.
func TestMonitorSlow(t *testing.T) {
	w := &world{times: times{now: time.Second, received: time.Second}, delay: 800 * ms, answers: true}
	w.measured(w.delay)
	for range 20 {
		w.used = w.now
		if do := w.runs(w.now + time.Second); do != nothing {
			t.Fatalf("a slow gateway: %v", do)
		}
	}
}

// An error of the host's network cuts the path at once.
func TestMonitorUnreachable(t *testing.T) {
	p := path{}
	if do, _ := p.step(times{now: time.Second, received: time.Second, used: time.Second}, true); do != cut {
		t.Errorf("%v", do)
	}
}
