// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"time"
)

// amount is the number of bytes sent and received since a start.
type amount struct{ tx, rx Value }

// bitRate is the rate in bits a second between two byte counts. It is absent if a count
// is absent or went back, as when the socket was reused for another connection.
func bitRate(now, was Value, took time.Duration) Value {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return Value{}
	}
	return Value{N: uint64(math.Round(8 * float64(now.N-was.N) / took.Seconds())), Known: true}
}

// rates returns the rates between the counts was and now. A new object started at zero.
func (a amount) rates(was amount, found bool, took time.Duration) (tx, rx Value) {
	if !found {
		was = amount{Value{Known: true}, Value{Known: true}}
	}
	return bitRate(a.tx, was.tx, took), bitRate(a.rx, was.rx, took)
}

// perSecond is the rate of a counter that does not count bytes.
func perSecond(now, was Value, took time.Duration) *float64 {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return nil
	}
	f := float64(now.N-was.N) / took.Seconds()
	return &f
}

// plus adds the values that are known.
func plus(a, b Value) Value {
	return Value{N: a.N + b.N, Known: a.Known || b.Known}
}
