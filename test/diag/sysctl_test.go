// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// netSettings parses lines "KEY = VALUE" of net.*. Under lklctl exec, these settings are
// the stack's.
func netSettings(text string) map[string]string {
	all := map[string]string{}
	for _, line := range kit.Lines(text) {
		if key, value, ok := strings.Cut(line, " = "); ok && strings.HasPrefix(key, "net.") {
			all[key] = value
		}
	}
	return all
}

// sysctlHides reports whether sysctl(8) -a omits a setting. It omits the deprecated
// settings in seconds and jiffies, which procps lists in DeprecatedList (src/sysctl.c).
func sysctlHides(key string) bool {
	return slices.Contains([]string{"base_reachable_time", "retrans_time"}, key[strings.LastIndex(key, ".")+1:])
}

// TestSysctlAgrees checks that sysctl(8), on the same stack, prints each setting of net.*
// with the value that lklctl sysctl prints just before or just after. Both must list the
// same settings, including those of an interface whose name contains a dot.
func TestSysctlAgrees(t *testing.T) {
	t.Parallel()
	kit.Need(t, "sysctl")
	b := newBusy(t, "supervise")
	b.InStack("ip", "link", "add", "vlan.7", "type", "dummy")
	before := netSettings(b.ctl("sysctl", "-a"))
	theirs := netSettings(b.InStack("sysctl", "-a"))
	after := netSettings(b.ctl("sysctl", "-a"))
	if _, ok := theirs["net.ipv4.conf.vlan/7.forwarding"]; len(theirs) < 800 || !ok {
		t.Fatalf("sysctl -a has %d settings, or none of vlan.7", len(theirs))
	}
	for key, value := range theirs {
		x, was := before[key]
		y, is := after[key]
		if !was || !is {
			t.Errorf("sysctl(8) has %s, we have not", key)
		} else if value != x && value != y {
			t.Errorf("%s: sysctl(8) says %q, we %q and then %q", key, value, x, y)
		}
	}
	for key := range before {
		if _, ok := theirs[key]; !ok && !sysctlHides(key) {
			t.Errorf("we have %s, sysctl(8) has not", key)
		}
	}
	t.Logf("%d settings compared", len(theirs))
	b.end()
}
