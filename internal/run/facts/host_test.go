// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"os"
	"strings"
	"testing"
)

// TestNotification hides features of the host's kernel.
func TestNotification(t *testing.T) {
	here, err := LookNotification()
	if err != nil {
		t.Skip(err)
	}
	for lacks, want := range map[string]Notification{
		"":                         here,
		"addfd-send":               {TwoSteps: true, Interruptible: here.Interruptible},
		"wait-killable":            {TwoSteps: here.TwoSteps, Interruptible: true},
		"addfd-send,wait-killable": {TwoSteps: true, Interruptible: true},
	} {
		t.Setenv(lacksEnv, lacks)
		got, err := LookNotification()
		if err != nil || got != want || (got.Limits() != "") != want.Interruptible {
			t.Errorf("without %q: %+v, %v", lacks, got, err)
		}
	}
	t.Setenv(lacksEnv, "addfd")
	if _, err := LookNotification(); err == nil || !strings.Contains(err.Error(), "SECCOMP_IOCTL_NOTIF_ADDFD") {
		t.Errorf("without addfd: %v", err)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil || strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("the test's thread has no_new_privs (%v)", err)
	}
}

func TestUserNamespaces(t *testing.T) {
	read := func(values map[string]string) func(string) string {
		return func(path string) string { return values[path] }
	}
	if err := checkUserNamespaces(read(map[string]string{"/proc/sys/user/max_user_namespaces": "127000\n"})); err != nil {
		t.Error(err)
	}
	err := checkUserNamespaces(read(map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0\n"}))
	if err == nil || !strings.Contains(err.Error(), "sysctl -w kernel.unprivileged_userns_clone=1") {
		t.Error(err)
	}
}
