// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"time"
)

// amount is the number of bytes sent and received since the object was created.
type amount struct{ tx, rx Value }

// bitRate returns the rate in bits per second between two byte counts. The rate is absent
// if a count is absent or has decreased. A count decreases when the socket is reused for
// another connection.
func bitRate(now, was Value, took time.Duration) Value {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return Value{}
	}
	return Value{N: uint64(math.Round(8 * float64(now.N-was.N) / took.Seconds())), Known: true}
}

// rates returns the rates between the counts was and a. If found is false, the object is
// new and started at zero.
func (a amount) rates(was amount, found bool, took time.Duration) (tx, rx Value) {
	if !found {
		was = amount{Value{Known: true}, Value{Known: true}}
	}
	return bitRate(a.tx, was.tx, took), bitRate(a.rx, was.rx, took)
}

// perSecond returns the rate of a counter that does not count bytes.
func perSecond(now, was Value, took time.Duration) *float64 {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return nil
	}
	f := float64(now.N-was.N) / took.Seconds()
	return &f
}

// plus adds the values that are present.
func plus(a, b Value) Value {
	return Value{N: a.N + b.N, Known: a.Known || b.Known}
}
