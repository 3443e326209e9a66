// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

// means computes the means of windows from the output of course, and keeps the CPU
// time.
func TestWindows(t *testing.T) {
	out := "0 0 0 0 0 0 0 0 0 0 " + "1 1 1 1 1 0 0 0 0 0 " + "2 2 2 2 2 2 2 2 2 2 Gbit/s\n3.5 cpu-s/GB\n"
	s, err := means(out, 3, []window{{"all", 0, 3}, {"last", 2, 3}})
	want := table.Sample{"all": 25.0 / 30, "last": 2, "cpu-s/GB": 3.5}
	if err != nil || len(s) != len(want) {
		t.Fatalf("got %v, %v; want %v", s, err, want)
	}
	for unit, v := range want {
		if math.Abs(s[unit]-v) > 1e-9 {
			t.Errorf("%s: got %v, want %v", unit, s[unit], v)
		}
	}
	for _, bad := range []string{"", "1 2 Gbit/s\n", "1 1 1 1 1 1 1 1 1 x Gbit/s\n"} {
		if s, err := means(bad, 1, []window{{"all", 0, 1}}); err == nil {
			t.Errorf("%q: got %v, want an error", bad, s)
		}
	}
}

// The rate of a link counts whole frames. The share of a link counts only their
// content.
func TestInLink(t *testing.T) {
	s := table.Sample{"fraction": 0.5 * payload, "fraction-14s": 0.25 * payload}
	inLink(s, shape{Mbit: 500, Delay: time.Second}, []window{cruise, whole})
	if s["fraction"] != 1 || s["fraction-14s"] != 0.5 || s["Gbit/s"] != 0.5*payload {
		t.Errorf("got %v", s)
	}
}

// distribution turns quantiles into points of a curve, in order, on a logarithmic
// axis.
func TestDistribution(t *testing.T) {
	set, k := table.New(), timerKey("nanosleep", "50", lab.Host)
	set.Add(k, table.Sample{"µs-p99.9": 40, "µs-p50": 7, "µs-p5": 3, "µs-p1": -1})
	got := distribution(set, k)
	want := report.Line{X: []float64{3, 7, 40}, Y: []float64{0.05, 0.5, 0.999}}
	if !slices.Equal(got.X, want.X) || !slices.EqualFunc(got.Y, want.Y, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
		t.Errorf("got %v, want %v", got, want)
	}
}
