// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// conformance is the part of test/conformance's suites that this machine completes in
// about half a minute: CPython's own tests, by module or class. It excludes
// test_socket.NetworkConnectionAttributesTest: its cleanup closes the client's socket
// when the server ends, but the client may still be querying the socket's name.
const conformance = "test.test_select test.test_poll test.test_epoll " +
	"test.test_socket.GeneralModuleTests test.test_socket.BasicTCPTest test.test_socket.BasicTCPTest2 test.test_socket.BasicUDPTest " +
	"test.test_socket.TCPCloserTest test.test_socket.NonBlockingTCPTests test.test_socket.TCPTimeoutTest test.test_socket.UDPTimeoutTest " +
	"test.test_socket.RecvmsgTCPTest test.test_socket.RecvmsgIntoTCPTest test.test_socket.RecvmsgUDPTest test.test_socket.RecvmsgIntoUDPTest " +
	"test.test_socket.SendmsgUDPTest test.test_socket.RecvmsgRFC3542AncillaryUDP6Test test.test_socket.CreateServerTest"

// tooSlow are the tests among them that fail because this machine is slow.
var tooSlow = map[string]string{
	"test.test_epoll.TestEPoll.test_control_and_wait": "an answer within 10 ms",
}

// needsRoot are the tests among them that an ordinary user skips.
var needsRoot = map[string]bool{"test.test_socket.GeneralModuleTests.test_sethostname": true}

// conformanceRun is the command that runs them. It writes one line to a file for each
// test. lklrun must start Python itself, because the engine preload is only in the
// program that lklrun starts, not in programs that this program executes.
const conformanceRun = "python3 -W ignore /srv/conformance/runner.py /tmp/report 60 " + conformance

// testConformance checks that every test that passes on the machine's own sockets also
// passes on the stack.
func testConformance(t *testing.T, m *vm.Machine, target string, native map[string]string, engine string) {
	args := append([]string{"--engine", engine, "--stack", "vanilla", "--"}, strings.Fields(conformanceRun)...)
	r := kit.Run(t, 6*time.Minute, deviceAs(m, target, args...))
	if r.Status != 0 {
		t.Errorf("engine %s: %v", engine, r)
	}
	got := report(t, m)
	var bad []string
	n := 0
	for test, was := range native {
		switch {
		case was != "pass", tooSlow[test] != "", got[test] == "skip" && target != m.Target() && needsRoot[test]:
		case got[test] == "pass":
			n++
		default:
			bad = append(bad, test+": "+got[test])
		}
	}
	slices.Sort(bad)
	t.Logf("engine %s: %d pass as on the machine's own sockets", engine, n)
	if len(bad) != 0 {
		t.Errorf("engine %s: %d pass on the machine's own sockets and not on the stack:\n%s\n%s", engine, len(bad), strings.Join(bad, "\n"), r.Stderr)
	}
}

// natively runs the tests in an empty network namespace of the machine.
func natively(t *testing.T, m *vm.Machine) map[string]string {
	t.Helper()
	m.Put(t, "/srv/conformance", filepath.Join(kit.Root(), "test", "conformance", "python"), "runner.py")
	r := m.Sh(t, 6*time.Minute, "unshare -n sh -c 'ip link set lo up; "+conformanceRun+"'")
	got := report(t, m)
	if r.Status != 0 || len(got) < 200 {
		t.Fatalf("%d tests on the machine's own sockets: %v", len(got), r)
	}
	return got
}

// report reads the file of results and removes it.
func report(t *testing.T, m *vm.Machine) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, line := range strings.Split(m.Do(t, limit, "cat /tmp/report; rm /tmp/report"), "\n") {
		word, test, _ := strings.Cut(line, " ")
		switch word {
		case "start":
			got[test] = "crash or hang" // a later line may replace this
		case "pass", "fail", "skip":
			got[test] = word
		}
	}
	return got
}
