// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pythonSuite is a selection of CPython's own tests, from the package
// libpython3.11-testsuite.
type pythonSuite struct {
	label   string
	modules []string
	script  string
	work    string
}

// The distribution's interpreter, regardless of PATH.
const python = "/usr/bin/python3"

func (s *pythonSuite) name() string { return s.label }

func (s *pythonSuite) prepare(ctx context.Context, o options) error {
	s.script = filepath.Join(o.root, "test", "conformance", "python", "runner.py")
	s.work = filepath.Join(o.cache, "python")
	if err := os.MkdirAll(s.work, 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, s.work, nil, python, "-c", "import test.test_socket"); err != nil {
		return fmt.Errorf("no tests, install libpython3.11-testsuite: %w", err)
	}
	return nil
}

func (s *pythonSuite) tests(ctx context.Context) ([]string, error) {
	out, err := output(ctx, s.work, nil, append([]string{python, "-W", "ignore", s.script, "/dev/stdout", "0"}, s.modules...)...)
	return strings.Fields(string(out)), err
}

func (*pythonSuite) cannot(string) string { return "" }

func (s *pythonSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	report := filepath.Join(s.work, "report")
	if err := os.RemoveAll(report); err != nil {
		return nil, false, err
	}
	args := append([]string{python, "-W", "ignore", s.script, report, strconv.Itoa(int(m.test.Seconds()))}, s.modules...)
	args = append(append(args, "--"), done...)
	status, err := m.start(ctx, m.suite, s.work, nil, nil, m.wrap(args...)...)
	if err != nil && !errors.Is(err, errLimit) {
		return nil, false, err
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, false, fmt.Errorf("exit status %d and nothing run", status)
	}
	got, complete := results{}, false
	for _, line := range strings.Split(string(text), "\n") {
		word, test, _ := strings.Cut(line, " ")
		switch word {
		case "start":
			got[test] = crash // a later line may replace this
			if status == 3 || status == -1 {
				got[test] = hang
			}
		case "pass", "fail", "skip":
			got[test] = outcome(word)
		case "end":
			complete = true
		}
	}
	return got, complete, nil
}
