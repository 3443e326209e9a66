// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// TestMeter checks that a meter finds the same limits as a report, and that its counters
// add up to the time between its readings.
func TestMeter(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var readings []*Reading
			made(21, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
				c.change(k, i, r)
				readings = append(readings, r)
			})
			var m Meter
			var set counters.Set
			for k := 0; k < len(readings); k += 10 { // scrapes are less frequent
				set = m.Add(readings[k])
			}
			var most, all int64
			var limit string
			for _, one := range set {
				if one.Base == "connections.limited_us" {
					if all += one.Value.Int(); one.Value.Int() > most {
						most, limit = one.Value.Int(), one.Labels[1].Value
					}
				}
			}
			if limit != string(c.want) {
				t.Errorf("%s, want %s: %v", limit, c.want, set)
			}
			if want := int64(20 * every / 1000); all < want*9/10 || all > want*11/10 {
				t.Errorf("limits for %d us of %d us", all, want)
			}
			if n, _ := set.Get("connections.open.eth0"); n.String() != "1" {
				t.Errorf("%s connections are open", n)
			}
		})
	}
}
