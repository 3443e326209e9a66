// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// suiteLimit is the limit for the tests, which take about a minute on an idle machine.
const suiteLimit = 8 * time.Minute

// cpython are CPython's own tests on the machine.
var cpython = kit.CPython{Runner: "/srv/conformance/runner.py", Report: "/tmp/report"}

// testConformance checks that every test that passes on the machine's own sockets also
// passes on the stack.
func testConformance(t *testing.T, m *vm.Machine, target string, native kit.CPythonResults, engine string) {
	args := append([]string{"--engine", engine, "--stack", "vanilla", "--"}, cpython.Args()...)
	began := time.Now()
	r := kit.Run(t, suiteLimit, deviceAs(m, target, args...))
	took := time.Since(began)
	if r.Status != 0 {
		t.Errorf("engine %s: %v", engine, r)
	}
	passed, lost := report(t, m).Lost(native, strings.HasPrefix(target, "ssh:root@"))
	t.Logf("engine %s: %d pass as on the machine's own sockets, in %.0f s", engine, passed, took.Seconds())
	if len(lost) != 0 {
		t.Errorf("engine %s: %d pass on the machine's own sockets and not on the stack:\n%s\n%s", engine, len(lost), strings.Join(lost, "\n"), r.Stderr)
	}
}

// natively runs the tests in an empty network namespace of the machine.
func natively(t *testing.T, m *vm.Machine) kit.CPythonResults {
	t.Helper()
	m.Put(t, "/srv/conformance", filepath.Join(kit.Root(), "test", "conformance", "python"), "runner.py")
	r := m.Sh(t, suiteLimit, cpython.Natively())
	got := report(t, m)
	if r.Status != 0 || len(got) < 200 {
		t.Fatalf("%d tests on the machine's own sockets: %v", len(got), r)
	}
	return got
}

// report reads the file of results and removes it.
func report(t *testing.T, m *vm.Machine) kit.CPythonResults {
	t.Helper()
	return kit.ReadCPython(m.Do(t, limit, "cat "+cpython.Report+"; rm "+cpython.Report))
}
