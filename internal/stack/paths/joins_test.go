// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"net/netip"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
)

// joinWorld is a clock controlled by tests of joins, and the events of a
// connection's subflow.
type joinWorld struct {
	*testing.T
	joins
	now time.Time
	key join
}

func newJoinWorld(t *testing.T) *joinWorld {
	return &joinWorld{T: t, joins: joins{wake: make(chan struct{}, 1)}, now: time.Unix(1e9, 0), key: join{7, netip.MustParseAddr("10.2.0.2")}}
}

func (w *joinWorld) event(kind mptcpevent.Kind) {
	w.handleEvent(mptcpevent.Event{Kind: kind, Token: w.key.token, Local: netip.AddrPortFrom(w.key.addr, 999)}, w.now)
}

// tries advances the clock to the next try and returns the delay.
func (w *joinWorld) tries() time.Duration {
	w.Helper()
	at := w.next()
	if at.IsZero() {
		w.Fatal("nothing is to be tried")
	}
	took := at.Sub(w.now)
	if early := w.due(at.Add(-1)); len(early) > 0 {
		w.Errorf("due before its time: %v", early)
	}
	w.now = at
	if due := w.due(w.now); len(due) != 1 || due[0] != w.key {
		w.Fatalf("due: %v", due)
	}
	w.recordAttempt(w.key, w.now)
	return took
}

func (w *joinWorld) after(took, want time.Duration) {
	w.Helper()
	if took < want*3/4 || took > want*5/4 {
		w.Errorf("tried after %v, want some %v", took, want)
	}
}

// Failed subflows are tried again at growing intervals, and other subflows are
// not.
func TestJoinsBackOff(t *testing.T) {
	w := newJoinWorld(t)
	w.event(mptcpevent.SubEstablished)
	if at := w.next(); !at.IsZero() {
		t.Fatalf("a subflow that is there is tried at %v", at)
	}
	w.event(mptcpevent.SubClosed)
	for _, s := range []time.Duration{1, 2, 4, 8, 16, 24, 24, 24} {
		w.after(w.tries(), s*time.Second)
		w.now = w.now.Add(time.Millisecond)
		w.event(mptcpevent.SubClosed) // refused
		w.now = w.now.Add(-time.Millisecond)
	}
	w.done(w.key)
	if at := w.next(); !at.IsZero() {
		t.Errorf("what is done is tried at %v", at)
	}
}

// A peer that accepts a subflow and ends it at once is tried no more often than
// one that refuses it. A subflow that has lived for a while resets the delay.
func TestJoinsLived(t *testing.T) {
	for _, lived := range []time.Duration{joinLived - 1, joinLived} {
		w := newJoinWorld(t)
		w.event(mptcpevent.SubClosed)
		for range 4 {
			w.tries()
		}
		w.event(mptcpevent.SubEstablished)
		w.now = w.now.Add(lived)
		w.event(mptcpevent.SubClosed)
		if want := 16 * time.Second; lived < joinLived {
			w.after(w.tries()+lived, want)
		} else {
			w.after(w.tries(), joinFirst)
		}
	}
}

// A search happens once, Settle after its first reason, or at once when events
// were lost.
func TestJoinsLook(t *testing.T) {
	w := newJoinWorld(t)
	w.lookSoon(w.now)
	w.lookSoon(w.now.Add(Settle / 2))
	if at := w.next(); at != w.now.Add(Settle) || w.toLook(at.Add(-1)) || !w.toLook(at) || w.toLook(at) {
		t.Errorf("a look at %v", at)
	}
	w.handleEvent(mptcpevent.Event{Kind: mptcpevent.Lost}, w.now)
	if at := w.next(); at != w.now {
		t.Errorf("events were lost, and the look is at %v", at)
	}
	w.postpone(w.now)
	if at := w.next(); at != w.now.Add(Settle) {
		t.Errorf("the stack could not be asked, and the look is at %v", at)
	}
	w.toLook(w.next())
	w.addMissing(w.key, w.now)
	w.tries()
	w.addMissing(w.key, w.now) // already known
	w.after(w.tries(), 2*time.Second)
}
