// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A result is a table with its values, by row, way and turn.
type result struct {
	table
	values  [][][]float64
	missing map[string]error
}

type header struct {
	commit, load string
	turns        int
	took         time.Duration
}

// median returns the median, and half the distance between the quartiles relative to it.
func median(values []float64) (mid, spread float64) {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	mid = (v[(n-1)/2] + v[n/2]) / 2
	return mid, (v[n-1-n/4] - v[n/4]) / 2 / mid
}

// cell formats values beside those of the first way.
func cell(values, first []float64, isFirst bool) string {
	if len(values) == 0 {
		return ""
	}
	mid, spread := median(values)
	text := strconv.FormatFloat(mid, 'f', max(0, 3-len(strconv.Itoa(int(mid)))), 64)
	if !isFirst && len(first) > 0 {
		base, _ := median(first)
		text += fmt.Sprintf(" (**%.2f**)", mid/base)
	}
	return text + fmt.Sprintf(" ±%.0f %%", 100*spread)
}

// write writes the page.
func write(out *bytes.Buffer, h header, results []result) {
	para := func(format string, args ...any) { fmt.Fprintf(out, "%s\n", wrapped(fmt.Sprintf(format, args...))) }
	para("# Benchmarks\n")
	para("`make bench` writes this page; do not edit it. All figures are of one run of %.0f minutes on commit %s, on %s: %s with %d CPUs, Linux %s, load %s at the start.\n",
		h.took.Minutes(), h.commit, time.Now().UTC().Format(time.DateOnly), cpuModel(), runtime.NumCPU(), release(), h.load)
	para("Each cell is the median of %d turns, in brackets the ratio to the first column, and half the distance between the quartiles. "+
		"The turns of all columns alternate. Both ends, lklhost and the kernel share the CPUs, so that a difference below the spread means nothing. "+
		"[performance.md](../explanation/performance.md) explains the differences.\n", h.turns)
	para("Programs: iperf3 for 1 s (streams with CUBIC; datagrams as fast as the sender can), sockperf (median round trip), wrk with 32 connections, nginx with one process and an answer of 16 bytes. " +
		"Everything is in namespaces of one machine. gVisor's runsc is absent, because that of Debian 12 does not start here with a network.\n")
	for _, r := range results {
		para("## %s\n", r.title)
		para("%s\n", r.text)
		out.WriteString("| |")
		for _, w := range r.ways {
			out.WriteString(" " + w.name + " |")
		}
		out.WriteString("\n|---|" + strings.Repeat("---:|", len(r.ways)) + "\n")
		for i, row := range r.rows {
			fmt.Fprintf(out, "| %s, %s |", row.name, row.unit)
			for j := range r.ways {
				fmt.Fprintf(out, " %s |", cell(r.values[i][j], r.values[i][0], j == 0))
			}
			out.WriteString("\n")
		}
		out.WriteString("\n")
		for _, what := range slices.Sorted(maps.Keys(r.missing)) {
			fmt.Fprintf(os.Stderr, "bench: failed: %s: %v\n", what, r.missing[what])
			para("Failed: %s.\n", what)
		}
	}
	fmt.Fprintf(out, "<!-- sum %x -->\n", sha256.Sum256(out.Bytes()))
}

// wrapped fills lines of 100 columns.
func wrapped(text string) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		if i > 0 && column+1+len(word) > 100 {
			out.WriteString("\n")
			column = 0
		} else if i > 0 {
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String()
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // without it, the page names no model
	if m := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(info); m != nil {
		return string(m[1])
	}
	return runtime.GOARCH
}

func release() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease") // always there
	return strings.TrimSpace(string(text))
}

// dataPath lists the sources that decide the speed of a run.
var dataPath = []string{"csrc", "third_party/lkl", "stacks", "internal/link", ":!csrc/tests", ":!third_party/lkl/tests", ":!*.md", ":!*_test.go"}

// check checks that the page is what a run wrote, and that at most limit commits have changed the
// data path since. A limit of 0 would turn every commit to the data path red, and a run takes
// minutes on an idle machine: so lint accepts the changes of some weeks, and a release none.
func check(path string, limit int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	body, sum, _ := bytes.Cut(text, []byte("<!-- sum "))
	if want := fmt.Sprintf("%x -->\n", sha256.Sum256(body)); string(sum) != want {
		return fmt.Errorf("%s was changed by hand; run make bench, which writes it", path)
	}
	m := regexp.MustCompile(`\son\s+commit\s+([0-9a-f]{12})\b`).FindSubmatch(body)
	if m == nil {
		return fmt.Errorf("%s names no commit; run make bench", path)
	}
	commit := string(m[1])
	if shallow, err := command("git", "rev-parse", "--is-shallow-repository"); err == nil && shallow == "true" {
		return nil // without the history, nobody knows
	}
	if _, err := command("git", "merge-base", "--is-ancestor", commit, "HEAD"); err != nil {
		return fmt.Errorf("%s is of commit %s, which is not in the history of HEAD; run make bench (or fetch the history)", path, commit)
	}
	out, err := command(append([]string{"git", "rev-list", "--count", commit + "..HEAD", "--"}, dataPath...)...)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(out); err != nil || n > limit {
		return fmt.Errorf("%s is outdated: %s commits have changed the data path since %s, %d are permitted; run make bench on an idle machine and commit the page", path, out, commit, limit)
	}
	return nil
}
