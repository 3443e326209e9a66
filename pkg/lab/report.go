// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// Reports returns the names of the lab's results: those of steps, then those of nodes.
func (t *Topology) Reports() []string {
	var names []string
	for _, s := range t.Steps {
		names = append(names, s.Report...)
	}
	for _, name := range sorted(t.Nodes) {
		names = append(names, sorted(t.Nodes[name].Report)...)
	}
	return names
}

// Results returns the results of the lab after Run: those that the steps reported, and
// the counters of nodes.
func (l *Lab) Results(ctx context.Context, steps []Result) (map[string]string, error) {
	values := map[string]string{}
	for _, s := range steps {
		maps.Copy(values, s.Values)
	}
	for k := range l.Plan.Nodes {
		n := &l.Plan.Nodes[k]
		if len(n.Report) == 0 {
			continue
		}
		counters, err := l.Counters(ctx, n.Name)
		if err == nil {
			err = n.reportCounters(counters, values)
		} else {
			err = fmt.Errorf("the counters of node %s: %w", n.Name, err)
		}
		if err != nil {
			return values, err
		}
	}
	return values, nil
}

// reportCounters adds the counters that the node reports to values.
func (n *PlannedNode) reportCounters(counters map[string]int64, values map[string]string) error {
	for name, counter := range n.Report {
		value, ok := counters[counter]
		if !ok {
			return fmt.Errorf("node %s has no counter %q; %s", n.Name, counter, suggest.Suggest(counter, sorted(counters), "lklctl counters lists them"))
		}
		values[name] = strconv.FormatInt(value, 10)
	}
	return nil
}

// reported finds the results in the output of a step: the last line NAME=VALUE for
// each name.
func reported(output string, names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	values := map[string]string{}
	for line := range strings.Lines(output) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && slices.Contains(names, name) {
			values[name] = value
		}
	}
	for _, name := range names {
		if values[name] == "" {
			return values, fmt.Errorf("the program printed no line %s=VALUE", name)
		}
	}
	return values, nil
}
