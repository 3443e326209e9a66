// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A connection over two paths, one of which ends and returns as another subflow.
func TestTimeline(t *testing.T) {
	flow := func(first int, rx ...uint64) Flow {
		f := Flow{first: first}
		for _, n := range rx {
			f.counts = append(f.counts, count{0, n})
		}
		if first == 0 {
			f.base = f.counts[0]
		}
		return f
	}
	line := &Timeline{
		Times: []float64{0, 1, 2, 3, 4, 5, 6}, Seconds: 6,
		Steps: []Done{{Mark: "a", At: 2, Iface: "eth1", Step: "down"}, {Mark: "b", At: 4.5, Iface: "eth1", Step: "up"}},
		Connections: []Connection{{
			Flow: flow(0, 1000, 2000, 3000, 3000, 3000, 4000, 5000),
			Subflows: []Subflow{
				{Flow: flow(0, 500, 1000, 1500, 1500, 1500, 2500, 3000)},
				{Flow: flow(0, 500, 1000, 1500)},
				{Flow: flow(5, 0, 500)},
			},
		}},
	}
	line.finish()
	c := line.Connections[0]
	if c.Received != 4000 || c.Sent != 0 || c.Stall != 3 || c.StallAt != 2 || c.Standing != nil || c.Ended != nil {
		t.Errorf("%+v", c)
	}
	r := func(f float64) *float64 { return &f }
	zero := r(0)
	want := []Phase{
		{"", zero, r(8000), nil},
		{"a", zero, r(8000.0 / 3), r(3)},
		{"b", zero, r(8000), nil},
	}
	if d := cmp.Diff(want, c.Phases); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]*float64{nil, r(8000), r(8000), zero, zero, r(8000), r(8000)}, c.RxRates); d != "" {
		t.Error(d)
	}
	gone, fresh := c.Subflows[1], c.Subflows[2]
	if gone.Ended == nil || *gone.Ended != 3 || gone.Received != 1000 || gone.RxRates[3] != nil || gone.Phases[1].RX != nil {
		t.Errorf("%+v", gone)
	}
	if fresh.Appeared != 5 || fresh.Received != 500 || fresh.RxRates[4] != nil || *fresh.RxRates[6] != 4000 {
		t.Errorf("%+v", fresh)
	}

	// One that is stalled at the end, and one that never made progress.
	line = &Timeline{Times: []float64{0, 1, 2, 3}, Seconds: 3, Connections: []Connection{{Flow: flow(0, 0, 10, 10, 10)}, {Flow: flow(0, 7, 7, 7, 7)}}}
	line.finish()
	if s := line.Connections[0].Standing; s == nil || *s != 2 {
		t.Errorf("standing: %v", s)
	}
	if c := line.Connections[1]; c.Standing != nil || c.Stall != 0 || c.Received != 0 {
		t.Errorf("%+v", c)
	}
	(&Timeline{}).finish()
}
