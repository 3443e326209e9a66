// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/testutil"
	"github.com/lklrun/lklrun/internal/testutil/vm"
)

// library names the tests of third_party/lkl/tests: packet, for qemu-user has no packet
// sockets, and what takes seconds of the others. loop, threads and tap take ten minutes
// and more here, for all that they move and count, and are left to qemu-user (make -C
// third_party/lkl LKL_ARCH=arm64 check); taps of this kernel are the demo's.
const library = "boot clocks signals faults memory subsystems mptcp halts packet"

// libraryTests is where they are built, from the repository's folder.
const libraryTests = "build/test/lkl-arm64"

// The kernel library's own tests, on an arm64 kernel: with its taps and packet sockets.
func testLibrary(t *testing.T, m *vm.Machine) {
	root := testutil.Root()
	built := filepath.Join(root, libraryTests)
	lib := filepath.Join(root, "build", "stack-arm64")
	m.Put(t, "/root/lkl", lib, "liblkl.so")
	m.Put(t, "/root/lkl", built, ".")
	m.Put(t, "/root/lkl", filepath.Join(root, "third_party", "lkl", "tests"), "run.sh")
	// What a test says of time is about machines; this one is emulated.
	r := m.Sh(t, 15*time.Minute, "cd /root/lkl && LKL_TEST_SLOW=20 sh run.sh . . "+library)
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
