// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"time"
)

// amount is how much was sent and received, in bytes, since something began.
type amount struct{ tx, rx Value }

// bitRate is the bits a second between two counts of bytes; absent when one is,
// and when the count went back, as when a socket was used for another connection.
func bitRate(now, was Value, took time.Duration) Value {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return Value{}
	}
	return Value{N: uint64(math.Round(8 * float64(now.N-was.N) / took.Seconds())), Known: true}
}

// rates are the rates of something that has counted now, and had counted was. What
// was not there before began with nothing.
func (a amount) rates(was amount, found bool, took time.Duration) (tx, rx Value) {
	if !found {
		was = amount{Value{Known: true}, Value{Known: true}}
	}
	return bitRate(a.tx, was.tx, took), bitRate(a.rx, was.rx, took)
}

// perSecond is the rate of a counter that is no amount of bytes.
func perSecond(now, was Value, took time.Duration) *float64 {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return nil
	}
	f := float64(now.N-was.N) / took.Seconds()
	return &f
}

// plus adds what is known.
func plus(a, b Value) Value {
	return Value{N: a.N + b.N, Known: a.Known || b.Known}
}
