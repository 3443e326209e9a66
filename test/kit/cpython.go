// SPDX-License-Identifier: Apache-2.0

package kit

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// NoListener is a Python program that executes its arguments as on a kernel without
// seccomp user notification.
//
//go:embed testdata/nolistener.py
var NoListener string

// cpythonTests is the part of test/conformance's suites that takes about half a minute:
// CPython's own tests, by module or class. It excludes
// test_socket.NetworkConnectionAttributesTest: its cleanup closes the client's socket
// when the server ends, but the client may still be querying the socket's name.
const cpythonTests = "test.test_select test.test_poll test.test_epoll " +
	"test.test_socket.GeneralModuleTests test.test_socket.BasicTCPTest test.test_socket.BasicTCPTest2 test.test_socket.BasicUDPTest " +
	"test.test_socket.TCPCloserTest test.test_socket.NonBlockingTCPTests test.test_socket.TCPTimeoutTest test.test_socket.UDPTimeoutTest " +
	"test.test_socket.RecvmsgTCPTest test.test_socket.RecvmsgIntoTCPTest test.test_socket.RecvmsgUDPTest test.test_socket.RecvmsgIntoUDPTest " +
	"test.test_socket.SendmsgUDPTest test.test_socket.RecvmsgRFC3542AncillaryUDP6Test test.test_socket.CreateServerTest"

// cpythonSlow are the tests among them that fail on a slow or busy machine.
var cpythonSlow = map[string]string{
	"test.test_epoll.TestEPoll.test_control_and_wait": "an answer within 10 ms",
}

// cpythonNeedsRoot are the tests among them that an ordinary user skips.
var cpythonNeedsRoot = map[string]bool{"test.test_socket.GeneralModuleTests.test_sethostname": true}

// A CPython is a part of CPython's own tests of sockets, from the package
// libpython3.11-testsuite.
type CPython struct {
	Runner string // test/conformance/python/runner.py
	Report string // the tests write their results to this file
}

// Args is the command that runs the tests. lklrun must start Python itself, because the
// engine preload is only in the program that lklrun starts, not in programs that this
// program executes.
func (c CPython) Args() []string {
	return append([]string{"/usr/bin/python3", "-W", "ignore", c.Runner, c.Report, "60"}, strings.Fields(cpythonTests)...)
}

// Natively is a shell command that runs the tests in an empty network namespace.
func (c CPython) Natively() string {
	return "unshare -n sh -c 'ip link set lo up; " + strings.Join(c.Args(), " ") + "'"
}

// CPythonResults are the results of tests: pass, fail, skip, or crash or hang.
type CPythonResults map[string]string

// ReadCPython reads a report.
func ReadCPython(report string) CPythonResults {
	got := CPythonResults{}
	for _, line := range strings.Split(report, "\n") {
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

// Lost compares results on a stack with those on the machine's own sockets. It counts the
// tests that pass in both, and names those that pass only on the machine's own sockets.
func (r CPythonResults) Lost(native CPythonResults, root bool) (passed int, lost []string) {
	for test, was := range native {
		switch {
		case was != "pass", cpythonSlow[test] != "", r[test] == "skip" && !root && cpythonNeedsRoot[test]:
		case r[test] == "pass":
			passed++
		default:
			lost = append(lost, fmt.Sprintf("%s: %s", test, r[test]))
		}
	}
	slices.Sort(lost)
	return passed, lost
}
