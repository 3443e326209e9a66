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

// library names the tests of third_party/lkl/tests that run here: those that depend on the
// host's kernel, which handles their signals, page faults and memory, and packet, because
// qemu-user has no packet sockets. All the others run under qemu-user, in a fraction of the
// time (make -C third_party/lkl LKL_ARCH=arm64 check). The demo tests taps on this kernel.
const library = "boot signals faults memory packet"

// libraryTests is the directory of the built tests, relative to the repository.
const libraryTests = "build/test/lkl-arm64"

// testLibrary runs the kernel library's own tests on an arm64 kernel, with its taps and
// packet sockets.
func testLibrary(t *testing.T, m *vm.Machine) {
	root := kit.Root()
	built := filepath.Join(root, libraryTests)
	lib := filepath.Join(root, "build", "stack-arm64")
	m.Put(t, "/root/lkl", lib, "liblkl.so")
	m.Put(t, "/root/lkl", built, ".")
	m.Put(t, "/root/lkl", filepath.Join(root, "third_party", "lkl", "tests"), "run.sh")
	// The tests' time limits are for real machines, but this one is emulated.
	r := m.Sh(t, 8*time.Minute, "cd /root/lkl && LKL_TEST_SLOW=20 sh run.sh . . "+library)
	for _, line := range strings.Split(r.Stdout, "\n") {
		if strings.HasPrefix(line, "not ok") || strings.Contains(line, "# SKIP") || strings.HasPrefix(line, "# pass") {
			t.Log(line)
		}
	}
	if r.Status != 0 {
		t.Errorf("the library's tests: %v", r)
	}
	if strings.Contains(r.Stdout, "# SKIP") {
		t.Error("this machine has all that a test may want, and yet some were left out")
	}
}
