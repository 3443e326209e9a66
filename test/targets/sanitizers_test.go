// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestFinding16SanitizersCoverAllPrograms checks that `make san` without arguments builds
// every program, each with a sanitizer or the race detector, and writes only below
// build/. The release checklist uses this target.
func TestFinding16SanitizersCoverAllPrograms(t *testing.T) {
	kit.Need(t, "make")
	cmd := exec.Command("make", "-n", "san")
	cmd.Dir = kit.Root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make -n san: %v\n%s", err, out)
	}
	dir := filepath.Join(kit.Root(), "build", "san")
	var sanitized, raced bool
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, f := range fields {
			if f == "/" || f == "/lklhost" || f == "/stacks" || f == "OUT=" {
				t.Errorf("outside of build/: %s", line)
			}
		}
		sanitized = sanitized || strings.Contains(line, "SAN=1 OUT="+dir+" ") && strings.Contains(line, " all ")
		raced = raced || strings.Contains(line, " -race ") && strings.Contains(line, dir) && strings.Contains(line, "cmd/lklrun") && strings.Contains(line, "cmd/lklctl")
	}
	if !sanitized || !raced {
		t.Errorf("lklhost and its libraries: %v, lklrun and lklctl: %v; make -n san says\n%s", sanitized, raced, out)
	}
}
