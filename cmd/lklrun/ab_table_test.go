// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/run/ab"
)

func TestComparisonTable(t *testing.T) {
	c := &ab.Comparison{Rounds: 5, Variants: []ab.Variant{{Name: "a"}, {Name: "b"}}}
	err := c.Compare(context.Background(), func(_ context.Context, v *ab.Variant) (ab.Run, error) {
		seconds, retrans := 1+float64(len(v.Runs))/10, 3.0
		r := ab.Run{Seconds: &seconds, Retrans: &retrans}
		if v.Name == "b" {
			seconds *= 2
			if len(v.Runs) == 2 {
				r.Failed, r.Status, r.Words = true, 7, "no\nserver"
			}
		}
		return r, nil
	}, func(int, int, *ab.Variant) {})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := writeComparison(&b, c); err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(b.String(), "\n") {
		if n := len([]rune(l)); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	for _, want := range []string{"TIME ", "differs", "chance", "b: 1 failed", ": status 7: server"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
