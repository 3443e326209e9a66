// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

const ms = uint64(time.Millisecond)

// arrivals returns the times in milliseconds at which an end gets frames of 1250 bytes
// that were sent at the given times.
func arrivals(n stacknet.Netem, sent ...uint64) (got []float64) {
	e := &wireEnd{chance: newChance(1)}
	w := &Wire{Impairment: stacknet.Impairment{Netem: n}, Carrier: true}
	for _, at := range sent {
		for _, f := range e.receive(w, at*ms, make([]byte, 1250), false) {
			got = append(got, float64(f.at)/float64(ms))
		}
	}
	return got
}

// TestWireRate checks that frames of a rate follow each other, and those of an idle wire
// do not, and that a full queue drops frames.
func TestWireRate(t *testing.T) {
	const mbit = 1_000_000 // a frame takes 10 ms
	for _, c := range []struct {
		name string
		n    stacknet.Netem
		sent []uint64
		want []float64
	}{
		{"no delay", stacknet.Netem{}, []uint64{0, 5}, []float64{0.01, 5.01}},
		{"delay", stacknet.Netem{Delay: 20 * time.Millisecond}, []uint64{0, 5}, []float64{20, 25}},
		{"rate", stacknet.Netem{Rate: mbit}, []uint64{0, 0, 5, 100}, []float64{10, 20, 30, 110}},
		{"delay and rate", stacknet.Netem{Delay: 20 * time.Millisecond, Rate: mbit}, []uint64{0, 0, 100}, []float64{30, 40, 130}},
		{"limit", stacknet.Netem{Rate: mbit, Limit: 2}, []uint64{0, 0, 0, 10, 10}, []float64{10, 20, 30}},
		{"reorder", stacknet.Netem{Delay: 20 * time.Millisecond, Reorder: 1}, []uint64{0}, []float64{0.01}},
		{"duplicate", stacknet.Netem{Delay: 20 * time.Millisecond, Duplicate: 1}, []uint64{0}, []float64{20, 20}},
		{"loss", stacknet.Netem{Loss: 1}, []uint64{0}, nil},
	} {
		got := arrivals(c.n, c.sent...)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
			continue
		}
		for k := range got {
			if got[k] != c.want[k] {
				t.Errorf("%s: %v, expected %v", c.name, got, c.want)
				break
			}
		}
	}
}

// TestWireJitter checks that all delays are within the jitter and fill it, that no frame
// arrives before the least delay, and that chance has its probability.
func TestWireJitter(t *testing.T) {
	n := stacknet.Netem{Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.1, Corrupt: 0.5}
	w := &Wire{Impairment: stacknet.Impairment{Netem: n}, Carrier: true}
	if w.least() != 15*ms {
		t.Errorf("least delay %d", w.least())
	}
	e := &wireEnd{chance: newChance(1)}
	frames, wrong, sum := 0, 0, uint64(0)
	least, most := uint64(never), uint64(0)
	for k := range uint64(10000) {
		for _, f := range e.receive(w, k*ms, make([]byte, 100), false) {
			d := f.at - k*ms
			frames, sum = frames+1, sum+d
			least, most = min(least, d), max(most, d)
			for _, b := range f.data {
				if b != 0 {
					wrong++
				}
			}
		}
	}
	mean := float64(sum) / float64(frames) / float64(ms)
	if frames < 8900 || frames > 9100 || wrong < frames*48/100 || wrong > frames*52/100 ||
		least < 15*ms || least > 15*ms+ms/10 || most > 25*ms || most < 25*ms-ms/10 || mean < 19.9 || mean > 20.1 {
		t.Errorf("%d frames, %d corrupt, delays from %d to %d, mean %.2f ms", frames, wrong, least, most, mean)
	}
}
