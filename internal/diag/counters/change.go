// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"
)

// Change is the change of a counter between two readings.
type Change struct {
	Value      Value    `json:"value"`                // current value
	Difference int64    `json:"difference"`           // change since the earlier reading
	PerSecond  *float64 `json:"per_second,omitempty"` // change per second; absent for gauges, and if the interval is unknown
}

// Named is a change together with its counter.
type Named struct {
	*Counter
	Change
}

// Reading is a set of counters with the time at which it was read.
type Reading struct {
	Time   time.Time        `json:"time"`
	Values map[string]Value `json:"values"`
}

// Take combines a set with its time.
func Take(s Set, at time.Time) Reading {
	r := Reading{at, make(map[string]Value, len(s))}
	for i := range s {
		r.Values[s[i].Name] = s[i].Value
	}
	return r
}

// Since returns the change of each counter of s since the earlier reading r. s was read
// at now. A new counter is assumed to have started at 0. If a counter decreased, it has
// restarted, and the change is its present value, as in Prometheus' rate().
func (r Reading) Since(s Set, now time.Time) []Named {
	seconds := now.Sub(r.Time).Seconds()
	all := make([]Named, len(s))
	for i := range s {
		c := &s[i]
		was, known := r.Values[c.Name]
		if !known && c.Kind == Gauge {
			was = c.Value // the earlier value is unknown
		}
		ch := Change{Value: c.Value, Difference: int64(c.Value.n - was.n)}
		if c.Kind == Count {
			if c.Value.less(was) {
				ch.Difference = c.Value.Int()
			}
			if seconds > 0 && !r.Time.IsZero() {
				rate := math.Round(float64(ch.Difference)/seconds*1000) / 1000
				ch.PerSecond = &rate
			}
		}
		all[i] = Named{c, ch}
	}
	return all
}

// Load reads a reading that Store wrote. If the file does not exist, the reading is empty
// and ok is false.
func Load(path string) (r Reading, ok bool, err error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return Reading{}, false, fmt.Errorf("reading the saved counters: %w", err)
	}
	return r, true, nil
}

// Store writes the reading to path atomically.
func (r Reading) Store(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err = os.WriteFile(tmp, b, 0o600); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // an error means that the file does not exist
		return fmt.Errorf("saving the counters: %w", err)
	}
	return nil
}
