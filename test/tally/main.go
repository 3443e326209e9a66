// SPDX-License-Identifier: Apache-2.0

// Command tally reads directories of test results, TAP (*.tap) and `go test -json`
// (*.json). It prints the failures and the skipped tests, and ends with "N passed,
// N failed". A skipped test counts as passed. If CI is set in the environment, it counts
// as a failure, because the CI machine must have everything that the tests need.
//
// A test that passes only when repeated counts as passed, but tally prints its name, and
// writes the output of its first run to a file in the directory of -flaky. More than two
// such tests are a failure. The first run of NAME.tap is NAME.first.
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

// maxFlaky is the maximum number of tests that may pass only when repeated.
const maxFlaky = 2

func main() {
	quiet := flag.Bool("q", false, "only the closing line")
	flaky := flag.String("flaky", "", "write the first output of tests that passed only when repeated to files in `DIR`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: tally [-q] [-flaky DIR] RESULTS...")
		os.Exit(2)
	}
	os.Exit(run(flag.Args(), *flaky, *quiet, os.Getenv("CI") != "", os.Stdout, os.Stderr))
}

// counts are the results of one or more files.
type counts struct {
	passed   int
	failures []result
	skips    []result
	flaky    []result // passed, but only when repeated
}

// result is a test that failed, was skipped or passed only when repeated. It includes the
// test's output, or the end of it.
type result struct {
	name   string
	output []string
}

func run(dirs []string, flaky string, quiet, strict bool, stdout, stderr io.Writer) int {
	var total counts
	for _, dir := range dirs {
		if err := readDir(dir, strict, &total); err != nil {
			fmt.Fprintln(stderr, "tally:", err)
			return 1
		}
	}
	if flaky != "" {
		if err := keep(flaky, total.flaky); err != nil {
			fmt.Fprintln(stderr, "tally:", err)
			return 1
		}
	}
	if n := len(total.flaky); n > maxFlaky {
		total.failures = append(total.failures, result{
			name:   fmt.Sprintf("%d tests passed only when repeated, and at most %d may", n, maxFlaky),
			output: names(total.flaky),
		})
	}
	if !quiet {
		show(stdout, "SKIP", total.skips)
		show(stdout, "FLAKY", total.flaky)
		show(stdout, "FAIL", total.failures)
		if len(total.skips) > 0 {
			fmt.Fprintf(stdout, "%d skipped\n", len(total.skips))
		}
	}
	fmt.Fprintf(stdout, "%d passed, %d failed\n", total.passed, len(total.failures))
	if len(total.failures) > 0 {
		return 1
	}
	return 0
}

// readDir reads all result files of a directory.
func readDir(dir string, strict bool, c *counts) error {
	files := 0
	for ext, read := range map[string]func(string, io.Reader, bool, *counts) error{".tap": readTAP, ".json": readGo} {
		paths, err := filepath.Glob(filepath.Join(dir, "*"+ext))
		if err != nil {
			return err
		}
		for _, path := range paths {
			files++
			f, err := os.Open(path)
			if err == nil {
				err = read(strings.TrimSuffix(filepath.Base(path), ext), f, strict, c)
				_ = f.Close() // it was only read
			}
			if err != nil {
				c.failures = append(c.failures, result{name: path, output: []string{err.Error()}})
			}
		}
	}
	if files == 0 {
		c.failures = append(c.failures, result{name: dir, output: []string{"no results in it"}})
	}
	return readFirst(dir, c)
}

// readFirst reads the first runs of TAP streams. If the second run failed as well, its
// results report the failure.
func readFirst(dir string, c *counts) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.first"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		suite := strings.TrimSuffix(filepath.Base(path), ".first")
		var second, first counts
		if err := readTAPFile(filepath.Join(dir, suite+".tap"), suite, &second); err != nil || len(second.failures) > 0 {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		err = readTAP(suite, strings.NewReader(string(text)), false, &first)
		if err != nil && len(first.failures) == 0 {
			first.failures = []result{{name: suite}}
		}
		for _, f := range first.failures {
			c.flaky = append(c.flaky, result{name: f.name, output: strings.Split(string(text), "\n")})
		}
	}
	return nil
}

func readTAPFile(path, suite string, c *counts) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return readTAP(suite, f, false, c)
}

// keep writes the outputs to DIR/NAME.txt, or removes DIR if there are none.
func keep(dir string, flaky []result) error {
	if err := os.RemoveAll(dir); err != nil || len(flaky) == 0 {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range flaky {
		name := strings.ReplaceAll(f.name, "github.com/lklrun/lklrun/", "")
		name = strings.Trim(fileName.ReplaceAllString(name, "-"), "-")
		if err := os.WriteFile(filepath.Join(dir, name[:min(len(name), 200)]+".txt"), []byte(strings.Join(f.output, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var fileName = regexp.MustCompile(`[^A-Za-z0-9_.]+`)

func names(results []result) (all []string) {
	for _, r := range results {
		all = append(all, r.name)
	}
	return all
}

func show(w io.Writer, kind string, results []result) {
	sort.Slice(results, func(i, j int) bool { return results[i].name < results[j].name })
	for _, r := range results {
		fmt.Fprintf(w, "%s %s\n", kind, r.name)
		for _, line := range last(r.output, 40) {
			fmt.Fprintf(w, "     %s\n", line)
		}
	}
}

var (
	tapLine = regexp.MustCompile(`^(not )?ok\b\s*(\d+)?\s*-?\s*([^#]*)(#\s*(?i:(skip|todo))\b.*)?`)
	tapPlan = regexp.MustCompile(`^1\.\.(\d+)`)
)

// readTAP counts the results of a TAP stream, which may consist of several streams (one
// for each test program). If a plan names more tests than there are results, the program
// died, which counts as a failure.
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
		r := result{name: suite + ": " + strings.TrimSpace(m[3]), output: []string{line}}
		switch {
		case m[1] != "" && !strings.EqualFold(m[5], "todo"), skipped && strict:
			c.failures = append(c.failures, r)
		case skipped:
			c.skips = append(c.skips, r)
			c.passed++
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
	output := map[string][]string{} // output of the current run of a test, or else of its last run
	first := map[string][]string{}  // of failed runs, by package and top-level test
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
		key := e.key(e.Test)
		switch {
		case e.Action == "run":
			output[key] = nil
		case strings.HasSuffix(e.Action, "output"):
			if line := strings.TrimRight(e.Output, "\n"); interesting(line) {
				output[key] = append(output[key], line)
			}
		case e.Action == "fail", e.Action == "skip", e.Action == "pass":
			if _, again := ends[key]; !again {
				order = append(order, key)
			}
			ends[key] = e
			if e.Action == "fail" && e.Test != "" {
				root := e.key(e.root())
				first[root] = append(append(first[root], "--- FAIL: "+e.Test), output[key]...)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	if events == 0 {
		return fmt.Errorf("%s: no test event in it", suite)
	}
	// The event for the end of a package follows the events of its tests.
	failedIn := map[string]bool{}
	for _, key := range order {
		e := ends[key]
		passes := ends[e.key(e.root())].Action == "pass"
		if passes && e.Test == e.root() && first[key] != nil {
			c.flaky = append(c.flaky, result{name: suite + ": " + key, output: first[key]})
		}
		if e.Action == "fail" && passes {
			continue // a subtest that did not run the second time
		}
		r := result{name: key, output: last(output[key], 40)}
		switch {
		case e.Action == "fail" && e.Test == "" && failedIn[e.Package]:
			// The failed tests of the package were already reported.
		case e.Action == "fail", e.Action == "skip" && e.Test != "" && strict:
			failedIn[e.Package] = true
			c.failures = append(c.failures, r)
		case e.Action == "skip" && e.Test != "":
			c.skips = append(c.skips, r)
			c.passed++
		case e.Test != "":
			c.passed++
		}
	}
	return nil
}

// key names a test of the event's package.
func (e event) key(test string) string { return strings.TrimSuffix(e.Package+" "+test, " ") }

// root is the top-level test of the event's test.
func (e event) root() string {
	root, _, _ := strings.Cut(e.Test, "/")
	return root
}

// interesting reports whether a line is output of a test, and not a line of the go
// command, such as "=== RUN".
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
