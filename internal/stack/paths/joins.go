// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"sort"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
)

// Delays until a connection tries an endpoint again. The first is joinFirst. It
// doubles with each try up to joinMost, and is randomised by a quarter. A
// subflow that has lived for joinLived does not count as a failure.
const (
	joinFirst = time.Second
	joinMost  = 24 * time.Second
	joinLived = 2 * time.Second
)

// joins tracks the subflows that connections should have but lack. The kernel
// tries each endpoint only once per connection. The zero joins is ready to use.
type joins struct {
	mu   sync.Mutex
	all  map[join]*attempt
	look time.Time     // when to search for connections that lack a subflow; zero: not needed
	wake chan struct{} // capacity 1: the result of next has changed

	chance *rand.Rand // for the delays; nil: not repeatable
}

// join is a connection and the address of an endpoint.
type join struct {
	token mptcpevent.Token
	addr  netip.Addr
}

// attempt is the state of a join. It is deleted when the stack reports that the
// subflow exists or is impossible.
type attempt struct {
	retries int // number of retries
	at      time.Time
	lives   time.Time // start of its present subflow; zero: none
}

// handleEvent handles an event: a closed subflow must be tried again.
func (j *joins) handleEvent(e mptcpevent.Event, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := join{e.Token, e.Local.Addr()}
	a := j.all[key]
	switch {
	case e.Kind == mptcpevent.Lost:
		j.lookAt(now)
	case e.Kind == mptcpevent.SubEstablished && a != nil:
		a.lives = now
	case e.Kind == mptcpevent.SubClosed && a == nil:
		j.add(key, now.Add(j.later(joinFirst)))
	case e.Kind == mptcpevent.SubClosed && !a.lives.IsZero():
		if now.Sub(a.lives) >= joinLived {
			*a = attempt{at: now.Add(j.later(joinFirst))}
		}
		a.lives = time.Time{}
	default:
		return
	}
	j.tell()
}

// addMissing records that a connection has no subflow from an endpoint.
func (j *joins) addMissing(key join, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all[key] == nil {
		j.add(key, now)
	}
}

func (j *joins) add(key join, at time.Time) {
	if j.all == nil {
		j.all = map[join]*attempt{}
	}
	j.all[key] = &attempt{at: at}
}

// lookSoon schedules a search after Settle, because more subflows may be
// possible now.
func (j *joins) lookSoon(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lookAt(now.Add(Settle))
	j.tell()
}

func (j *joins) lookAt(at time.Time) {
	if j.look.IsZero() || at.Before(j.look) {
		j.look = at
	}
}

func (j *joins) tell() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// next returns the time of the next action; zero: none.
func (j *joins) next() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	soonest := j.look
	for _, a := range j.all {
		if soonest.IsZero() || a.at.Before(soonest) {
			soonest = a.at
		}
	}
	return soonest
}

// toLook reports, once, that it is time to search for connections that lack a
// subflow.
func (j *joins) toLook(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.look.IsZero() || now.Before(j.look) {
		return false
	}
	j.look = time.Time{}
	return true
}

// due returns the joins that must be tried now.
func (j *joins) due(now time.Time) (keys []join) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, a := range j.all {
		if !now.Before(a.at) {
			keys = append(keys, key)
		}
	}
	sort.Slice(keys, func(i, k int) bool {
		a, b := keys[i], keys[k]
		return cmp.Or(cmp.Compare(a.token, b.token), a.addr.Compare(b.addr)) < 0
	})
	return keys
}

// recordAttempt records that a join is in progress, and schedules the next try.
func (j *joins) recordAttempt(key join, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a := j.all[key]; a != nil {
		a.at = now.Add(j.later(min(joinFirst<<min(a.retries+1, 16), joinMost)))
		a.retries++
	}
}

// postpone delays the due actions after a failed query of the stack.
func (j *joins) postpone(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.all {
		if !now.Before(a.at) {
			a.at = now.Add(j.later(joinFirst))
		}
	}
	if !j.look.IsZero() && !now.Before(j.look) {
		j.look = now.Add(Settle)
	}
}

// done removes a join that needs no more action.
func (j *joins) done(key join) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.all, key)
}

// later randomises a delay, so that joins that failed at the same time are
// retried at different times.
func (j *joins) later(d time.Duration) time.Duration {
	if j.chance != nil {
		return d*3/4 + time.Duration(j.chance.Int64N(int64(d/2)))
	}
	return d*3/4 + rand.N(d/2)
}
