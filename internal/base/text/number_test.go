// SPDX-License-Identifier: Apache-2.0

package text

import (
	"testing"
	"time"
)

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 192 * time.Second: "3m12s", 125 * time.Minute: "2h5m", 220 * time.Hour: "9d4h",
	} {
		if got := ShortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
