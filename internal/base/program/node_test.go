// SPDX-License-Identifier: Apache-2.0

package program

import (
	"slices"
	"testing"
)

func TestShown(t *testing.T) {
	const script = NodeMark + "\"$@\" &\nexec sleep infinity"
	for _, c := range []struct{ words, want []string }{
		{[]string{"sh", "-c", script, "sh", "iperf3", "-s"}, []string{"iperf3", "-s"}},
		{[]string{"sh", "-c", script, "sh"}, []string{"sleep", "infinity"}},
		{[]string{"sh", "-c", "exec sleep 1", "sh", "x"}, []string{"sh", "-c", "exec sleep 1", "sh", "x"}},
		{[]string{"sh", "-c", script}, []string{"sh", "-c", script}}, // not one of pkg/lab
		{nil, nil},
	} {
		if got := Shown(c.words); !slices.Equal(got, c.want) {
			t.Errorf("Shown(%q) = %q, want %q", c.words, got, c.want)
		}
	}
}
