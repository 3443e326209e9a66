// SPDX-License-Identifier: Apache-2.0

package postmortem

import (
	"testing"
	"time"
)

// Many sockets reduce the sampling rate. A stack that does not answer is
// sampled again.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n          int
		took, want time.Duration
	}{
		{0, 0, time.Second},
		{1, 3 * time.Millisecond, 4 * time.Second},
		{1, 120 * time.Millisecond, 24 * time.Second},
		{2, 20 * time.Millisecond, 10 * time.Second},
		{3, 10 * time.Millisecond, every},
		{9, 300 * time.Millisecond, time.Minute},
		{9, limit, most},
	} {
		if got := next(c.n, c.took); got != c.want {
			t.Errorf("look %d, after one of %v: in %v, want %v", c.n, c.took, got, c.want)
		}
	}
}
