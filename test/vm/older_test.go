// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// firstLimit is the limit for a command of lklrun that may first copy the bundle.
const firstLimit = 3 * time.Minute

// portWithout is the port of an ssh server whose processes have no seccomp user
// notification.
const portWithout = 2222

// TestOlderKernel runs the engine supervise on Linux 5.10, which has neither
// SECCOMP_ADDFD_FLAG_SEND nor SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV. It runs the engine
// trace without seccomp user notification. Each engine runs as one user, because every
// run of the suite takes minutes here.
func TestOlderKernel(t *testing.T) {
	m := vm.Start(t, vm.OlderKernel)
	if release := m.Do(t, limit, "uname -r"); !strings.HasPrefix(release, vm.OlderKernel+".") {
		t.Fatalf("the machine's kernel is %s", release)
	}
	doctor := exec.Command(kit.Bin("lklrun"), "doctor", "--device", m.Target())
	doctor.Env = m.Client.Env()
	if found := kit.OK(t, firstLimit, doctor); !strings.Contains(found, "the kernel lacks SECCOMP_ADDFD_FLAG_SEND and SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV") {
		t.Errorf("lklrun doctor:\n%s", found)
	}
	hideNotification(t, m)
	native := natively(t, m)
	t.Run("supervise", func(t *testing.T) { testConformance(t, m, m.Target(), native, "supervise") })
	t.Run("trace", func(t *testing.T) {
		target := fmt.Sprintf("ssh:user@%s:%d", vm.MachineAddr, portWithout)
		if r := kit.Run(t, firstLimit, deviceAs(m, target, "--engine", "supervise", "--", "true")); r.Status != 2 || !strings.Contains(r.Stderr, "no seccomp user notification") {
			t.Errorf("engine supervise: %v", r)
		}
		testConformance(t, m, target, native, "trace")
	})
}

// hideNotification starts the ssh server at portWithout.
func hideNotification(t *testing.T, m *vm.Machine) {
	t.Helper()
	dir := kit.Dir(t)
	kit.WriteFile(t, filepath.Join(dir, "nolistener.py"), kit.NoListener)
	m.Put(t, "/srv", dir, "nolistener.py")
	m.Do(t, limit, fmt.Sprintf("python3 /srv/nolistener.py /usr/sbin/sshd -p %d", portWithout))
	pub := filepath.Join(dir, "host.pub")
	kit.WriteFile(t, pub, m.Do(t, limit, "cat /run/cfg/host.pub"))
	m.Client.Know(t, vm.MachineAddr, portWithout, pub)
}
