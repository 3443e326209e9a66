// SPDX-License-Identifier: Apache-2.0

// Package profile condenses the perf(1) samples of one measurement to a few rows that
// show where its CPU time went. It performs no I/O.
package profile

import (
	"fmt"

	"github.com/lklrun/lklrun/bench/stacks"
	"github.com/lklrun/lklrun/bench/table"
)

// Of condenses the stacks of one turn, which are grouped by thread. full is the number
// of samples of a CPU that is always busy. The rows add up to the CPU time of the
// turn.
func Of(k table.Key, s table.Sample, root *stacks.Node, full float64, cpus int) (*table.Profile, error) {
	unit, ok := table.CPUUnit(s)
	if !ok {
		return nil, fmt.Errorf("the turn does not say its CPU time")
	}
	counts := map[string]int{}
	count(root, nil, counts)
	outside := counts[rowOutside]
	busy := root.Count - counts[rowIdle] - outside
	if busy <= 0 {
		return nil, fmt.Errorf("perf has no sample of it")
	}
	p := &table.Profile{Key: k, Sample: s, Unit: unit, Count: busy}
	for _, r := range rows {
		if n := counts[r]; n > 0 {
			p.Parts = append(p.Parts, table.Part{Name: r, Value: s[unit] * float64(n) / float64(busy)})
		}
	}
	if full > 0 {
		// Idle samples are not counted: a CPU that sleeps deeply has fewer.
		p.Idle = max(0, 1-float64(busy+outside)/(full*float64(cpus)))
		p.Busiest, p.Busy = busiest(root)
		p.Busy /= full
	}
	return p, nil
}

// busiest returns the thread with the most samples, and their number.
func busiest(root *stacks.Node) (program string, samples float64) {
	for _, thread := range root.Children() {
		if n := float64(thread.Count); n > samples && thread.Name != stacks.Nobody {
			program, samples = thread.Name, n
		}
	}
	return program, samples
}

// count adds the samples of a node and of its descendants to their rows.
func count(n *stacks.Node, stack []stacks.Frame, counts map[string]int) {
	own := n.Count
	for _, c := range n.Children() {
		own -= c.Count
		count(c, append(stack, c.Frame), counts)
	}
	if own > 0 && len(stack) > 0 {
		counts[row(stack)] += own
	}
}
