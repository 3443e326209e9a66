// SPDX-License-Identifier: Apache-2.0

package ab

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func known(f float64) *float64 { return &f }

// scripted makes runs whose cost depends on the variant's name and the number of the run.
func scripted(order *[]string, run func(v *Variant, n int) (Run, error)) Runner {
	count := map[string]int{}
	return func(_ context.Context, v *Variant) (Run, error) {
		*order = append(*order, v.Name)
		count[v.Name]++
		return run(v, count[v.Name])
	}
}

func TestCompare(t *testing.T) {
	var order []string
	c := &Comparison{Rounds: 5, Warmups: 1, Variants: []Variant{{Name: "a"}, {Name: "b"}}}
	told := 0
	err := c.Compare(context.Background(), scripted(&order, func(v *Variant, n int) (Run, error) {
		took := 1 + float64(n)/10 // the first run, a warm-up, takes 1.1
		if v.Name == "b" {
			took *= 2
		}
		r := Run{Seconds: &took, Retrans: known(3)}
		if v.Name == "b" && n == 3 {
			r.Failed, r.Status, r.Words = true, 7, "no\nserver"
		}
		return r, nil
	}), func(n, of int, _ *Variant) {
		if told++; n != told-1 || of != 12 {
			t.Errorf("run %d of %d", n, of)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abbaabbaabba" {
		t.Errorf("the order is %s", got)
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	first := c.Variants[0].Metric("time_s")
	want := &Metric{Name: "time_s", N: 5, Median: 1.4, Low: 1.3, High: 1.5, Min: 1.2, Max: 1.6}
	if d := cmp.Diff(want, first, near, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "values" }, cmp.Ignore())); d != "" {
		t.Error(d)
	}
	second := c.Variants[1].Metric("time_s")
	if second.N != 4 || second.Ratio == nil || math.Abs(*second.Ratio-2.9/1.4) > 1e-9 || second.P == nil || !second.Differ {
		t.Errorf("%+v", second)
	}
	if m := c.Variants[1].Metric("retrans"); m.P == nil || *m.P != 1 || m.Differ {
		t.Errorf("of equal numbers: %+v", m)
	}
	if c.Variants[1].Metric("cpu_s") != nil {
		t.Error("a metric that nobody has measured")
	}
}

// An interrupted comparison shows its runs so far. A variant that cannot run is an error.
func TestCompareStopped(t *testing.T) {
	var order []string
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &Comparison{Rounds: 9, Variants: []Variant{{Name: "a"}, {Name: "b"}}}
	err := c.Compare(ctx, scripted(&order, func(v *Variant, n int) (Run, error) {
		if v.Name == "b" && n == 2 {
			cancel()
		}
		return Run{Seconds: known(1)}, nil
	}), func(int, int, *Variant) {})
	if err != nil || !c.Stopped || len(c.Variants[0].Runs) != 1 || len(c.Variants[1].Runs) != 1 {
		t.Errorf("%v, %+v", err, c)
	}
	if m := c.Variants[1].Metric("time_s"); m == nil || !m.TooFew || m.P != nil || *m.Ratio != 1 {
		t.Errorf("%+v", m)
	}
	no := errors.New("no")
	c = &Comparison{Rounds: 1, Variants: []Variant{{Name: "a"}, {Name: "b"}}}
	err = c.Compare(context.Background(), func(context.Context, *Variant) (Run, error) { return Run{}, no }, func(int, int, *Variant) {})
	if !errors.Is(err, no) {
		t.Error(err)
	}
}

// A variant with the host's stack uses the host's interfaces.
func TestArgs(t *testing.T) {
	p := &Program{Flags: []string{"--if=user", "--mem=64M"}, Command: []string{"true", "x"}}
	for _, c := range []struct{ flags, want string }{
		{"--stack=mptcp", "--if=user --mem=64M --stack=mptcp -- true x"},
		{"--stack=host", "--mem=64M --stack=host -- true x"},
		{"--stack host", "--mem=64M --stack host -- true x"},
		{"--stack host --stack bbr", "--if=user --mem=64M --stack host --stack bbr -- true x"},
	} {
		if got := strings.Join(p.Args(&Variant{Flags: strings.Fields(c.flags)}), " "); got != c.want {
			t.Errorf("%s: %s", c.flags, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{1, 2}, 0.5, 1.5},
		{[]float64{1, 2, 3, 4}, 0.25, 1.75},
		{[]float64{1, 2, 3, 4}, 1, 4},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.q, c.values, got, c.want)
		}
	}
}
