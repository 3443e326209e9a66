// SPDX-License-Identifier: Apache-2.0

package virtual

import (
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
	chance
	due []uint64 // times at which the packets leave the queue, in order
}

// receive returns the frames that an end gets of one that was sent at the time at, or of
// the copy that netem makes of it. The order of the random decisions is netem's.
func (e *wireEnd) receive(w *Wire, at uint64, data []byte, isCopy bool) (frames []frame) {
	n := &w.Netem
	if w.Drop {
		return nil
	}
	copies, sent := 1, data
	if !isCopy && e.hit(n.Duplicate) {
		copies++
	}
	if e.hit(n.Loss) {
		copies--
	}
	if copies == 0 {
		return nil
	}
	if e.hit(n.Corrupt) {
		data = slices.Clone(data)
		data[e.chance[0]%uint32(len(data))] ^= 1 << (e.chance[1] % 8)
	}
	gone, _ := slices.BinarySearch(e.due, at+1)
	e.due = e.due[gone:]
	if n.Limit > 0 && len(e.due) >= int(n.Limit) {
		return nil
	}
	if copies > 1 {
		frames = e.receive(w, at, sent, true)
	}
	return append(frames, frame{e.end, max(e.enqueue(n, at, len(data)), at+uint64(LeastDelay)), data})
}

// enqueue returns the time at which a packet leaves the queue.
func (e *wireEnd) enqueue(n *stacknet.Netem, at uint64, length int) (due uint64) {
	due = at
	if !e.hit(n.Reorder) {
		due += uint64(n.Delay)
		if n.Jitter > 0 {
			due += uint64(e.next() % uint32(2*n.Jitter))
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
	return due
}

// chance makes the random decisions of netem, so that a seed loses the same packets as in
// real time: the state of prandom_u32_state() in lib/random32.c, P. L'Ecuyer's taus113.
type chance [4]uint32

func newChance(seed uint64) (c chance) {
	for k, least := range [...]uint32{2, 8, 16, 128} {
		if c[k] = uint32(seed>>32 ^ seed<<10 ^ seed); c[k] < least {
			c[k] += least
		}
	}
	return c
}

// next returns the next random number.
func (c *chance) next() uint32 {
	for k, p := range [...]struct{ a, b, unused, d int }{{6, 13, 1, 18}, {2, 27, 3, 2}, {13, 21, 4, 7}, {3, 12, 7, 13}} {
		c[k] = c[k]>>p.unused<<p.unused<<p.d ^ (c[k]<<p.a^c[k])>>p.b
	}
	return c[0] ^ c[1] ^ c[2] ^ c[3]
}

// hit decides with a probability.
func (c *chance) hit(p float64) bool { return p > 0 && c.next() <= stacknet.Chance(p) }
