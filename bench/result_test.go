// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	values := map[subject][]float64{host: {10, 11, 90}, bare: {16, 17, 18}}
	tests := []struct {
		target target
		want   string
	}{
		{target{of: bare, ratio: true, limit: 1.5}, met},    // 17/11
		{target{of: bare, ratio: true, limit: 1.6}, missed}, // the mean would say otherwise
		{target{of: bare, ratio: true, atMost: true, limit: 1.5}, missed},
		{target{of: bare, atMost: true, limit: 17}, met},
		{target{of: supervise, atMost: true, limit: 17}, missed}, // not measured
	}
	for _, tt := range tests {
		r := &result{What: "x", Values: values, target: &tt.target}
		r.finish()
		if r.Verdict != tt.want {
			t.Errorf("%v: %s, want %s", tt.target, r.Verdict, tt.want)
		}
	}
}

func TestTable(t *testing.T) {
	r := &result{What: "bulk", Unit: "Gbit/s", Where: "one CPU", Values: map[subject][]float64{host: {10}, bare: {15, 17}}, target: &target{of: bare, ratio: true, limit: 1.5}}
	r.finish()
	var b bytes.Buffer
	table(&b, []*result{r})
	for _, want := range []string{"10.0", "16.0 (1.60)", " - ", "library >= 1.50 of host: met"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing from\n%s", want, b.String())
		}
	}
}
