// SPDX-License-Identifier: Apache-2.0

package ab

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// measured returns the JSON of a comparison of a and b, where a takes the given time and
// b twice as long.
func measured(t *testing.T, seconds float64, change func(*Comparison)) string {
	t.Helper()
	c := &Comparison{Command: []string{"fetch"}, Rounds: 4, Variants: []Variant{{Name: "a", Flags: []string{"--stack=a"}}, {Name: "b"}}}
	err := c.Compare(context.Background(), func(_ context.Context, v *Variant) (Run, error) {
		took := seconds + float64(len(v.Runs))/1000
		if v.Name == "b" {
			took *= 2
		}
		return Run{Seconds: &took}, nil
	}, func(int, int, *Variant) {})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(c)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMerge(t *testing.T) {
	slow, err := ReadParts("slow.json", strings.NewReader(measured(t, 3, nil)))
	if err != nil {
		t.Fatal(err)
	}
	fast, err := ReadParts("fast.json", strings.NewReader(measured(t, 1, nil)+"\n"+measured(t, 1.5, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Merge(append(slow, fast...))
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Variants[0].Metric("time_s"), c.Variants[1].Metric("time_s")
	if a.N != 12 || b.N != 12 || a.Min != 1 || b.Max != 2*3.003 || b.P == nil || c.Rounds != 12 {
		t.Errorf("%+v, %+v", a, b)
	}
	var names []string
	for _, s := range c.Sources {
		names = append(names, s.Name)
		if r := s.Ratios["b"]; r < 1.999 || r > 2.001 {
			t.Errorf("%s: the ratio is %v", s.Name, r)
		}
	}
	if got := strings.Join(names, " "); got != "slow.json fast.json#1 fast.json#2" {
		t.Errorf("the sources are %s", got)
	}
	if !c.Started.Equal(slow[0].Result.Started) {
		t.Errorf("it started at %v", c.Started)
	}
	if run := c.Variants[1].Runs[4]; run.Source != "fast.json#1" || run.Number != slow[0].Result.Variants[1].Runs[0].Number {
		t.Errorf("the fifth run is %+v", run)
	}
}

func TestMergeRefused(t *testing.T) {
	good := measured(t, 1, nil)
	for _, c := range []struct{ text, want string }{
		{"", "second: is empty"},
		{"[]", "is not the output"},
		{"{}", "has no variants"},
		{good + "{", "is not the output"},
		{measured(t, 1, func(c *Comparison) { c.Command = []string{"other"} }), `its command is ["other"]; that of first is ["fetch"]`},
		{measured(t, 1, func(c *Comparison) { c.Variants[1].Name = "c" }), `list of variants`},
		{measured(t, 1, func(c *Comparison) { c.Variants = append(c.Variants, Variant{Name: "c"}) }), `list of variants`},
		{measured(t, 1, func(c *Comparison) { c.Variants[0].Flags = nil }), `list of flags for variant "a"`},
		{measured(t, 1, func(c *Comparison) { c.Sources = []Source{{Name: "x"}} }), "was merged before"},
	} {
		parts, err := ReadParts("first", strings.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		more, err := ReadParts("second", strings.NewReader(c.text))
		if err == nil {
			_, err = Merge(append(parts, more...))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
