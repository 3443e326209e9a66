// SPDX-License-Identifier: Apache-2.0

// Package prom writes counters in Prometheus' text format.
package prom

import (
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

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
func Write(w io.Writer, instances []Instance) error {
	families := map[string]*dto.MetricFamily{}
	var order []string
	for _, in := range instances {
		for i := range in.Set {
			c := &in.Set[i]
			name := metricName(c)
			f := families[name]
			if f == nil {
				f = family(name, c)
				families[name] = f
				order = append(order, name)
			}
			f.Metric = append(f.Metric, metric(&in, c))
		}
	}
	slices.Sort(order)
	for _, name := range order {
		if _, err := expfmt.MetricFamilyToText(w, families[name]); err != nil {
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

func family(name string, c *counters.Counter) *dto.MetricFamily {
	typ := dto.MetricType_COUNTER
	if c.Kind == counters.Gauge {
		typ = dto.MetricType_GAUGE
	}
	f := &dto.MetricFamily{Name: &name, Type: &typ}
	if e, ok := counters.Explain(c.Base); ok {
		f.Help = &e.Meaning
	}
	return f
}

func metric(in *Instance, c *counters.Counter) *dto.Metric {
	m := &dto.Metric{Label: []*dto.LabelPair{pair("instance", in.Name)}}
	if in.Pod != nil {
		m.Label = append(m.Label, pair("namespace", in.Pod.Namespace), pair("pod", in.Pod.Name))
	}
	for i := range c.Labels {
		m.Label = append(m.Label, pair(c.Labels[i].Name, c.Labels[i].Value))
	}
	value := c.Value.Float()
	if c.Kind == counters.Gauge {
		m.Gauge = &dto.Gauge{Value: &value}
	} else {
		m.Counter = &dto.Counter{Value: &value}
	}
	return m
}

func pair(name, value string) *dto.LabelPair {
	value = strings.ToValidUTF8(value, "?") // the program can choose this text
	return &dto.LabelPair{Name: &name, Value: &value}
}
