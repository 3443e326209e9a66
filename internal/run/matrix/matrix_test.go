// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lklrun/lklrun/pkg/lab"
)

func TestExpand(t *testing.T) {
	m := &Matrix{Vars: []Var{{"client", []string{"a", "b"}}, {"size", []string{"1"}}, {"loss", []string{"1%", "5%", "9%"}}}}
	if err := m.Expand(1); err != nil {
		t.Fatal(err)
	}
	var names []string
	for k := range m.Cells {
		names = append(names, m.Name(&m.Cells[k]))
	}
	want := "client=a loss=1%, client=a loss=5%, client=a loss=9%, client=b loss=1%, client=b loss=5%, client=b loss=9%"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	if c := m.Cells[5]; c.Vars["size"] != "1" {
		t.Errorf("%v", c)
	}
	single := &Matrix{Vars: m.Vars[1:2]}
	if err := single.Expand(1); err != nil || single.Name(&single.Cells[0]) != "size=1" {
		t.Errorf("%v, %v", single, err)
	}
	if err := m.Expand(MaxRuns); err == nil {
		t.Error("no error for too many runs")
	}
}

// TestExecute checks the order of the runs, failed ones, and an interruption.
func TestExecute(t *testing.T) {
	m := &Matrix{Vars: []Var{{"x", []string{"1", "2"}}}}
	if err := m.Expand(2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var order []string
	run := func(_ context.Context, number int, c *Cell) Run {
		order = append(order, c.Vars["x"])
		if number == 4 {
			cancel()
		}
		return Run{OK: c.Vars["x"] == "1"}
	}
	calls := 0
	m.Execute(ctx, 2, 1, run, func(int, int, *Cell, *Run) { calls++ })
	if got := strings.Join(order, " "); got != "1 2 1 2" {
		t.Errorf("order %s", got)
	}
	if calls != 3 || !m.Stopped || m.OK || len(m.Cells[0].Runs) != 2 || len(m.Cells[1].Runs) != 1 || m.Cells[0].Failed() != 0 || m.Cells[1].Failed() != 1 {
		t.Errorf("%d calls, %+v", calls, m)
	}
}

// TestExecuteAtOnce checks that runs at the same time keep their order and their cells.
func TestExecuteAtOnce(t *testing.T) {
	m := &Matrix{Vars: []Var{{"x", []string{"1", "2"}}}}
	if err := m.Expand(50); err != nil {
		t.Fatal(err)
	}
	var running, most, ended atomic.Int32
	begun := make(chan bool, 100)
	run := func(_ context.Context, number int, c *Cell) Run {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		begun <- true
		for number == 1 && len(begun) < 3 { // others overtake the first
			runtime.Gosched()
		}
		return Run{OK: true, Error: fmt.Sprint(number, c.Vars["x"])}
	}
	m.Execute(t.Context(), 50, 3, run, func(int, int, *Cell, *Run) { ended.Add(1) })
	if ended.Load() != 100 || !m.OK || most.Load() > 3 {
		t.Errorf("%d runs, at most %d at a time", ended.Load(), most.Load())
	}
	for k, c := range m.Cells {
		for n, r := range c.Runs {
			if want := fmt.Sprint(2*n+k+1, c.Vars["x"]); r.Error != want || len(c.Runs) != 50 {
				t.Fatalf("run %d of cell %d is %q, expected %q", n, k, r.Error, want)
			}
		}
	}
}

func TestSummary(t *testing.T) {
	for want, values := range map[string][]string{
		"":                 nil,
		"2":                {"2"},
		"1.5Mbit/s":        {"1.5Mbit/s", "1.5Mbit/s"},
		"2.5s (0.9s-10s)":  {"10s", "0.9s", "2.5s"},
		"1.5 (1-2)":        {"2", "1"},
		"3.5s (1s-9s)":     {"9s", "1s", "3s", "4s"},
		"right":            {"right", "", "right"},
		"right, wrong":     {"wrong", "right"},
		"1Mbit/s, 2kbit/s": {"1Mbit/s", "2kbit/s"},
		"-":                {"-"},
	} {
		c := &Cell{}
		for _, v := range values {
			c.Runs = append(c.Runs, Run{Values: map[string]string{"x": v}})
		}
		if got := c.Summary("x"); got != want {
			t.Errorf("%q: %q, expected %q", values, got, want)
		}
	}
}

// TestScenarios checks that the built-in scenarios are valid topologies with steps that
// report results, and that a copy does not replace changed files.
func TestScenarios(t *testing.T) {
	names := BuiltIn()
	if strings.Join(names, " ") != "goodput mptcp" || !IsBuiltIn("mptcp") || IsBuiltIn("transfer.py") || IsBuiltIn("./mptcp") {
		t.Errorf("%q", names)
	}
	dir := t.TempDir()
	for _, name := range names {
		file, err := Copy(name, dir, false)
		if err != nil {
			t.Fatal(err)
		}
		topology, err := lab.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if topology.Name != name || len(topology.Reports()) == 0 {
			t.Errorf("%+v", topology)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mptcp.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy("mptcp", dir, false); err == nil || !strings.Contains(err.Error(), "mptcp.json already exists") {
		t.Errorf("%v", err)
	}
	if _, err := Copy("mptcp", dir, true); err != nil {
		t.Error(err)
	}
	if _, err := Copy("mptcp", filepath.Join(dir, "mptcp.json", "x"), false); err == nil {
		t.Error("no error for a folder below a file")
	}
}
