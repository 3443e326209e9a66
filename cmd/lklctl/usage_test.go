// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
)

// What is typed wrong is told in one line with the remedy, status 2.
func TestUsage(t *testing.T) {
	testutil.Need(t) // a /run without instances
	for _, tc := range []struct {
		args  string
		wants []string
	}{
		{"no-such-verb", []string{`unknown verb "no-such-verb"`, "lklctl --help"}},
		{"-o xml list", []string{`"xml"`, "table or json"}},
		{"list -o xml", []string{`"xml"`, "lklctl list --help"}},
		{"list extra", []string{`"extra"`, "lklctl list --help"}},
		{"-Z", []string{"-Z"}},
		{"netstat -Z", []string{"lklctl netstat --help"}},
		{"netstat -lc", []string{"-l and -c"}},
		{"mptcp now", []string{`"now"`}},
		{"sysctl", []string{"no KEY given"}},
		{"sysctl -w", []string{"no KEY=VALUE given"}},
		{"sysctl -w net.ipv4.ip_forward", []string{`"net.ipv4.ip_forward"`, "not KEY=VALUE"}},
		{"sysctl net.ipv4.ip_forward=1", []string{"needs -w"}},
		{"sysctl -a -w x=1", []string{"choose one"}},
		{"sysctl net/../../etc/passwd", []string{"not a key"}},
		{"cat", []string{"no PATH given"}},
		{"exec", []string{"no COMMAND given"}},
		{"exec -Z true", []string{"-Z", "lklctl exec --help"}},
		{"-o json exec true", []string{"-o json"}},
		{"stop -s NOSUCH", []string{`signal "NOSUCH"`, "TERM"}},
		{"stop -s 65", []string{`signal "65"`}},
		{"stop --grace -1s", []string{"--grace -1s"}},
		{"stop --limit soon", []string{"--limit"}},
	} {
		refused(t, 2, strings.Fields(tc.args), tc.wants...)
	}
}

// Without an instance each verb says so, status 1; listing none is no error.
func TestNoInstance(t *testing.T) {
	testutil.Need(t)
	for _, args := range [][]string{
		{"netstat"},
		{"mptcp"},
		{"sysctl", "net.ipv4.ip_forward"},
		{"counters"},
		{"cat", "/proc/version"},
		{"stop"},
	} {
		refused(t, 1, args, "no instance is running")
		refused(t, 1, append(args, "--name", "web"), `"web"`)
	}
	refused(t, 125, []string{"exec", "true"}, "no instance is running")
	refused(t, 125, []string{"exec", "-n", "web", "true"}, `"web"`)
	if r := lklctl(t, "list"); r.status != 0 || r.out != "" || r.errors != "lklctl: no instance is running\n" {
		t.Errorf("list of none: %+v", r)
	}
	if list := decode[[]any](t, "list"); len(list) != 0 {
		t.Errorf("list of none: %v", list)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "--help", "list --help", "netstat --help", "mptcp --help", "sysctl --help", "counters --help", "cat --help", "exec --help", "stop --help"} {
		text := ok(t, strings.Fields(args)...)
		if !strings.Contains(text, "Examples:") || !strings.Contains(text, "--name") {
			t.Errorf("lklctl %s lacks examples or flags:\n%s", args, text)
		}
		for line := range strings.Lines(text) {
			if len([]rune(line)) > 90 {
				t.Errorf("lklctl %s: long line %q", args, line)
			}
		}
	}
	if !strings.Contains(ok(t, "completion", "bash"), "__lklctl") {
		t.Error("no completion for bash")
	}
	// The completion script asks the program itself.
	if r := lklctl(t, "__complete", "-o", ""); r.status != 0 || !strings.Contains(r.out, "json") {
		t.Errorf("completion of -o: %+v", r)
	}
}
