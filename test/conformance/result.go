// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strings"
)

// An outcome is the result of one test.
type outcome string

const (
	pass  outcome = "pass"
	fail  outcome = "fail"
	skip  outcome = "skip"
	hang  outcome = "hang"  // it did not end within its limit
	crash outcome = "crash" // its process ended before the test
	// starts is a test with preload that has started another process, which has no network there.
	starts outcome = "starts"
)

// results are the outcomes of a suite's tests by name.
type results map[string]outcome

// count returns how many tests ended in one of the outcomes.
func (r results) count(want ...outcome) int {
	n := 0
	for _, o := range r {
		for _, w := range want {
			if o == w {
				n++
			}
		}
	}
	return n
}

// native is the mode of the control runs, without a stack.
const native = "native"

// An exclusion says that a test does not count, and why.
type exclusion struct {
	suite, mode, test, reason string // mode: a pattern for place.String(), or * to exclude the test everywhere
}

// readExclusions parses lines of the form "SUITE MODE TEST REASON". All fields except
// the last are shell patterns.
func readExclusions(file string) ([]exclusion, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []exclusion
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 4 {
			return nil, fmt.Errorf("%s:%d: wants SUITE MODE TEST REASON", file, n)
		}
		for _, p := range f[:3] {
			if _, err := path.Match(p, ""); err != nil {
				return nil, fmt.Errorf("%s:%d: %s: %w", file, n, p, err)
			}
		}
		all = append(all, exclusion{f[0], f[1], f[2], strings.Join(f[3:], " ")})
	}
	return all, lines.Err()
}

// reason returns the reason of an entry that concerns the test in the mode, or "".
func reason(all []exclusion, suite, mode, test string) string {
	for _, e := range all {
		if e.matches(suite, mode, test) {
			return e.reason
		}
	}
	return ""
}

// matches reports whether the exclusion applies to the test in the mode. Slashes in
// test names have no special meaning.
func (e exclusion) matches(suite, mode, test string) bool {
	ok, _ := path.Match(e.suite, suite) // the pattern was checked
	if !ok {
		return false
	}
	ok, _ = path.Match(e.mode, mode)
	if !ok || mode == native && e.mode != "*" {
		return false
	}
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x01") }
	ok, _ = path.Match(flat(e.test), flat(test))
	return ok
}

// isExcluded reports whether a test is excluded in the mode.
func isExcluded(all []exclusion, suite, mode, test string) bool {
	return reason(all, suite, mode, test) != ""
}
