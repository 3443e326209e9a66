// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// scriptSuite is scripts of tools/testing/selftests/net that make network namespaces, with
// `ip netns`. On a stack, these are namespaces of that stack.
type scriptSuite struct {
	net string
}

// kernelScripts lists the scripts with their arguments. Those of mptcp_connect replace
// random delays, losses and sizes.
var kernelScripts = []string{
	"fib_rule_tests.sh",
	"unicast_extensions.sh",
	"mptcp/mptcp_connect.sh -d 1 -l 0 -r 0 -e tso -f 200000",
}

func (*scriptSuite) name() string { return "kernel-netns" }

func (s *scriptSuite) prepare(ctx context.Context, o options) error {
	net, err := kernelTests(ctx, o)
	if err != nil {
		return err
	}
	s.net = net
	for _, source := range []string{"mptcp/mptcp_connect", "nettest"} { // the scripts look for them in their folders
		bin, err := buildKernelTest(ctx, o, net, source)
		if err != nil {
			return err
		}
		link := filepath.Join(net, source)
		if err := os.RemoveAll(link); err != nil {
			return err
		}
		if err := os.Symlink(bin, link); err != nil {
			return err
		}
	}
	return nil
}

func (*scriptSuite) tests(context.Context) ([]string, error) { return nil, nil }

func (*scriptSuite) cannot(engine string) string {
	if engine != supervise {
		return "namespaces"
	}
	return ""
}

var (
	// mptcp_connect.sh counts its ports, and prints how long each test took.
	portInName = regexp.MustCompile(`:[0-9]+\)`)
	timeOfTest = regexp.MustCompile(`(?m) # time=[0-9]+ms$`)
	scriptLine = regexp.MustCompile(`(?m)^ *TEST: (.*?) +\[ *(OK|FAIL|SKIP) *\]$`)
)

// scriptCases parses the lines "TEST: NAME [ OK ]", or the Test Anything Protocol.
func scriptCases(out []byte) results {
	got := results{}
	for _, l := range scriptLine.FindAllSubmatch(out, -1) {
		got[strings.ReplaceAll(string(l[1]), " ", "_")] = map[string]outcome{"OK": pass, "FAIL": fail, "SKIP": skip}[string(l[2])]
	}
	for name, what := range tap(timeOfTest.ReplaceAll(out, nil)) {
		got[portInName.ReplaceAllString(name, ")")] = what
	}
	return got
}

func (s *scriptSuite) run(ctx context.Context, m mode, done []string) (results, bool, error) {
	got, finished := results{}, map[string]bool{}
	for _, name := range done {
		script, _, _ := strings.Cut(name, "/")
		finished[script] = true
	}
	for _, p := range kernelScripts {
		f := strings.Fields(p)
		f[0] = filepath.Join(s.net, f[0])
		name := strings.TrimSuffix(filepath.Base(f[0]), ".sh")
		if finished[name] {
			continue
		}
		var out bytes.Buffer
		args := append([]string{"bash", "-c", `cd "${0%/*}" && PATH=$PWD:$PATH && exec bash "$0" "$@"`}, f...)
		status, err := m.start(ctx, m.suite, s.net, &out, nil, m.wrap(args...)...)
		m.note(fmt.Sprintf("%sexit status %d\n", out.Bytes(), status))
		if err != nil && !errors.Is(err, errLimit) {
			return nil, false, err
		}
		for c, what := range scriptCases(out.Bytes()) {
			got[name+"/"+c] = what
		}
		switch {
		case err != nil:
			got[name+"/end"] = hang
		case status == 0:
			got[name+"/end"] = pass
		case status == ksftSkip:
			got[name+"/end"] = skip
		default:
			got[name+"/end"] = fail
		}
	}
	return got, true, nil
}
