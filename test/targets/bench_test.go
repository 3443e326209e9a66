// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/lklrun/lklrun/test/kit"
)

// TestBench runs the smallest form of a scenario. It makes no statement about speed. It
// checks that all variants were measured, that the results can be read, and that
// nothing is left behind.
func TestBench(t *testing.T) {
	kit.NewSite(t)
	kit.Need(t, "gcc", "unshare", "taskset", "ethtool")
	before := kit.Take(t)
	// The folder is ignored by git, like everything that the benchmarks build.
	dir := filepath.Join(kit.Root(), "build", "test", "benched")
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	groups, err := filepath.Glob("/sys/fs/cgroup/*/lklrun-bench-*")
	if err != nil {
		t.Fatal(err)
	}
	bench := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(kit.Program("bench"), args...)
		cmd.Dir = kit.Root()
		r := kit.Run(t, 2*time.Minute, cmd)
		return r.Stdout + r.Stderr, r.Status
	}

	record := filepath.Join(dir, "record.json")
	out, status := bench("-only", "^bulk$", "-rounds", "1", "-length", "50ms", "-out", dir, "-docs", dir, "-record", record)
	if status != 0 || !strings.Contains(out, "Bulk transfer") {
		t.Fatalf("status %d: %s", status, out)
	}
	type key struct {
		Scenario, What, Placement, Variant string
		Params                             map[string]string
	}
	var run struct {
		Rows []struct {
			Key     key
			Medians map[string]float64
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err == nil {
		err = json.Unmarshal(text, &run)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"host", "library", "preload", "supervise"} {
		for _, dir := range []string{"send", "recv"} {
			k := key{"bulk", "bulk", "one-cpu", v, map[string]string{"dir": dir, "offloads": "on", "cc": "cubic"}}
			medians := map[string]float64{}
			for _, r := range run.Rows {
				if reflect.DeepEqual(r.Key, k) {
					medians = r.Medians
				}
			}
			for _, unit := range []string{"Gbit/s", "cpu-s/GB"} {
				if medians[unit] <= 0 {
					t.Errorf("%v: %v %s", k, medians[unit], unit)
				}
			}
		}
	}
	text, err = os.ReadFile(filepath.Join(dir, "benchstat.txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for r := benchfmt.NewReader(bytes.NewReader(text), "benchstat.txt"); r.Scan(); {
		if e, ok := r.Result().(*benchfmt.SyntaxError); ok {
			t.Error(e)
		}
		lines++
	}
	if lines != len(run.Rows) {
		t.Errorf("%d lines for benchstat, %d rows", lines, len(run.Rows))
	}
	for _, name := range []string{"benchmarks.md", "benchmarks/bulk-throughput.svg", "report.txt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, status := bench("-render", filepath.Join(dir, "run.json"), "-out", filepath.Join(dir, "again"), "-compare", record); status != 0 || !strings.Contains(out, "none of ") {
		t.Errorf("beside itself: status %d: %s", status, out)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/lklrun-bench-*"); len(left) > len(groups) {
		t.Errorf("left behind: %v", left)
	}
	before.Same()

	for args, want := range map[string]string{
		"-form x": "expected quick or full", "-only nothing-like-it": "no scenario", "-rounds -1": "-rounds", "-wrong": "-wrong", "word": "word",
		"-compare /nowhere/recorded.json": "/nowhere/recorded.json",
	} {
		out, status := bench(strings.Fields(args)...)
		if status != 2 || !strings.Contains(out, want) || strings.Count(strings.TrimSpace(out), "\n") > 0 {
			t.Errorf("%s: status %d, %q; want 2 and one line with %q", args, status, out, want)
		}
	}
}
