// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/mdlayher/netlink"
)

// Netem is what the queueing discipline netem(8) does to the packets of one
// direction. Its zero value does nothing.
type Netem struct {
	Delay  time.Duration // of each packet
	Jitter time.Duration // the delay is Delay ± Jitter, uniformly

	// Probabilities, from 0 to 1.
	Loss      float64
	Duplicate float64
	Reorder   float64 // that a packet has no delay
	Corrupt   float64 // that one bit of a packet is wrong

	Rate  uint64 // bit/s; 0: as fast as it goes
	Limit uint32 // packets that it holds; more are dropped
}

// Of include/uapi/linux/pkt_sched.h: struct tc_netem_qopt and TCA_NETEM_*.
const (
	sizeofNetemQopt = 24

	tcaNetemReorder   = 3 // struct tc_netem_reorder: probability, correlation
	tcaNetemCorrupt   = 4 // struct tc_netem_corrupt: likewise
	tcaNetemRate      = 6 // struct tc_netem_rate: rate, overheads
	tcaNetemRate64    = 8
	tcaNetemLatency64 = 10
	tcaNetemJitter64  = 11

	maxRate32 = 1<<32 - 1 // of tc_netem_rate.rate: it is in TCA_NETEM_RATE64
)

// chance is a probability as netem has it.
func chance(p float64) uint32 { return uint32(math.Round(p * math.MaxUint32)) }

// probability reads what chance wrote, to the millionth: the rest is rounding.
func probability(n uint32) float64 {
	return math.Round(float64(n)/math.MaxUint32*1e6) / 1e6
}

// options are all of netem's that a Netem is about: of one that is changed the
// kernel keeps what is not named.
func (e Netem) options(ae *netlink.AttributeEncoder) {
	pair := func(a, b uint32) []byte {
		return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, a), b)
	}
	if e.Reorder > 0 {
		ae.Bytes(tcaNetemReorder, pair(chance(e.Reorder), 0))
	}
	ae.Bytes(tcaNetemCorrupt, pair(chance(e.Corrupt), 0))
	rate := e.Rate / 8
	ae.Bytes(tcaNetemRate, append(pair(uint32(min(rate, maxRate32)), 0), pair(0, 0)...))
	if rate >= maxRate32 {
		ae.Uint64(tcaNetemRate64, rate)
	}
	ae.Uint64(tcaNetemLatency64, uint64(e.Delay))
	ae.Uint64(tcaNetemJitter64, uint64(e.Jitter))
}

// marshal is netem's TCA_OPTIONS: a structure, and attributes behind it.
func (e Netem) marshal() ([]byte, error) {
	b := make([]byte, sizeofNetemQopt) // latency, limit, loss, gap, duplicate, jitter
	binary.NativeEndian.PutUint32(b[4:], e.Limit)
	binary.NativeEndian.PutUint32(b[8:], chance(e.Loss))
	if e.Reorder > 0 { // tc(8) does so: every packet may be the one
		binary.NativeEndian.PutUint32(b[12:], 1)
	}
	binary.NativeEndian.PutUint32(b[16:], chance(e.Duplicate))
	attrs, err := attributes(e.options)
	return append(b, attrs...), err
}

// parseNetem reads netem's TCA_OPTIONS; ok is false of what is none.
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
		}
	}
	return e, ad.Err() == nil
}
