// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// A watch reports a device's carrier at its start and at each change, and the
// device's end.
func TestWatchDevice(t *testing.T) {
	kit.Need(t)
	tap, err := OpenTap("lw0", TapOptions{}, drop)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.File.Close()
	begin := func() *Watch {
		t.Helper()
		w, err := WatchDevice(tap.Ifindex)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return w
	}
	says := func(w *Watch, want bool) {
		t.Helper()
		select {
		case got := <-w.Carries():
			if got != want {
				t.Errorf("it carries: %v, want %v", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody says that it carries: %v", want)
		}
	}
	w := begin()
	kit.Host.Run(t, "ip", "link", "set", "lw0", "mtu", "1400") // causes no report
	kit.Host.Run(t, "ip", "link", "set", "lw0", "down")
	says(w, false)
	later := begin()
	says(later, false)
	kit.Host.Run(t, "ip", "link", "set", "lw0", "up")
	says(w, true)
	says(later, true)
	kit.Host.Run(t, "ip", "link", "del", "lw0")
	for _, w := range []*Watch{w, later, begin()} {
		select {
		case <-w.Gone():
		case <-time.After(20 * time.Second):
			t.Fatal("nobody says that it is gone")
		}
	}
}
