// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/mptcpevent"
)

// How long until a connection tries an endpoint again: joinFirst, and twice as
// long each time, up to joinMost, each a quarter more or less. A subflow that has lived for joinLived was no
// failure.
const (
	joinFirst = time.Second
	joinMost  = 24 * time.Second
	joinLived = 2 * time.Second
)

// joins are the subflows that connections should have and have not: the kernel
// tries each endpoint once on each connection. The zero joins is ready to use.
type joins struct {
	mu   sync.Mutex
	all  map[join]*attempt
	look time.Time     // when to look for connections that lack one; zero: no need
	wake chan struct{} // of one: next would tell something else
}

// join is a connection and the address of an endpoint.
type join struct {
	token mptcpevent.Token
	addr  netip.Addr
}

// attempt is what is known of a join. It is forgotten when the stack says that
// there is a subflow, or that there will not be one.
type attempt struct {
	made  int // so many times it was tried again
	at    time.Time
	lives time.Time // it has had a subflow since; zero: none
}

// heard takes in an event: what was closed is to be tried again.
func (j *joins) heard(e mptcpevent.Event, now time.Time) {
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
		j.add(key, now.Add(later(joinFirst)))
	case e.Kind == mptcpevent.SubClosed && !a.lives.IsZero():
		if now.Sub(a.lives) >= joinLived {
			*a = attempt{at: now.Add(later(joinFirst))}
		}
		a.lives = time.Time{}
	default:
		return
	}
	j.tell()
}

// lacks says that a connection has no subflow from an endpoint.
func (j *joins) lacks(key join, now time.Time) {
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

// lookSoon says that more may be possible than before, Settle from now.
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

// next is when there is something to do; zero: nothing.
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

// toLook says whether it is time to look for connections that lack a subflow,
// once.
func (j *joins) toLook(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.look.IsZero() || now.Before(j.look) {
		return false
	}
	j.look = time.Time{}
	return true
}

// due are those whose time it is.
func (j *joins) due(now time.Time) (keys []join) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, a := range j.all {
		if !now.Before(a.at) {
			keys = append(keys, key)
		}
	}
	return keys
}

// tried says that a join is under way, or is to be later.
func (j *joins) tried(key join, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a := j.all[key]; a != nil {
		a.at = now.Add(later(min(joinFirst<<min(a.made+1, 16), joinMost)))
		a.made++
	}
}

// postpone puts off what is due, as the stack could not be asked.
func (j *joins) postpone(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.all {
		if !now.Before(a.at) {
			a.at = now.Add(later(joinFirst))
		}
	}
	if !j.look.IsZero() && !now.Before(j.look) {
		j.look = now.Add(Settle)
	}
}

// done says that nothing is to be done about a join.
func (j *joins) done(key join) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.all, key)
}

// later keeps those apart that have failed at once.
func later(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2)
}
