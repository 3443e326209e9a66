// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// TestOlderKernel runs the engine supervise on Linux 5.10, which has neither
// SECCOMP_ADDFD_FLAG_SEND nor SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV.
func TestOlderKernel(t *testing.T) {
	m := vm.Start(t, vm.OlderKernel)
	if release := m.Do(t, limit, "uname -r"); !strings.HasPrefix(release, vm.OlderKernel+".") {
		t.Fatalf("the machine's kernel is %s", release)
	}
	doctor := exec.Command(kit.Bin("lklrun"), "doctor", "--device", m.Target())
	doctor.Env = m.Client.Env()
	if found := kit.OK(t, limit, doctor); !strings.Contains(found, "the kernel lacks SECCOMP_ADDFD_FLAG_SEND and SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV") {
		t.Errorf("lklrun doctor:\n%s", found)
	}
	native := natively(t, m)
	for _, user := range []string{"root", "user"} {
		t.Run(user, func(t *testing.T) {
			testConformance(t, m, "ssh:"+user+"@"+vm.MachineAddr, native, "supervise")
		})
	}
}
