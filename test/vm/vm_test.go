// SPDX-License-Identifier: Apache-2.0

// Package vm holds the tests that want a whole arm64 machine: see internal/testutil/vm.
package vm

import (
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/testutil"
	"github.com/lklrun/lklrun/internal/testutil/vm"
)

// limit is how long a command on the machine may take: it is some thirty times slower
// than this one.
const limit = time.Minute

func TestMain(m *testing.M) { testutil.Main(m, vm.Image) }

// One machine for all.
func TestARM64(t *testing.T) {
	m := vm.Start(t)
	t.Run("machine", func(t *testing.T) { testMachine(t, m) })
}

// It is what the other tests take it for.
func testMachine(t *testing.T, m *vm.Machine) {
	got := m.Do(t, limit, "uname -mr; id -u; cat /proc/sys/kernel/seccomp/actions_avail /proc/sys/net/mptcp/enabled; ls /dev/net/tun /dev/fuse; cat /proc/version")
	for _, want := range []string{"aarch64", "user_notif", "/dev/net/tun", "/dev/fuse", " Debian "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if kernel := strings.Fields(got)[0]; !strings.HasSuffix(kernel, "-arm64") {
		t.Errorf("not Debian's kernel: %s", kernel)
	}
}
