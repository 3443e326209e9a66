// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"testing"
	"time"
)

func TestNetem(t *testing.T) {
	for _, e := range []Netem{
		{Limit: 1},
		{Loss: 0.01, Limit: 1, Seed: 1},
		{Loss: 0.01, Limit: 1, Seed: MaxSeed},
		{Delay: 40 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.01, Duplicate: 0.005, Reorder: 0.25, Corrupt: 0.001, Rate: 20e6, Limit: 1000},
		{Rate: 100e9, Loss: 1, Limit: 7}, // the rate in bytes/s does not fit in 32 bits
	} {
		b, err := e.marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parseNetem(b); !ok || got != e {
			t.Errorf("%+v, %v; want %+v", got, ok, e)
		}
		for n := range b { // truncated anywhere: no panic
			parseNetem(b[:n])
		}
	}
}
