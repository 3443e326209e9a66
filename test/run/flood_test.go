// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/flood.py
var flood string

//go:embed testdata/turns.py
var turns string

// TestFlood checks that what one process makes lklhost keep stays within the memory of the
// stack (--mem) and 64 MiB, and does not stop another process's round trips.
func TestFlood(t *testing.T) {
	s := kit.NewSite(t)
	const mem = 64
	for kind, size := range map[string]int{"sockets": 15000, "buffers": 2000, "replies": 10000, "waits": 2000,
		"filters": 3000, "neighbours": 5000, "origins": 2000, "streams": 800} {
		t.Run(kind, func(t *testing.T) {
			name := kit.NewName()
			stack := "mptcp"
			if kind == "streams" {
				stack = "vanilla" // docs/reference/limits.md, "One process"
			}
			p := kit.Start(t, kit.Lklrun("--name", name, "-q", "--stack", stack, "--mem", fmt.Sprint(mem, "M"), "--if", s.TapIf(), "--",
				"/usr/bin/python3", "-c", flood, kind, strconv.Itoa(size), "4000"))
			said := func(text string) {
				t.Helper()
				kit.WaitFor(t, text, kit.TransferLimit, func() bool { out, _ := p.Output(); return strings.Contains(out, text) || !p.Running() })
			}
			said("flooded")
			status := kit.ReadFile(t, fmt.Sprintf("/proc/%d/status", kit.ProcessOf(t, &kit.Talker{Name: name}, "host_pid")))
			kB, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s*(\d+)`).FindStringSubmatch(status)[1])
			kit.Must(t, err)
			t.Logf("lklhost used %d MiB", kB/1024)
			if kB/1024 > mem+64 {
				t.Errorf("lklhost used %d MiB", kB/1024)
			}
			kit.WaitFor(t, "the round trips", kit.Limit, func() bool { out, _ := p.Output(); return strings.Contains(out, "done") || !p.Running() })
			if r := p.Wait(kit.Limit); r.Status != 0 {
				t.Errorf("%v", r)
			}
		})
	}
}

// TestTurns checks that each of 16 processes makes progress while all make calls without end.
func TestTurns(t *testing.T) {
	for _, engine := range []string{"supervise", "trace"} {
		t.Run(engine, func(t *testing.T) {
			t.Log(kit.OK(t, kit.Limit, kit.Lklrun("-q", "--engine", engine, "--", "/usr/bin/python3", "-c", turns, "16", "300")))
		})
	}
}
