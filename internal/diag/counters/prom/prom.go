// SPDX-License-Identifier: Apache-2.0

// Package prom writes counters in Prometheus' text format.
package prom

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/instance"
)

// ContentType is the Content-Type of the text that Write writes: text format 0.0.4.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Instance holds the counters of one instance's stack.
type Instance struct {
	Name string
	Pod  *instance.Pod // pod that the instance serves; may be nil
	Set  counters.Set
}

// Write writes the counters of instances in Prometheus' text format. A metric's name
// consists of lklrun_, the counter's base, and _total if the counter only increases. Its
// labels name the instance, its pod and the counter's object. Its HELP text is the explanation
// from Explain.
//
// Prometheus' own package for this format would add 4 MB, because it contains protobuf.
func Write(w io.Writer, instances []Instance) error {
	families := map[string]*strings.Builder{}
	for _, in := range instances {
		for i := range in.Set {
			c := &in.Set[i]
			name := metricName(c)
			f := families[name]
			if f == nil {
				f = &strings.Builder{}
				families[name] = f
				writeHead(f, name, c)
			}
			writeSample(f, name, &in, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := io.WriteString(w, families[name].String()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// metricName converts a base to a metric name, which may contain only letters, digits and
// _.
func metricName(c *counters.Counter) string {
	name := "lklrun_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.TrimSuffix(c.Base, "N"))
	if c.Kind == counters.Count {
		name += "_total"
	}
	return name
}

func writeHead(w *strings.Builder, name string, c *counters.Counter) {
	if e, ok := counters.Explain(c.Base); ok {
		fmt.Fprintf(w, "# HELP %s %s\n", name, inHelp.Replace(e.Meaning))
	}
	kind := "counter"
	if c.Kind == counters.Gauge {
		kind = "gauge"
	}
	fmt.Fprintf(w, "# TYPE %s %s\n", name, kind)
}

func writeSample(w *strings.Builder, name string, in *Instance, c *counters.Counter) {
	label := func(before, name, value string) {
		value = strings.ToValidUTF8(value, "?") // the program can choose this text
		fmt.Fprintf(w, `%s%s="%s"`, before, name, inLabel.Replace(value))
	}
	w.WriteString(name)
	label("{", "instance", in.Name)
	if in.Pod != nil {
		label(",", "namespace", in.Pod.Namespace)
		label(",", "pod", in.Pod.Name)
	}
	for _, l := range c.Labels {
		label(",", l.Name, l.Value)
	}
	fmt.Fprintf(w, "} %s\n", strconv.FormatFloat(c.Value.Float(), 'g', -1, 64))
}

var (
	inHelp  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	inLabel = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
)
