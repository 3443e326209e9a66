// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/threads.py
var threads string

// TestThreads compares the threads of a busy lklhost with the list in internals.md.
// "carriers" and "lkl-writer" start only if the loop is busy enough.
func TestThreads(t *testing.T) {
	text := kit.ReadFile(t, filepath.Join(kit.Root(), "docs", "explanation", "internals.md"))
	_, text, _ = strings.Cut(text, "\n## Threads of lklhost\n")
	text, _, _ = strings.Cut(text, "\n## ")
	seen := map[string]bool{"lklhost": true} // for each listed thread, whether it was seen
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		seen[row[1]] = false
	}

	s := kit.NewSite(t)
	name := kit.NewName()
	p := kit.Start(t, kit.Lklrun("--name", name, "-q", "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", threads, kit.ServerAddr))
	kit.WaitFor(t, "the program", kit.Limit, func() bool { said, _ := p.Output(); return said != "" || !p.Running() })
	host := kit.ProcessOf(t, &kit.Talker{Name: name}, "host_pid")
	kit.WaitFor(t, "the end of the program", kit.TransferLimit, func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", host))
		for _, file := range files {
			text, err := os.ReadFile(file)
			comm := strings.TrimSpace(string(text))
			if _, listed := seen[comm]; err == nil && !listed {
				t.Errorf("internals.md does not list the thread %q", comm)
			}
			seen[comm] = true
		}
		return !p.Running()
	})
	if r := p.Wait(kit.Limit); r.Status != 0 || !seen["watchdog"] || !seen["paged access"] {
		t.Errorf("%v: %v", seen, r)
	}
	t.Log(seen)
}
