// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestWindow checks that the receive window grows on a path with a long round trip and no
// limit of its rate: there, the data of a whole round trip arrives before the reader runs.
func TestWindow(t *testing.T) {
	const want = 1 << 20 // without patches/6.12/tcp-window-for-bursts, it often stays at 288 KB
	kit.Need(t, "/usr/bin/python3", kit.Bin("lklrun"))
	script := filepath.Join(kit.Root(), "test/kernels/testdata/window.py")
	out := kit.OK(t, kit.Limit, kit.Lklrun("lab", "--stack", "vanilla", "--server-stack", "vanilla", "--delay", "150ms",
		"--server", "/usr/bin/python3 "+script+" serve", "--", "/usr/bin/python3", script))
	largest, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	t.Logf("largest windows: at least %d bytes", largest)
	if largest < want {
		t.Errorf("a connection's largest window has %d bytes, want at least %d", largest, want)
	}
}
