// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Need skips a test if the machine lacks the programs or the test is not root in its own
// namespaces. With CI set in the environment it fails instead.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("CI") != "" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	if os.Geteuid() != 0 || os.Getenv(stageEnv) != "test" {
		missing("needs root, and a TestMain that calls kit.Main")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing("needs %s: %v", p, err)
		}
	}
}

// WaitFor polls cond until it holds, and fails the test after limit.
func WaitFor(t testing.TB, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	if !Within(limit, cond) {
		t.Fatalf("%s: not within %v", what, limit)
	}
}

// Within reports whether cond holds within limit.
func Within(limit time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}
