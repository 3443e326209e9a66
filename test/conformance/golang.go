// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// goSuite is the tests of a package of Go's standard library, built as a static
// program.
type goSuite struct {
	pkg    string
	source string // its directory, where the tests find their files
	binary string
}

func (s *goSuite) name() string { return "go-" + strings.ReplaceAll(s.pkg, "/", "-") }

func (s *goSuite) prepare(ctx context.Context, o options) error {
	root, err := output(ctx, o.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	s.source = filepath.Join(strings.TrimSpace(string(root)), "src", s.pkg)
	s.binary = filepath.Join(o.cache, s.name()+".test")
	_, err = output(ctx, filepath.Dir(s.source), []string{"CGO_ENABLED=0"}, "go", "test", "-c", "-o", s.binary, s.pkg)
	return err
}

func (s *goSuite) tests(ctx context.Context) ([]string, error) {
	out, err := output(ctx, s.source, nil, s.binary, "-test.list", ".")
	return strings.Fields(string(out)), err
}

func (*goSuite) cannot(engine string) string {
	if engine == preload {
		return "static"
	}
	return ""
}

// run runs all tests of the program except those in done. Subtests belong to their test,
// because only whole tests can be skipped.
func (s *goSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	args := []string{s.binary, "-test.v=test2json", fmt.Sprint("-test.timeout=", m.suite/2)}
	if len(done) > 0 {
		tops := map[string]bool{}
		for _, name := range done {
			top, _, _ := strings.Cut(name, "/")
			tops[regexp.QuoteMeta(top)] = true
		}
		args = append(args, "-test.skip=^("+strings.Join(sortedKeys(tops), "|")+")$")
	}
	var raw bytes.Buffer
	status, err := m.start(ctx, m.suite, s.source, &raw, nil, m.wrap(args...)...)
	if err != nil && !errors.Is(err, errLimit) {
		return nil, false, err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json")
	cmd.Stdin = &raw
	out, err := cmd.Output()
	if err != nil {
		return nil, false, fmt.Errorf("reading the tests' output: %w", err)
	}
	got, failed, err := goResults(out, status)
	if err != nil {
		return nil, false, err
	}
	m.note(failed)
	// A complete run exits with 0 or 1; after a panic or a timeout, the status is 2.
	return got, status == 0 || status == 1, nil
}

// goResults parses the lines of test2json. It also returns the output of failing tests.
func goResults(lines []byte, status int) (results, string, error) {
	got, said := results{}, map[string]*strings.Builder{}
	timedOut := status == -1
	in := bufio.NewScanner(bytes.NewReader(lines))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return nil, "", fmt.Errorf("reading %q: %w", in.Text(), err)
		}
		timedOut = timedOut || strings.Contains(e.Output, "panic: test timed out")
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			got[e.Test] = crash // a later line may replace this
			said[e.Test] = &strings.Builder{}
		case "pass", "fail", "skip":
			got[e.Test] = outcome(e.Action)
		case "output":
			if b := said[e.Test]; b != nil {
				b.WriteString(e.Output)
			}
		}
	}
	var failed strings.Builder
	for _, name := range sortedKeys(got) {
		if got[name] == crash && timedOut {
			got[name] = hang
		}
		if got[name] != pass && got[name] != skip && said[name] != nil {
			fmt.Fprintf(&failed, "%s %s\n%s\n", got[name], name, said[name])
		}
	}
	return got, failed.String(), in.Err()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
