// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/netdev"
)

// hidden reports whether a test hides a feature of the host's kernel.
func hidden(feature string) bool {
	return slices.Contains(strings.Split(os.Getenv(lacksEnv), ","), feature)
}

// traceRelease is the first release in which ptrace(2) can change a call before the
// seccomp filter examines it again, and thus without a way past the filter. No request
// tells this.
const traceRelease = "4.8"

// CheckTrace explains why the engine trace cannot catch the calls of a program. It examines
// seccomp filters and the permission to use ptrace(2) for a child process.
func CheckTrace() error { return checkTrace(runtime.GOARCH, readText) }

func checkTrace(arch string, read func(path string) string) error {
	if arch != "amd64" && arch != "arm64" {
		return fmt.Errorf("not supported on %s", arch)
	}
	action := uint32(unix.SECCOMP_RET_TRACE)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action); errors.Is(err, unix.EOPNOTSUPP) {
		return errors.New("this kernel has no seccomp action trace (CONFIG_SECCOMP_FILTER)")
	} else if err != nil && !atLeast(release(), traceRelease) { // Linux before 4.14 does not know the operation
		return fmt.Errorf("this kernel has no seccomp filters that a tracer cannot be used to pass (%w; Linux %s or later)", err, traceRelease)
	}
	// A child may get its tracer from its parent in the modes 0 and 1.
	switch scope := strings.TrimSpace(read("/proc/sys/kernel/yama/ptrace_scope")); {
	case scope == "3":
		return errors.New("this host does not allow ptrace (kernel.yama.ptrace_scope is 3, until the next boot)")
	case scope == "2" && !netdev.Capable(unix.CAP_SYS_PTRACE):
		return errors.New("this host does not allow ptrace to ordinary users (kernel.yama.ptrace_scope is 2); as root, run `sysctl -w kernel.yama.ptrace_scope=1`, or run lklrun as root")
	}
	return nil
}

// release returns the release of the host's kernel.
func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// atLeast compares the first two numbers of a kernel's release.
func atLeast(release, first string) bool {
	var have, want [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(first, "%d.%d", &want[0], &want[1]); err != nil {
		return false
	}
	return slices.Compare(have[:], want[:]) >= 0
}
