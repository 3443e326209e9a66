// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mdlayher/netlink"
)

// Netem is the effect of the queueing discipline netem(8) on the packets of one
// direction. The zero value has no effect.
type Netem struct {
	Delay  time.Duration // of each packet
	Jitter time.Duration // the delay is Delay ± Jitter, uniformly

	// Probabilities, from 0 to 1.
	Loss      float64
	Duplicate float64
	Reorder   float64 // that a packet has no delay
	Corrupt   float64 // that one bit of a packet is wrong

	Rate  uint64 // bit/s; 0: unlimited
	Limit uint32 // packets in the queue; more are dropped

	// Seed makes the random decisions repeatable, from 1 to MaxSeed; 0: the kernel's
	// decisions differ each time. Every change of the options restarts the sequence.
	// It requires Linux 6.6.
	Seed uint64
}

// MaxSeed is the greatest seed of a user. Every netem has a seed, so a greater one tells
// that no user has chosen it.
const MaxSeed = math.MaxUint32

// struct tc_netem_qopt and TCA_NETEM_*, include/uapi/linux/pkt_sched.h.
const (
	sizeofNetemQopt = 24

	tcaNetemReorder   = 3 // struct tc_netem_reorder: probability, correlation
	tcaNetemCorrupt   = 4 // struct tc_netem_corrupt: the same
	tcaNetemRate      = 6 // struct tc_netem_rate: rate, overheads
	tcaNetemRate64    = 8
	tcaNetemLatency64 = 10
	tcaNetemJitter64  = 11
	tcaNetemSeed      = 14

	maxRate32 = 1<<32 - 1 // limit of tc_netem_rate.rate; larger rates are in TCA_NETEM_RATE64
)

// Chance converts a probability for netem.
func Chance(p float64) uint32 { return uint32(math.Round(p * math.MaxUint32)) }

// probability converts back, rounded to a millionth.
func probability(n uint32) float64 {
	return math.Round(float64(n)/math.MaxUint32*1e6) / 1e6
}

// options writes all options that a Netem covers: on a change the kernel keeps the
// options that are not given.
func (e Netem) options(ae *netlink.AttributeEncoder) {
	pair := func(a, b uint32) []byte {
		return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, a), b)
	}
	if e.Reorder > 0 {
		ae.Bytes(tcaNetemReorder, pair(Chance(e.Reorder), 0))
	}
	ae.Bytes(tcaNetemCorrupt, pair(Chance(e.Corrupt), 0))
	rate := e.Rate / 8
	ae.Bytes(tcaNetemRate, append(pair(uint32(min(rate, maxRate32)), 0), pair(0, 0)...))
	if rate >= maxRate32 {
		ae.Uint64(tcaNetemRate64, rate)
	}
	ae.Uint64(tcaNetemLatency64, uint64(e.Delay))
	ae.Uint64(tcaNetemJitter64, uint64(e.Jitter))
	seed := e.Seed
	if seed == 0 { // the kernel would keep an earlier seed
		seed = rand.Uint64() | 1<<63
	}
	ae.Uint64(tcaNetemSeed, seed)
}

// marshal returns netem's TCA_OPTIONS: a structure followed by attributes.
func (e Netem) marshal() ([]byte, error) {
	b := make([]byte, sizeofNetemQopt) // latency, limit, loss, gap, duplicate, jitter
	binary.NativeEndian.PutUint32(b[4:], e.Limit)
	binary.NativeEndian.PutUint32(b[8:], Chance(e.Loss))
	if e.Reorder > 0 { // as tc(8): every packet is a candidate
		binary.NativeEndian.PutUint32(b[12:], 1)
	}
	binary.NativeEndian.PutUint32(b[16:], Chance(e.Duplicate))
	attrs, err := attributes(e.options)
	return append(b, attrs...), err
}

// parseNetem parses netem's TCA_OPTIONS; ok is false if they are not netem's.
func parseNetem(b []byte) (e Netem, ok bool) {
	if len(b) < sizeofNetemQopt {
		return e, false
	}
	e.Limit = binary.NativeEndian.Uint32(b[4:])
	e.Loss = probability(binary.NativeEndian.Uint32(b[8:]))
	gap := binary.NativeEndian.Uint32(b[12:])
	e.Duplicate = probability(binary.NativeEndian.Uint32(b[16:]))
	ad, err := netlink.NewAttributeDecoder(b[sizeofNetemQopt:])
	if err != nil {
		return e, false
	}
	for ad.Next() {
		v := ad.Bytes()
		switch ad.Type() {
		case tcaNetemReorder:
			if gap > 0 && len(v) >= 4 {
				e.Reorder = probability(binary.NativeEndian.Uint32(v))
			}
		case tcaNetemCorrupt:
			if len(v) >= 4 {
				e.Corrupt = probability(binary.NativeEndian.Uint32(v))
			}
		case tcaNetemRate:
			if len(v) >= 4 && e.Rate == 0 {
				e.Rate = 8 * uint64(binary.NativeEndian.Uint32(v))
			}
		case tcaNetemRate64:
			if len(v) >= 8 {
				e.Rate = 8 * binary.NativeEndian.Uint64(v)
			}
		case tcaNetemLatency64:
			if len(v) >= 8 {
				e.Delay = time.Duration(binary.NativeEndian.Uint64(v))
			}
		case tcaNetemJitter64:
			if len(v) >= 8 {
				e.Jitter = time.Duration(binary.NativeEndian.Uint64(v))
			}
		case tcaNetemSeed:
			if len(v) >= 8 && binary.NativeEndian.Uint64(v) <= MaxSeed {
				e.Seed = binary.NativeEndian.Uint64(v)
			}
		}
	}
	return e, ad.Err() == nil
}
