// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestCell(t *testing.T) {
	for _, c := range []struct {
		values, first []float64
		isFirst       bool
		want          string
	}{
		{[]float64{3, 1, 2}, []float64{3, 1, 2}, true, "2.00 ±50 %"},
		{[]float64{30, 10}, []float64{8, 80, 10}, false, "20.0 (**2.00**) ±50 %"},
		{[]float64{900, 4, 5, 3, 1}, nil, true, "4.00 ±25 %"},
		{[]float64{1500}, nil, false, "1500 ±0 %"},
		{nil, []float64{1}, false, ""},
	} {
		if got := cell(c.values, c.first, c.isFirst); got != c.want {
			t.Errorf("%v beside %v: %q, want %q", c.values, c.first, got, c.want)
		}
	}
}

// TestCheck checks which pages are refused, in a repository of three commits to the data path.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@example.com"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	var commits []string
	for _, path := range []string{"csrc/a.c", "docs/a.md", "stacks/s", "csrc/tests/t.c", "third_party/lkl/lib/x.c"} {
		if err := os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", ".")
		git("commit", "-qm", path)
		commits = append(commits, git("rev-parse", "--short=12", "HEAD"))
	}
	written := func(commit string) string {
		var page bytes.Buffer
		write(&page, header{commit: commit, load: "0.10", turns: 1}, nil)
		return page.String()
	}
	for _, c := range []struct {
		page  string
		limit int
		want  string // part of the error; "" for none
	}{
		{written(commits[4]), 0, ""},
		{written(commits[3]), 0, "1 commits have changed the data path"},
		{written(commits[3]), 1, ""},
		{written(commits[2]), 0, "1 commits"},
		{written(commits[1]), 1, "2 commits"},
		{written(commits[0]), 2, ""},
		{written("0123456789ab"), 100, "not in the history"},
		{strings.Replace(written(commits[4]), "0.10", "0.01", 1), 100, "changed by hand"},
		{"# Benchmarks\n", 100, "changed by hand"},
	} {
		if err := os.WriteFile("page.md", []byte(c.page), 0o644); err != nil {
			t.Fatal(err)
		}
		switch err := check("page.md", c.limit); {
		case c.want == "" && err != nil:
			t.Errorf("limit %d: %v", c.limit, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("limit %d: %v, want %q", c.limit, err, c.want)
		}
	}
}
