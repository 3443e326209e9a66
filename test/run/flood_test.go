// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/flood.py
var flood string

//go:embed testdata/turns.py
var turns string

// TestFlood checks that what one process makes the stack keep stays within the memory of the
// stack (--mem) and 64 MiB, and does not stop another process's round trips. With preload,
// the stack is in the process, and a thread makes the round trips.
func TestFlood(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	bin := kit.PublicBin(t)
	const mem = 64
	size := map[string]int{"sockets": 15000, "buffers": 2000, "replies": 10000, "waits": 2000, "filters": 3000,
		"neighbours": 5000, "origins": 2000, "streams": 800, "raw": 1000}
	limit := map[string]time.Duration{"flooded": kit.TransferLimit, "done": kit.Limit}
	for _, row := range []struct{ who, engine, other, pid string }{
		{"user", "supervise", "process", "host_pid"},
		{"user", "trace", "process", "host_pid"},
		{"root", "preload", "thread", "target_pid"},
	} {
		for _, kind := range slices.Sorted(maps.Keys(size)) {
			t.Run(row.who+"/"+row.engine+"/"+kind, func(t *testing.T) {
				name, runDir := kit.NewName(), kit.Dir(t)
				stack := "mptcp"
				if kind == "streams" {
					stack = "vanilla" // docs/reference/limits.md, "One process"
				}
				command := func(program string, args ...string) *exec.Cmd {
					cmd := exec.Command(filepath.Join(bin, program), args...)
					if row.who == "user" {
						kit.AsUser(cmd, runDir)
					}
					return cmd
				}
				kit.Must(t, os.Chown(runDir, kit.OrdinaryUID, kit.OrdinaryUID))
				run := command("lklrun", "--name", name, "-q", "--engine", row.engine, "--stack", stack, "--mem", fmt.Sprint(mem, "M"), "--if", "user", "--",
					"/usr/bin/python3", "-c", flood, kind, strconv.Itoa(size[kind]), "4000", row.other)
				stdin, end, err := os.Pipe()
				kit.Must(t, err)
				defer stdin.Close()
				defer end.Close()
				run.Stdin = stdin
				p := kit.Start(t, run)
				for _, text := range []string{"flooded", "done"} {
					kit.WaitFor(t, text, limit[text], func() bool { out, _ := p.Output(); return strings.Contains(out, text) || !p.Running() })
				}
				list := kit.OK(t, kit.Limit, command("lklctl", "-o", "json", "list"))
				status := kit.ReadFile(t, fmt.Sprintf("/proc/%d/status", kit.ProcessIn(t, list, &kit.Talker{Name: name}, row.pid)))
				kB, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s*(\d+)`).FindStringSubmatch(status)[1])
				kit.Must(t, err)
				t.Logf("the process of the stack used %d MiB", kB/1024)
				if kB/1024 > mem+64 {
					t.Errorf("the process of the stack used %d MiB", kB/1024)
				}
				kit.Must(t, end.Close())
				if r := p.Wait(kit.Limit); r.Status != 0 || strings.Contains(r.Stderr, "Traceback") {
					t.Errorf("%v", r)
				}
			})
		}
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
