// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// The help fits a terminal of 80 columns.
func TestHelpWidth(t *testing.T) {
	cmd := (&runner{}).command()
	cmd.AddCommand(verbs()...)
	for _, c := range append(cmd.Commands(), cmd) {
		var b strings.Builder
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := len(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%s --help has a line of %d columns: %s", c.Name(), n, line)
			}
		}
	}
}

// The first help fits a screen, and each topic fits the width of a terminal.
func TestHelpTopics(t *testing.T) {
	root := (&runner{}).command()
	root.AddCommand(verbs()...)
	root.SetHelpCommand(cli.HelpCommand(root, allTopics(root)))
	help := func(args ...string) string {
		var b strings.Builder
		root.SetOut(&b)
		root.SetArgs(args)
		if err := root.Execute(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return b.String()
	}
	if n := strings.Count(help("-h"), "\n"); n > 40 {
		t.Errorf("-h has %d lines; want 40 at most", n)
	}
	for _, topic := range allTopics(root) {
		name := topic.Name
		text := help("help", name)
		if len(text) < 100 {
			t.Errorf("help %s: %q", name, text)
		}
		for line := range strings.Lines(text) {
			if n := len(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("help %s has a line of %d columns: %s", name, n, line)
			}
		}
	}
	if text := help("help", "doctor"); !strings.Contains(text, "lklrun doctor [FLAG]") {
		t.Errorf("help doctor: %s", text)
	}
	root.SetArgs([]string{"help", "nothing"})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "interfaces") || exit.Status(err) != cli.ExitUsage {
		t.Errorf("help nothing: %v", err)
	}
}

func TestStatus(t *testing.T) {
	for want, err := range map[int]error{
		cli.ExitUsage:   cli.Usagef("wrong"),
		exitOwn:         errRun{errors.New("broke")},
		cli.ExitFailure: errors.New("another verb's"),
		127:             &cli.UsageError{Err: &program.Error{Command: "x", Status: 127, Err: errors.New("gone")}},
	} {
		if got := exit.Status(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
	for _, err := range []error{
		&instance.RunningError{Name: "x"}, &instance.PlaceError{Err: errors.New("no folder")}, &netdev.InUseError{Name: "t0"},
		exit.Usagef("no such setting"), &stackconn.StartError{Words: "no stack library"}, &undo.ElsewhereError{},
		&remote.Error{Err: errors.New("no such device"), UserError: true},
	} {
		if got := exit.Status(errRun{fmt.Errorf("starting: %w", err)}); got != cli.ExitUsage {
			t.Errorf("%v: %d", err, got)
		}
	}
}

// The error for an invalid flag names the flag and the word.
func TestParseNamesTheFlag(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for want, args := range map[string][]string{
		`--if "tap": tap: no device name`:                      {"--if", "tap"},
		`--if "tap:a,mtu=9000": tap:a is already used by eth0`: {"--if", "tap:a", "--if", "tap:a,mtu=9000"},
		`--sysctl "x"; expected NAME=VALUE`:                    {"--sysctl", "x"},
		`--dns "x"; expected the IP address`:                   {"--dns", "x"},
		`--mem "x"; expected a size`:                           {"--mem", "x"},
		`--name: instance name "../x"; expected letters`:       {"--name", "../x"},
		`--require "tcp"; expected stack or mptcp`:             {"--require", "tcp"},
		`--engine "steam"; expected auto, supervise`:           {"--engine", "steam"},
		`--spin "-1"; expected microseconds`:                   {"--spin", "-1"},
		`--listen "http" is not a port`:                        {"--listen", "http"},
		`--publish "80"; expected [ADDRESS:]`:                  {"--publish", "80"},
		`--rst-guard "pf"; expected auto, nft`:                 {"--rst-guard", "pf"},
		`--profile "x": no such profile; there`:                {"--profile", "x"},
		`--log: requires --detach`:                             {"--log", "x"},
	} {
		r := &runner{}
		if err := r.command().ParseFlags(args); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if _, err := r.load([]string{"true"}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v\nwant %s...", err, want)
		}
	}
}

// lklrun rejects flags without effect, and folders that are not run directories.
func TestInVain(t *testing.T) {
	for want, args := range map[string][]string{
		"--name: the value is empty":              {"--name", "", "true"},
		"--mem: the value is empty":               {"--mem=", "true"},
		"--output: requires --dry-run":            {"-o", "json", "true"},
		"--output: requires --dry-run; ":          {"-o", "table", "--", "true"},
		`--sysctl "net/./x" is not a sysctl name`: {"--sysctl", "net/./x=1", "true"},
		`--sysctl "net//x" is not a sysctl name`:  {"--sysctl", "net//x=1", "true"},
		`--dir "/etc": not a run directory`:       {"cleanup", "--dir", "/etc"},
		`--dir "/no/such": no such directory`:     {"cleanup", "--dir", "/no/such"},
	} {
		cmd := (&runner{}).command()
		cmd.AddCommand(verbs()...)
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil || !strings.HasPrefix(err.Error(), want) || exit.Status(err) != cli.ExitUsage {
			t.Errorf("%q: %v, want %s...", args, err, want)
		}
	}
}

// The completions of each flag are the available values.
func TestComplete(t *testing.T) {
	for word, want := range map[string]string{
		"--engine":  "supervise\n",
		"--if":      "macvtap:\n",
		"--profile": "mobile\t",
		"--mem":     ":4\n", // no files
		"--":        "curl\n",
	} {
		r := &runner{}
		cmd := r.command()
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs([]string{"__complete", word, ""})
		if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, no %q in\n%s", word, err, want, out.String())
		}
	}
}
