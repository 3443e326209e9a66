// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/test/kit"
)

// An error of the command line is one line with the remedy, and status 2.
func TestUsage(t *testing.T) {
	kit.Need(t) // provides a /run without instances
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
		{"netstat -f ipx", []string{`-f "ipx"`, "inet, inet6, unix, link, netlink"}},
		{"netstat dprt = :80", []string{`filter: "dprt"; expected a condition`}},
		{"netstat state open", []string{`state "open"; expected one of all`}},
		{"netstat -K dst any", []string{"-K was removed", "lklctl kill"}},
		{"netstat --kill dst any", []string{"--kill was removed", "lklctl kill"}},
		{"kill a1", []string{"lklctl stop a1"}},
		{"stop a1 a2", []string{"expected one instance", "once for each"}},
		{"capture -n -i eth0", []string{"-n -i: expected the name of an instance"}},
		{"netstat -n dprt = :80", []string{`filter: "dprt"`}},
		{"kill", []string{"no filter given", "dst 192.0.2.7"}},
		{"kill -x state all", []string{"-x, -0 and -f"}},
		{"mptcp now", []string{`"now"`}},
		{"sysctl", []string{"no KEY given"}},
		{"sysctl -w", []string{"no KEY=VALUE given"}},
		{"sysctl -w net.ipv4.ip_forward", []string{`"net.ipv4.ip_forward"`, "not KEY=VALUE"}},
		{"sysctl net.ipv4.ip_forward=1", []string{"requires -w"}},
		{"sysctl -a -w x=1", []string{"choose one"}},
		{"sysctl -w --load x", []string{"choose one"}},
		{"sysctl --save x --load y", []string{"choose one"}},
		{"sysctl --dry-run net", []string{"require -w or --load"}},
		{"sysctl -r [ -a", []string{`-r "["`}},
		{"sysctl --load x more", []string{`"more"`}},
		{"sysctl --load /no/such", []string{"/no/such"}},
		{"dmesg -l loud", []string{`level "loud"`, "emerg"}},
		{"dmesg -w --console-level warn", []string{"choose one"}},
		{"dmesg now", []string{`"now"`}},
		{"sysctl net/../../etc/passwd", []string{"expected a key"}},
		{"counters [x", []string{`pattern "[x"`, "glob"}},
		{"counters -o xml", []string{"table, json or prom", "lklctl counters --help"}},
		{"-o prom counters", []string{"table or json"}},
		{"counters -d=10", []string{"--differences=10 was removed", "--around -- sleep"}},
		{"counters --exec", []string{"--exec was removed", "lklctl exec"}},
		{"counters --around", []string{"no COMMAND given", "lklctl counters --help"}},
		{"counters --around x --", []string{"no COMMAND given"}},
		{"counters --around -d -- true", []string{"choose one"}},
		{"counters --watch -o prom", []string{"-o prom"}},
		{"counters --listen 1.2.3.4", []string{`--listen "1.2.3.4"`, "ADDRESS:PORT"}},
		{"counters --listen 9100 Tcp", []string{"all counters of all instances"}},
		{"counters explain [x", []string{"glob"}},
		{"cat", []string{"no PATH given"}},
		{"link now", []string{`"now"`, "lklctl link --help"}},
		{"link add", []string{"no SPEC given", "lklctl link add --help"}},
		{"link add tap:a tap:b", []string{`"tap:b"`, "lklctl link add --help"}},
		{"link add veth:a", []string{`"veth": unknown interface type`}},
		{"link del", []string{"no NAME given"}},
		{"link set", []string{"no interface given", "lklctl link set --help"}},
		{"link set group x up", []string{`group "x": expected a number`}},
		{"link -Z", []string{"lklctl link --help"}},
		{"link set -Z", []string{"lklctl link set --help"}},
		{"mptcp endpoint now", []string{`"now"`}},
		{"mptcp endpoint add", []string{"no ADDRESS given", "lklctl mptcp endpoint add --help"}},
		{"mptcp endpoint add 10.0.0.1 10.0.0.2", []string{`"10.0.0.2"`}},
		{"mptcp endpoint add 10.0.0.1 dev", []string{"dev: no interface given"}},
		{"mptcp endpoint add 10.0.0.1 id 256", []string{`id "256": expected a number from 1 to 255`}},
		{"mptcp endpoint add 10.0.0.1 nobackup", []string{`"nobackup"`}},
		{"mptcp endpoint add 10.0.0.1 implicit", []string{`"implicit"`}},
		{"mptcp endpoint add 10.0.0.1 port 80", []string{"port 80: requires the flag signal"}},
		{"mptcp endpoint add 10.0.0.1 signal fullmesh", []string{"signal and fullmesh conflict"}},
		{"mptcp endpoint del", []string{"no ADDRESS or id ID given"}},
		{"mptcp endpoint change 10.0.0.1", []string{"no flag given"}},
		{"mptcp endpoint change 10.0.0.1 signal", []string{`"signal"`}},
		{"mptcp endpoint change 10.0.0.1 backup nobackup", []string{"both set and cleared"}},
		{"mptcp limits now", []string{`"now"`, "lklctl mptcp limits --help"}},
		{"mptcp limits set", []string{"no limit given"}},
		{"mptcp limits set subflows 9", []string{`subflows "9": expected a number from 0 to 8`}},
		{"addr now", []string{`"now"`}},
		{"addr add", []string{"no ADDRESS/PREFIX given"}},
		{"addr add 10.0.0.1 eth0", []string{`"10.0.0.1": expected ADDRESS/PREFIX`}},
		{"lease take eth0", []string{`"take"`, "renew or release"}},
		{"lease renew", []string{"no interface given", "lklctl lease --help"}},
		{"lease renew eth0 eth1", []string{`"eth1"`}},
		{"path --script file", []string{"--script was removed", "lklctl path eth1 down --for 3s"}},
		{"exec", []string{"no COMMAND given"}},
		{"exec -Z true", []string{"-Z", "lklctl exec --help"}},
		{"-o json exec true", []string{"-o json"}},
		{"stop -s NOSUCH", []string{`signal "NOSUCH"`, "TERM"}},
		{"stop -s 65", []string{`signal "65"`}},
		{"stop --grace -1s", []string{"--grace -1s"}},
		{"stop web other", []string{`"other"`}},
		{"-n web stop other", []string{`-n web conflicts with "other"`}},
		{"stop .web", []string{`instance name ".web"`}},
		{"wait web other", []string{`"other"`}},
		{"exec web --", []string{"no COMMAND given"}},
		{"list --json=maybe", []string{"--json"}},
		{"stop --limit soon", []string{`--limit "soon"; expected a time such as`, "lklctl stop --help"}},
	} {
		refused(t, 2, strings.Fields(tc.args), tc.wants...)
	}
}

// If no instance runs, or none has the given name, each verb reports this with
// status 3. An empty list has status 0, or 1 with --fail-empty.
func TestNoInstance(t *testing.T) {
	kit.Need(t)
	for _, args := range [][]string{
		{"netstat"},
		{"mptcp"},
		{"sysctl", "net.ipv4.ip_forward"},
		{"counters"},
		{"cat", "/proc/version"},
		{"lease"},
		{"stop"},
	} {
		refused(t, 3, args, "no instance is running")
		refused(t, 3, append(args, "--name", "web"), `no instance "web" is running (looked`)
	}
	refused(t, 125, []string{"exec", "true"}, "no instance is running")
	refused(t, 125, []string{"ip", "addr"}, "no instance is running")
	for _, args := range []string{"exec web -- true", "wait web", "stop web"} {
		status := map[bool]int{true: 125, false: 3}[strings.HasPrefix(args, "exec")]
		refused(t, status, strings.Fields(args), `no instance "web" is running (looked`)
	}
	refused(t, 125, []string{"exec", "-n", "web", "true"}, `no instance "web" is running (looked`)
	for status, flags := range [][]string{{}, {"--fail-empty"}} {
		for _, list := range []string{"list", "ps", "ls"} {
			if r := lklctl(t, append([]string{list}, flags...)...); r != (result{status, "", "lklctl: no instance is running\n"}) {
				t.Errorf("%s of none: %+v", list, r)
			}
			for _, json := range []string{"--json", "--output=json", "-ojson"} {
				if r := lklctl(t, append([]string{list, json}, flags...)...); r != (result{status, "[]\n", ""}) {
					t.Errorf("%s %s of none: %+v", list, json, r)
				}
			}
		}
	}
}

// The help of every verb fits a terminal of 80 columns.
func TestHelpWidth(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if below := cmd.Commands(); cmd.Name() != "completion" { // cobra generates the verbs of completion
			for _, c := range below {
				check(c)
			}
		}
		var b strings.Builder
		cmd.SetOut(&b)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > helpColumns {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
	check(rootCommand(verb.New(io.Discard, io.Discard)))
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "--help"} {
		if text := ok(t, strings.Fields(args)...); strings.Count(text, "\n") > 40 || !strings.Contains(text, "examples") {
			t.Errorf("lklctl %s is longer than a screen, or names no examples:\n%s", args, text)
		}
	}
	for _, topic := range topics {
		if text := ok(t, "help", topic.Name); text != topic.Text {
			t.Errorf("help %s: %s", topic.Name, text)
		}
	}
	for _, args := range []string{"list --help", "netstat --help", "kill --help", "mptcp --help", "sysctl --help", "counters --help", "cat --help", "exec --help", "link --help", "link add --help", "link del --help", "link set --help", "addr --help", "addr add --help",
		"mptcp endpoint --help", "mptcp endpoint add --help", "mptcp endpoint change --help", "mptcp limits --help", "stop --help"} {
		text := ok(t, strings.Fields(args)...)
		if !strings.Contains(text, "Examples:") || !strings.Contains(text, "--name") {
			t.Errorf("lklctl %s lacks examples or flags:\n%s", args, text)
		}
	}
	if !strings.Contains(ok(t, "completion", "bash"), "__lklctl") {
		t.Error("no completion for bash")
	}
	// The completion script queries the program itself.
	for prefix, want := range map[string]string{"p": "ps\t", "l": "ls\t", "s": "ss\t", "lo": "logs\t", "tc": "tcpdump\t", "pi": "ping\t"} {
		if r := lklctl(t, "__complete", prefix); r.status != 0 || !strings.Contains("\n"+r.out, "\n"+want) {
			t.Errorf("completion of %s: %+v", prefix, r)
		}
	}
	if r := lklctl(t, "__complete", "-o", ""); r.status != 0 || !strings.Contains(r.out, "json") {
		t.Errorf("completion of -o: %+v", r)
	}
}
