// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

func init() {
	s := Scenario{
		Order: 220, Name: "timers", Title: "How late timers are", Seed: "003",
		About: "A thread sleeps repeatedly, with clock_nanosleep() and with a timerfd that it reads. The delay is " +
			"the time between the requested and the actual wake-up. The library's sleeps use the stack's hrtimers " +
			"and scheduler. (Either kernel may be up to 50 µs late for clock_nanosleep(): this is the timer slack " +
			"of ordinary threads.) Under `supervise` a program's sleeps are the host's. A datagram takes their " +
			"place: it goes to 127.0.0.1 through the stack, and netem delays it (`delivery`; compare with " +
			"`delivery us=0`).",
		Quick:   true,
		Budget:  Budget{Quick: 10 * time.Second, Full: 60 * time.Second},
		Build:   buildTimers,
		Figures: timerFigures,
	}
	for _, kind := range sleepKinds {
		for _, us := range sleepTimes {
			of, base := timerKey(kind, us, lab.Library), timerKey(kind, us, lab.Host)
			what := "library: " + kind + " of " + us + " µs, "
			s.Targets = append(s.Targets,
				table.Target{Criterion: "5", What: what + "p50", Unit: "µs-p50", Of: of, Base: base, Diff: true, AtMost: 10},
				table.Target{Criterion: "5", What: what + "p99", Unit: "µs-p99", Of: of, Base: base, Diff: true, AtMost: 50})
		}
	}
	register(s)
}

var (
	sleepKinds = []string{"nanosleep", "timerfd"}
	sleepTimes = []string{"50", "200", "1000"}
)

func timerKey(kind, us, v string) table.Key {
	return table.Key{Scenario: "timers", What: kind, Params: table.Params{"us": us}, Placement: lab.Unpinned, Variant: v}
}

func buildTimers(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	timers, err := l.Native(ctx, "timers", "-ldl")
	if err != nil {
		return nil, err
	}
	count := "300"
	if l.Form.Full {
		count = "1000"
	}
	var ms []Measure
	add := func(kind, us, v string, argv []string) {
		ms = append(ms, Measure{Key: timerKey(kind, us, v), Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }})
	}
	for _, kind := range sleepKinds {
		for _, us := range sleepTimes {
			add(kind, us, lab.Host, []string{timers, kind, us, count})
			add(kind, us, lab.Library, []string{timers, "--lib", l.Bin("stacks/vanilla/liblkl.so"), kind, us, count})
		}
	}
	for _, us := range append([]string{"0"}, sleepTimes...) {
		script := `exec "$0" delivery "$@"`
		if us != "0" {
			script = "tc qdisc add dev lo root netem delay " + us + "us && " + script
		}
		add("delivery", us, lab.Supervise, []string{l.Bin("lklrun"), "--engine", "supervise", "--stack", "vanilla", "--if", "user", "--quiet", "--", "sh", "-c", script, timers, us, count})
	}
	return ms, nil
}

// timerFigures returns the distributions of sleeps and of netem's delays.
func timerFigures(set *table.Set) []report.Plot {
	var plots []report.Plot
	for _, kind := range append(sleepKinds, "delivery") {
		f := report.Figure{Name: "timers-" + kind, Title: "Delay of timers: " + kind, X: "µs too late", Y: "part of the timers that are no later", LogX: true}
		for _, us := range sleepTimes {
			for _, v := range []string{lab.Host, lab.Library, lab.Supervise} {
				if line := distribution(set, timerKey(kind, us, v)); len(line.X) > 0 {
					line.Name = v + ", " + us + " µs"
					f.Lines = append(f.Lines, line)
				}
			}
		}
		if len(f.Lines) > 0 {
			plots = append(plots, f)
		}
	}
	return plots
}

// distribution returns a curve of a key's quantiles, which are the units µs-pN.
func distribution(set *table.Set, k table.Key) report.Line {
	var line report.Line
	type point struct{ x, y float64 }
	var points []point
	for _, unit := range set.Units(k) {
		if p, ok := strings.CutPrefix(unit, "µs-p"); ok {
			y, err := strconv.ParseFloat(p, 64)
			x, has := set.Median(k, unit)
			if err == nil && has && x > 0 {
				points = append(points, point{x, y / 100})
			}
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.y, b.y) })
	for _, p := range points {
		line.X, line.Y = append(line.X, p.x), append(line.Y, p.y)
	}
	return line
}
