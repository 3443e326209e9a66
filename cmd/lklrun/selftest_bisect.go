// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/selftest"
)

// search is the state of a search for the commit that made tests fail.
type search struct {
	*tester
	bisect *selftest.Bisect
	tests  []selftest.Test // from the user's tree, the same for all commits
	judged int
}

// runBisect searches in a worktree of its own. The tests are those of the tree as it is.
func (t *tester) runBisect(ctx context.Context, suites []string) error {
	switch {
	case len(t.kernels) != 1 || len(t.stacks) > 0:
		return cli.Usagef("--bisect: name one git tree with --kernel, and no --stack")
	case t.baseline != "" || t.junit != "" || t.results != "" || t.tap:
		return cli.Usagef("--bisect: cannot be combined with --baseline, --junit, --results or --tap")
	}
	start := time.Now()
	b, err := selftest.NewBisect(ctx, t.kernels[0], t.bisect)
	if err != nil {
		return err
	}
	defer b.Close()
	s := &search{tester: t, bisect: b}
	if s.tests, err = t.find(t.kernels[0], suites); err != nil {
		return err
	}
	commits, err := b.Run(ctx, s.judge)
	if err != nil {
		return err
	}
	for _, c := range commits {
		name, err := b.Name(ctx, c)
		if err != nil {
			return err
		}
		label := "first bad commit"
		if len(commits) > 1 {
			label = "candidate"
		}
		fmt.Printf("%s: %s\n", label, name)
	}
	fmt.Printf("%s in %s\n", text.Plural(s.judged, "commit"), time.Since(start).Round(time.Second))
	if len(commits) > 1 {
		return fmt.Errorf("one of %d commits made the tests fail; those that were skipped do not build", len(commits))
	}
	return nil
}

// judge builds the stack of the worktree and runs the tests. Those that pass on BAD, or fail on
// GOOD, say nothing about the commits between and do not run again.
func (s *search) judge(ctx context.Context, commit string, left int) (selftest.Verdict, error) {
	name, err := s.bisect.Name(ctx, commit)
	if err != nil {
		return "", err
	}
	remain := ""
	if left >= 0 {
		remain = fmt.Sprintf("; %s after it", text.Plural(left, "commit"))
	}
	start := time.Now()
	built, err := s.build(ctx, s.bisect.Work)
	var usage *cli.UsageError
	switch {
	case ctx.Err() != nil || errors.As(err, &usage):
		return "", err
	case err != nil:
		fmt.Printf("skip  %s: %v%s\n", name, err, remain)
		return selftest.Skipped, nil
	}
	took := time.Since(start)
	kernel := selftest.Kernel{Name: name, Stack: built, Tests: s.tests}
	results, err := s.execute(ctx, []selftest.Kernel{kernel}, func(*selftest.Result) error { return nil })
	if err != nil {
		return "", err
	}
	s.judged++
	failed := selftest.Failed(results)
	verdict := selftest.Good
	if failed > 0 {
		verdict = selftest.Bad
	}
	fmt.Printf("%-5s %s: %d of %s failed, built in %s, tested in %.1f s%s\n", verdict, name, failed,
		text.Plural(len(results), "test"), took.Round(time.Second), (time.Since(start) - took).Seconds(), remain)
	if left >= 0 {
		return verdict, nil
	}
	// The results are in the order of the tests.
	var useful []selftest.Test
	for i := range results {
		if bad := results[i].Failed(); bad == (s.judged == 1) {
			useful = append(useful, s.tests[i])
		}
	}
	if s.judged > 1 && len(useful) > 0 {
		verdict = selftest.Good
	}
	s.tests = slices.Clip(useful)
	return verdict, nil
}
