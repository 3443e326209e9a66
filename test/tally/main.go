// SPDX-License-Identifier: Apache-2.0

// Command tally reads a directory of test results, TAP (*.tap) and `go test -json`
// (*.json). It prints the failures and ends with "N passed, N failed". A skipped test
// counts as passed. If CI is set in the environment, it counts as a failure, because
// the CI machine must have everything that the tests need.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

func main() {
	quiet := flag.Bool("q", false, "only the closing line")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: tally [-q] DIR")
		os.Exit(2)
	}
	os.Exit(run(flag.Arg(0), *quiet, os.Getenv("CI") != "", os.Stdout, os.Stderr))
}

// counts are the results of one or more files.
type counts struct {
	passed   int
	failures []failure
}

// failure is one failed test, with the end of its output.
type failure struct {
	name   string
	output []string
}

func run(dir string, quiet, strict bool, stdout, stderr io.Writer) int {
	var total counts
	files := 0
	for ext, read := range map[string]func(string, io.Reader, bool, *counts) error{".tap": readTAP, ".json": readGo} {
		names, err := filepath.Glob(filepath.Join(dir, "*"+ext))
		if err != nil {
			fmt.Fprintln(stderr, "tally:", err)
			return 1
		}
		for _, name := range names {
			files++
			f, err := os.Open(name)
			if err == nil {
				err = read(strings.TrimSuffix(filepath.Base(name), ext), f, strict, &total)
				_ = f.Close() // it was only read
			}
			if err != nil {
				total.failures = append(total.failures, failure{name: name, output: []string{err.Error()}})
			}
		}
	}
	if files == 0 {
		total.failures = append(total.failures, failure{name: dir, output: []string{"no results in it"}})
	}
	if !quiet {
		sort.Slice(total.failures, func(i, j int) bool { return total.failures[i].name < total.failures[j].name })
		for _, f := range total.failures {
			fmt.Fprintf(stdout, "FAIL %s\n", f.name)
			for _, line := range f.output {
				fmt.Fprintf(stdout, "     %s\n", line)
			}
		}
	}
	fmt.Fprintf(stdout, "%d passed, %d failed\n", total.passed, len(total.failures))
	if len(total.failures) > 0 {
		return 1
	}
	return 0
}

var (
	tapLine = regexp.MustCompile(`^(not )?ok\b\s*(\d+)?\s*-?\s*([^#]*)(#\s*(?i:(skip|todo))\b.*)?`)
	tapPlan = regexp.MustCompile(`^1\.\.(\d+)`)
)

// readTAP counts the results of a TAP stream, which may consist of several streams (one
// for each test program). If a plan has more tests than results, this is a failure: the
// program died.
func readTAP(suite string, r io.Reader, strict bool, c *counts) error {
	planned, seen := 0, 0
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		if m := tapPlan.FindStringSubmatch(line); m != nil {
			var n int
			if _, err := fmt.Sscan(m[1], &n); err != nil {
				return fmt.Errorf("reading the plan %q: %w", line, err)
			}
			planned += n
			continue
		}
		m := tapLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		seen++
		skipped := strings.EqualFold(m[5], "skip")
		switch {
		case m[1] != "" && !strings.EqualFold(m[5], "todo"), skipped && strict:
			c.failures = append(c.failures, failure{name: suite + ": " + strings.TrimSpace(m[3]), output: []string{line}})
		default:
			c.passed++
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	if seen == 0 {
		return fmt.Errorf("%s: no TAP result in it", suite)
	}
	if planned > seen {
		return fmt.Errorf("%s: %d tests planned, %d reported", suite, planned, seen)
	}
	return nil
}

// event is a line of `go test -json` (cmd/test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // build-output, build-fail
	Test       string
	Output     string
}

// readGo counts tests and subtests. A package that failed without a failing test (build
// error, panic, timeout) counts as one failure. For a test that ran twice, the second
// result counts.
func readGo(suite string, r io.Reader, strict bool, c *counts) error {
	output := map[string][]string{}
	ends := map[string]event{}
	var order []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	events := 0
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			// The go command prints its own errors as plain text.
			return fmt.Errorf("%s: %s", suite, sc.Text())
		}
		events++
		if e.Package == "" {
			e.Package = e.ImportPath
		}
		key := strings.TrimSuffix(e.Package+" "+e.Test, " ")
		switch {
		case strings.HasSuffix(e.Action, "output"):
			if line := strings.TrimRight(e.Output, "\n"); interesting(line) {
				output[key] = append(output[key], line)
			}
		case e.Action == "fail", e.Action == "skip", e.Action == "pass":
			if _, again := ends[key]; !again {
				order = append(order, key)
			}
			ends[key] = e
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	if events == 0 {
		return fmt.Errorf("%s: no test event in it", suite)
	}
	// The end of a package follows those of its tests.
	failedIn := map[string]bool{}
	for _, key := range order {
		e := ends[key]
		root, _, _ := strings.Cut(e.Test, "/")
		if e.Action == "fail" && ends[strings.TrimSuffix(e.Package+" "+root, " ")].Action == "pass" {
			continue // a subtest that did not run the second time
		}
		switch {
		case e.Action == "fail" && e.Test == "" && failedIn[e.Package]:
			// already reported, test by test
		case e.Action == "fail", e.Action == "skip" && e.Test != "" && strict:
			failedIn[e.Package] = true
			c.failures = append(c.failures, failure{name: key, output: last(output[key], 40)})
		case e.Test != "":
			c.passed++
		}
	}
	return nil
}

// interesting filters out the lines that only frame the others.
func interesting(line string) bool {
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- ", "PASS", "FAIL", "ok  \t"} {
		if strings.HasPrefix(strings.TrimLeft(line, " "), prefix) {
			return false
		}
	}
	return line != ""
}

func last(lines []string, n int) []string {
	if len(lines) > n {
		return lines[len(lines)-n:]
	}
	return lines
}
