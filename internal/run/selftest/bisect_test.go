// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// repository makes a repository of n commits. The file "state" is wrong from commit bad on, and
// "broken" at the commits of this name. It returns the commits, the first at index 1.
func repository(t *testing.T, n, bad int, broken ...int) (dir string, commits []string) {
	t.Helper()
	dir, commits = t.TempDir(), []string{""}
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v; %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	for i := 1; i <= n; i++ {
		state := "right"
		if slices.Contains(broken, i) {
			state = "broken"
		} else if i >= bad {
			state = "wrong"
		}
		if err := os.WriteFile(filepath.Join(dir, "state"), fmt.Appendf(nil, "%s %d", state, i), 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", "state")
		git("commit", "-q", "-m", fmt.Sprint("change ", i))
		commits = append(commits, git("rev-parse", "HEAD"))
	}
	return dir, commits
}

// TestBisect checks which commits are found, in how many steps, and that the user's tree remains as
// it is.
func TestBisect(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, test := range []struct {
		n, bad, good int
		broken, want []int
		err          string
	}{
		{n: 33, bad: 21, good: 1, want: []int{21}},
		{n: 2, bad: 2, good: 1, want: []int{2}},
		{n: 12, bad: 9, good: 1, broken: []int{6, 10}, want: []int{9}},
		{n: 7, bad: 4, good: 1, broken: []int{3}, want: []int{3, 4}},
		{n: 4, bad: 5, good: 1, err: "change 4 is bad, but it is good: no test fails"},
		{n: 4, bad: 2, good: 3, err: "change 3 is good, but it is bad: the tests fail there, too"},
		{n: 4, bad: 3, good: 1, broken: []int{4}, err: "not possible to build it"},
	} {
		dir, commits := repository(t, test.n, test.bad, test.broken...)
		mine := filepath.Join(dir, "state")
		if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		for again := range 2 { // the second search has the worktree of the first one
			b, err := NewBisect(t.Context(), dir, commits[test.good]+"..HEAD")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := NewBisect(t.Context(), dir, commits[test.good]+"..HEAD"); err == nil {
				t.Error("two searches in one tree")
			}
			steps := 0
			got, err := b.Run(t.Context(), func(_ context.Context, commit string, _ int) (Verdict, error) {
				steps++
				state, err := os.ReadFile(filepath.Join(b.Work, "state"))
				if i := slices.Index(commits, commit); err != nil || !strings.HasSuffix(string(state), fmt.Sprint(" ", i)) {
					t.Errorf("commit %d: the worktree has %q, %v", i, state, err)
				}
				return map[string]Verdict{"right": Good, "wrong": Bad, "broken": Skipped}[strings.Fields(string(state))[0]], err
			})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%+v: %v", test, err)
				}
			} else {
				var want []string
				for _, i := range test.want {
					want = append(want, commits[i])
				}
				slices.Sort(want)
				slices.Sort(got)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%+v, search %d: %q, %v", test, again, got, err)
				}
			}
			if most := 2 + 5 + 2*len(test.broken); steps > most {
				t.Errorf("%+v: %d steps; expected at most %d", test, steps, most)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if text, err := os.ReadFile(mine); err != nil || string(text) != "mine" {
			t.Errorf("the user's file is %q, %v", text, err)
		}
	}
}

// TestBisectEnds checks that an error of a step ends the search.
func TestBisectEnds(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, commits := repository(t, 3, 2)
	b, err := NewBisect(t.Context(), dir, commits[1]+"..HEAD")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Run(t.Context(), func(context.Context, string, int) (Verdict, error) { return "", context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestBisectUsage checks what is refused, in one line.
func TestBisectUsage(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, _ := repository(t, 3, 2)
	for _, test := range []struct{ tree, span, names string }{
		{dir, "HEAD", "GOOD..BAD"}, {dir, "..HEAD", "GOOD..BAD"}, {dir, "HEAD~1...HEAD", "GOOD..BAD"},
		{dir, "none..HEAD", "no commit none"}, {dir, "HEAD~1..--output=x", "no commit --output=x"},
		{dir, "HEAD..HEAD~1", "not an ancestor"}, {dir, "HEAD..HEAD", "not an ancestor"},
		{t.TempDir(), "HEAD~1..HEAD", "git repository"}, {dir + "/none", "HEAD~1..HEAD", "none"},
	} {
		_, err := NewBisect(t.Context(), test.tree, test.span)
		var usage *exit.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), test.names) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s in %s: %v", test.span, test.tree, err)
		}
	}
}
