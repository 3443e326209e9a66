// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// kernelSuite is the programs of tools/testing/selftests/net that need no second host:
// all their traffic uses loopback.
type kernelSuite struct {
	net  string
	bins map[string]string
}

// kernelPrograms lists the programs with the arguments that the directory's scripts
// use. tcp_mmap has two sides and is started separately.
var kernelPrograms = []string{
	"bind_timewait",
	"bind_wildcard",
	"ip_defrag -4",
	"ip_defrag -4o",
	"ip_defrag -6",
	"ip_defrag -6o",
	"ip_local_port_range",
	"ipv6_flowlabel",
	"mptcp/mptcp_inq",
	"mptcp/mptcp_inq -6",
	"mptcp/mptcp_inq -t tcp",
	"mptcp/mptcp_sockopt",
	"mptcp/mptcp_sockopt -6",
	"psock_fanout",
	"psock_snd",
	"psock_snd -d -b",
	"psock_snd -q",
	"psock_snd -V",
	"psock_snd -v -c",
	"psock_snd -v -c -g -l 65507",
	"psock_tpacket",
	"reuseaddr_conflict",
	"reuseport_addr_any",
	"reuseport_bpf",
	"reuseport_bpf_cpu",
	"reuseport_dualstack",
	"rxtimestamp --udp",
	"rxtimestamp --ip",
	"rxtimestamp --tcp",
	"sk_bind_sendto_listen",
	"sk_connect_zero_addr",
	"sk_so_peek_off",
	"so_incoming_cpu",
	"so_netns_cookie",
	"socket",
	"tcp_fastopen_backup_key",
	"tcp_inq",
	"tcp_inq -6",
	"txtimestamp -4 -L 127.0.0.1",
	"txtimestamp -6 -L ::1",
	"txtimestamp -u -4 -L 127.0.0.1",
	"txtimestamp -u -6 -L ::1",
}

func (*kernelSuite) name() string { return "kernel-net" }

func (s *kernelSuite) prepare(ctx context.Context, o options) error {
	net, err := kernelTests(ctx, o)
	if err != nil {
		return err
	}
	s.net, s.bins = net, map[string]string{}
	for _, p := range kernelPrograms {
		source, _, _ := strings.Cut(p, " ")
		if s.bins[source] != "" {
			continue
		}
		if s.bins[source], err = buildKernelTest(ctx, o, net, source); err != nil {
			return err
		}
	}
	return nil
}

func (*kernelSuite) tests(context.Context) ([]string, error) {
	var names []string
	for _, p := range kernelPrograms {
		names = append(names, testName(p))
	}
	return names, nil
}

// testName returns a program and its arguments as one word.
func testName(program string) string {
	return strings.ReplaceAll(filepath.Base(strings.ReplaceAll(program, "::", "")), " ", "_")
}

// ksftSkip is kselftest's exit status for a test that cannot run here.
const ksftSkip = 4

func (*kernelSuite) cannot(engine string) string {
	if engine == preload {
		return "forks"
	}
	return ""
}

func (s *kernelSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	got, skipped := results{}, map[string]bool{}
	for _, name := range done {
		program, _, _ := strings.Cut(name, "/")
		skipped[program] = true
	}
	for _, p := range kernelPrograms {
		name, f := testName(p), strings.Fields(p)
		if skipped[name] {
			continue
		}
		var out bytes.Buffer
		status, err := m.start(ctx, m.test, s.net, &out, nil, m.wrap(append([]string{s.bins[f[0]]}, f[1:]...)...)...)
		m.note(fmt.Sprintf("%sexit status %d\n", out.Bytes(), status))
		switch {
		case errors.Is(err, errLimit):
			got[name] = hang
		case err != nil:
			return nil, false, err
		case status == 0:
			got[name] = pass
		case status == ksftSkip:
			got[name] = skip
		case status > 128:
			got[name] = crash
		default:
			got[name] = fail
		}
		// If the program prints a line for each of its cases, count the cases instead of
		// the program.
		if cases := tap(out.Bytes()); len(cases) > 0 && err == nil {
			delete(got, name)
			for c, what := range cases {
				got[name+"/"+c] = what
			}
		}
	}
	return got, true, nil
}

var tapLine = regexp.MustCompile(`(?m)^(ok|not ok) [0-9]+ (?:- )?([^#\n]*?)\s*(#\s*SKIP.*)?$`)

// tap parses the Test Anything Protocol.
func tap(out []byte) results {
	got := results{}
	for _, l := range tapLine.FindAllSubmatch(out, -1) {
		what := pass
		switch {
		case len(l[3]) > 0:
			what = skip
		case string(l[1]) == "not ok":
			what = fail
		}
		got[strings.ReplaceAll(string(l[2]), " ", "_")] = what
	}
	return got
}

// note appends to the run's log.
func (m mode) note(text string) {
	if err := appendFile(m.log, text); err != nil {
		panic(err) // the log was writable a moment ago
	}
}
