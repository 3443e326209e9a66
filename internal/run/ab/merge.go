// SPDX-License-Identifier: Apache-2.0

package ab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Source is one of the results that were merged, such as that of one machine.
type Source struct {
	Name    string             `json:"name"`    // name of the file; with a number if the file has several results
	Started time.Time          `json:"started"` // start time of the first run
	Ratios  map[string]float64 `json:"ratios"`  // for each variant but the first: ratio of its median time_s to that of the first, in this source alone
}

// Part is a result to merge, and its name.
type Part struct {
	Name   string
	Result *Comparison
}

// ReadParts reads the results that a file contains, one after another. Results that were
// merged before are refused, since their sources would be taken for one.
func ReadParts(name string, r io.Reader) ([]Part, error) {
	var parts []Part
	dec := json.NewDecoder(r)
	for {
		c := new(Comparison)
		err := dec.Decode(c)
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: is not the output of lklrun ab -o json: %w", name, err)
		case len(c.Variants) < 2 || len(c.Command) == 0:
			return nil, fmt.Errorf("%s: is not the output of lklrun ab -o json: it has no variants or no command", name)
		case len(c.Sources) > 0:
			return nil, fmt.Errorf("%s: was merged before; merge its sources instead", name)
		}
		parts = append(parts, Part{name, c})
	}
	switch len(parts) {
	case 0:
		return nil, fmt.Errorf("%s: is empty", name)
	case 1:
		return parts, nil
	}
	for i := range parts {
		parts[i].Name = fmt.Sprintf("%s#%d", name, i+1)
	}
	return parts, nil
}

// Merge combines results of the same command and variants into one. All runs of a variant
// count as one sample.
func Merge(parts []Part) (*Comparison, error) {
	first := parts[0].Result
	whole := &Comparison{Command: first.Command, Started: first.Started, Warmups: first.Warmups}
	for _, v := range first.Variants {
		whole.Variants = append(whole.Variants, Variant{Name: v.Name, Flags: v.Flags, Runs: []Run{}})
	}
	for _, p := range parts {
		c := p.Result
		if err := p.like(&parts[0]); err != nil {
			return nil, err
		}
		if c.Started.Before(whole.Started) {
			whole.Started = c.Started
		}
		whole.Rounds += c.Rounds
		whole.Stopped = whole.Stopped || c.Stopped
		for i := range c.Variants {
			for _, r := range c.Variants[i].Runs {
				r.Source = p.Name
				whole.Variants[i].Runs = append(whole.Variants[i].Runs, r)
			}
		}
		c.finish() // the metrics of a file are not trusted
		whole.Sources = append(whole.Sources, Source{Name: p.Name, Started: c.Started, Ratios: c.ratios()})
	}
	whole.finish()
	return whole, nil
}

// like returns an error if a part compares other things than the first one.
func (p *Part) like(first *Part) error {
	differ := func(what string, a, b any) error {
		return fmt.Errorf("%s: its %s %q; that of %s is %q, and only equal comparisons can be merged", p.Name, what, b, first.Name, a)
	}
	a, b := first.Result, p.Result
	if !slices.Equal(a.Command, b.Command) {
		return differ("command is", a.Command, b.Command)
	}
	names := func(c *Comparison) (all []string) {
		for i := range c.Variants {
			all = append(all, c.Variants[i].Name)
		}
		return all
	}
	if !slices.Equal(names(a), names(b)) {
		return differ("list of variants is", names(a), names(b))
	}
	for i := range a.Variants {
		if x, y := &a.Variants[i], &b.Variants[i]; !slices.Equal(x.Flags, y.Flags) {
			return differ(fmt.Sprintf("list of flags for variant %q is", x.Name), x.Flags, y.Flags)
		}
	}
	return nil
}

// ratios returns the ratios of the variants' times to that of the first one.
func (c *Comparison) ratios() map[string]float64 {
	all := map[string]float64{}
	for i := range c.Variants[1:] {
		v := &c.Variants[i+1]
		if m := v.Metric("time_s"); m != nil && m.Ratio != nil {
			all[v.Name] = *m.Ratio
		}
	}
	return all
}
