// SPDX-License-Identifier: Apache-2.0

// Package vm contains the tests that need a whole arm64 machine: see
// test/kit/vm.
package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// limit is the limit for one command on the machine, which is about thirty times slower
// than this one.
const limit = time.Minute

func TestMain(m *testing.M) {
	kit.Main(m, func(root string) error {
		for _, kernel := range []string{"", vm.OlderKernel} {
			if err := vm.Image(root, kernel); err != nil {
				return err
			}
		}
		return build(root)
	})
}

// build builds the library's own tests for arm64. If there is no library, build does
// nothing, and the test that needs the library reports this.
func build(root string) error {
	lib := filepath.Join(root, "build", "stack-arm64")
	if _, err := os.Stat(filepath.Join(lib, "liblkl.so")); err != nil {
		return nil
	}
	cmd := exec.Command("make", "-s", "-C", filepath.Join(root, "third_party", "lkl", "tests"), "build",
		"LKL_ARCH=arm64", "LIB="+lib, "BUILD="+filepath.Join(root, libraryTests), "T="+library)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// TestARM64 runs all tests on one machine.
func TestARM64(t *testing.T) {
	for _, f := range []string{kit.Bin("lklrun"), kit.Bin("bundles/lklrun-arm64.tar.gz"), filepath.Join(kit.Root(), libraryTests, "boot")} {
		if _, err := os.Stat(f); err != nil {
			t.Fatalf("%v: make build cross-arm64 makes what these tests want", err)
		}
	}
	m := vm.Start(t, "")
	t.Run("machine", func(t *testing.T) { testMachine(t, m) })
	for _, engine := range []string{"supervise", "preload"} {
		t.Run("demo "+engine, func(t *testing.T) { testDemo(t, m, engine) })
	}
	t.Run("conformance", func(t *testing.T) {
		native := natively(t, m)
		for _, engine := range []string{"supervise", "preload"} {
			t.Run(engine, func(t *testing.T) { testConformance(t, m, m.Target(), native, engine) })
		}
	})
	t.Run("exchange", func(t *testing.T) { testExchange(t, m) })
	t.Run("library", func(t *testing.T) { testLibrary(t, m) })
}

// testMachine checks that the machine has the properties that the other tests expect.
func testMachine(t *testing.T, m *vm.Machine) {
	got := m.Do(t, limit, "uname -mr; cat /proc/sys/kernel/seccomp/actions_avail /proc/sys/net/mptcp/enabled; ls /dev/net/tun /dev/fuse; cat /proc/version")
	for _, want := range []string{"aarch64", "user_notif", "/dev/net/tun", "/dev/fuse", " Debian "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if kernel := strings.Fields(got)[0]; !strings.HasSuffix(kernel, "-arm64") {
		t.Errorf("not Debian's kernel: %s", kernel)
	}
}
