// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// LeastDelay is the delay of a wire that has none. A round cannot be shorter.
const LeastDelay = 10 * time.Microsecond

// Wire is the state of a wire: what each end does with the packets that it receives, as
// in a lab in real time.
type Wire struct {
	stacknet.Impairment
	Carrier bool // the ends have carrier
}

// least returns the least delay of a packet.
func (w *Wire) least() uint64 {
	d := w.Netem.Delay - w.Netem.Jitter
	if w.Netem.Reorder > 0 {
		d = 0
	}
	return uint64(max(d, LeastDelay))
}

// wireEnd is an end of a wire, with the queue of the packets that it receives. In real
// time, this queue is netem's in the receiver's stack: the rules are those of
// netem_enqueue() in net/sched/sch_netem.c. Here it must be outside of the stack,
// because the delay is the time for which nodes run without each other.
type wireEnd struct {
	end
	due []uint64 // times at which the packets leave the queue, in order
}

// receive returns the frames that an end gets of one that was sent at the time at.
func (e *wireEnd) receive(w *Wire, r *rand.Rand, at uint64, data []byte) (frames []frame) {
	hit := func(p float64) bool { return p > 0 && r.Float64() < p }
	n := &w.Netem
	copies := 1
	if hit(n.Duplicate) {
		copies++
	}
	if hit(n.Loss) {
		copies--
	}
	if w.Drop {
		return nil
	}
	for range copies {
		if hit(n.Corrupt) {
			data = slices.Clone(data)
			data[r.IntN(len(data))] ^= 1 << r.IntN(8)
		}
		if due, ok := e.enqueue(n, r, at, len(data)); ok {
			frames = append(frames, frame{e.end, max(due, at+uint64(LeastDelay)), data})
		}
	}
	return frames
}

// enqueue returns the time at which a packet leaves the queue; ok is false if the queue is
// full.
func (e *wireEnd) enqueue(n *stacknet.Netem, r *rand.Rand, at uint64, length int) (due uint64, ok bool) {
	gone, _ := slices.BinarySearch(e.due, at+1)
	e.due = e.due[gone:]
	if n.Limit > 0 && len(e.due) >= int(n.Limit) {
		return 0, false
	}
	due = at
	if n.Reorder == 0 || r.Float64() >= n.Reorder {
		due += uint64(n.Delay)
		if n.Jitter > 0 {
			due += uint64(r.Int64N(2 * int64(n.Jitter)))
			due -= uint64(n.Jitter)
		}
		if n.Rate > 0 {
			if last := len(e.due) - 1; last >= 0 {
				due = max(due, e.due[last])
			}
			due += uint64(length) * 8 * uint64(time.Second) / n.Rate
		}
	}
	k, _ := slices.BinarySearch(e.due, due+1)
	e.due = slices.Insert(e.due, k, due)
	return due, true
}
