// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestAB checks a comparison of real runs: the reported number of bytes must be the
// number of fetched bytes.
func TestAB(t *testing.T) {
	s := kit.NewSite(t)
	const size = 300000
	if err := os.WriteFile(filepath.Join(s.Dir, "file"), make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Web(kit.Nginx{})
	fetch := []string{"--if", s.TapIf(), "--", "curl", "-sS", "-f", "-o", "/dev/null", kit.ServerURL + "/file"}
	r := kit.Run(t, 4*kit.Limit, kit.Lklrun(append([]string{"ab", "-n", "2", "-o", "json", "--stack", "host", "--stack", "mptcp", "--variant", "inside: --engine preload"}, fetch...)...))
	var c struct {
		Stopped  bool
		Variants []struct {
			Name string
			Runs []struct {
				Failed   bool
				Words    string
				Seconds  float64 `json:"time_s"`
				User     *float64
				Received *int64 `json:"bytes_received"`
				Counters map[string]int64
			}
			Metrics []struct {
				Name   string
				N      int
				Median float64
				TooFew bool `json:"too_few"`
			}
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &c); err != nil || r.Status != 0 || c.Stopped || len(c.Variants) != 3 {
		t.Fatalf("%v: %v", err, r)
	}
	for _, v := range c.Variants {
		if len(v.Runs) != 2 {
			t.Errorf("%s: %d runs", v.Name, len(v.Runs))
		}
		for _, q := range v.Runs {
			if q.Failed || q.Seconds <= 0 || q.Received == nil || *q.Received < size || q.Counters["TcpActiveOpens"] == 0 {
				t.Errorf("%s: %+v", v.Name, q)
			}
		}
		for _, m := range v.Metrics {
			if m.N != 2 || m.TooFew != (v.Name != "host") {
				t.Errorf("%s: %+v", v.Name, m)
			}
		}
	}

	// The results of two machines, merged.
	var files []string
	for _, name := range []string{"one.json", "two.json"} {
		files = append(files, filepath.Join(kit.Dir(t), name))
		if err := os.WriteFile(files[len(files)-1], []byte(r.Stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r = kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"ab", "--merge", "-o", "json"}, files...)...))
	merged := c
	merged.Variants = nil
	if err := json.Unmarshal([]byte(r.Stdout), &merged); err != nil || r.Status != 0 || len(merged.Variants) != 3 || merged.Variants[1].Metrics[0].N != 4 || merged.Variants[1].Metrics[0].TooFew {
		t.Errorf("merged: %v: %v", err, r)
	}
	r = kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"ab", "--merge"}, files...)...))
	if r.Status != 0 || !strings.Contains(r.Stdout, "RATIO OF TIME IN") || !strings.Contains(r.Stdout, files[1]) {
		t.Errorf("merged, as a table: %v", r)
	}

	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--merge"}, 2, "no file to merge"},
		{[]string{"--merge", "/nonexistent/a.json"}, 2, "/nonexistent/a.json"},
		{[]string{"--merge", filepath.Join(s.Dir, "file")}, 2, "is not the output of lklrun ab -o json"},
		{[]string{"--merge", "--stack", "mptcp", files[0]}, 2, "--stack: does not work with --merge"},
		{[]string{"--stack", "host", "--stack", "mptcp", "-n", "1", "--warmups", "0", "--", "sh", "-c", "echo so it is >&2; exit 9"}, 1, "status 9: so it is"},
		{[]string{"--stack", "mptcp", "--", "true"}, 2, "at least two variants"},
		{[]string{"--stack", "mptcp", "--stack", "none-such", "--", "true"}, 2, `no stack "none-such"`},
		{[]string{"--stack", "mptcp", "--stack", "mptcp", "--", "true"}, 2, "given twice"},
		{[]string{"--stack", "mptcp", "--stack", "host", "--detach", "--", "true"}, 2, "--detach: does not work with ab"},
		{[]string{"--stack", "vanilla", "--stack", "bbr", "--", "true"}, 2, `"vanilla" and "bbr": no difference of their kernels reaches the peer`},
		{[]string{"--if", "user", "--stack", "host", "--variant", "a: --stack bbr", "--variant", "b: --stack bbr --profile mobile", "--", "true"}, 2, "TCP ends at the user-mode gateway"},
		{[]string{"-n", "1", "--if", "wire:" + kit.NewName(), "--stack", "vanilla", "--stack", "bbr", "--", "true"}, 0, "too few runs"},
		{[]string{"-n", "1", "--stack", "host", "--stack", "bbr", "--variant", "preload: --stack bbr --engine preload", "--", "true"}, 0, "too few runs"},
		{[]string{"--stack", "mptcp", "--stack", "host", "-n", "0", "--", "true"}, 2, "expected 1 to"},
	} {
		r := kit.Run(t, 2*kit.Limit, kit.Lklrun(append([]string{"ab"}, c.args...)...))
		if r.Status != c.status || !strings.Contains(r.Stdout+r.Stderr, c.says) {
			t.Errorf("%q: want %d and %q: %v", c.args, c.status, c.says, r)
		}
	}
}

// TestABInterrupted checks that Ctrl-C ends the current run and prints the results of
// the earlier ones.
func TestABInterrupted(t *testing.T) {
	t.Parallel()
	kit.Need(t, kit.Bin("lklrun"), kit.Bin("lklhost"))
	count := filepath.Join(kit.Dir(t), "count")
	p := kit.Start(t, kit.Lklrun("ab", "-n", "5", "--warmups", "0", "-o", "json", "--if", "wire:"+kit.NewName(), "--stack", "vanilla", "--stack", "mptcp", "--",
		"sh", "-c", `echo >> "$0"; test $(wc -l < "$0") -lt 3 || exec sleep 600`, count))
	kit.WaitFor(t, "the third run", kit.Limit, func() bool {
		data, _ := os.ReadFile(count) // empty before the first run
		return strings.Count(string(data), "\n") == 3
	})
	p.Signal(syscall.SIGINT)
	r := p.Wait(kit.Limit)
	var c struct {
		Stopped  bool
		Variants []struct{ Runs []struct{ Number int } }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &c); err != nil || r.Status != 1 || !c.Stopped || len(c.Variants) != 2 || len(c.Variants[0].Runs) != 1 || len(c.Variants[1].Runs) != 1 {
		t.Errorf("%v: %v", err, r)
	}
	if !strings.Contains(r.Stderr, "interrupted") {
		t.Errorf("it says %q", r.Stderr)
	}
}
