// SPDX-License-Identifier: Apache-2.0

package preflight

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

func TestTrace(t *testing.T) {
	scope := func(value string) func(string) string { return func(string) string { return value + "\n" } }
	for value, want := range map[string]string{"": "", "0": "", "1": "", "3": "kernel.yama.ptrace_scope is 3"} {
		if err := checkTrace("amd64", scope(value)); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ptrace_scope %q: %v, want %q", value, err, want)
		}
	}
	if err := checkTrace("arm", scope("1")); err == nil {
		t.Error("arm: no error")
	}
	for release, want := range map[string]bool{"4.8.0": true, "4.19.0-27-amd64": true, "5.10": true, "4.7.10": false, "3.18.140": false, "": false} {
		if got := atLeast(release, traceRelease); got != want {
			t.Errorf("release %q: %v", release, got)
		}
	}
	t.Setenv(lacksEnv, "notify")
	if _, err := LookNotification(); err == nil {
		t.Error("without notify: notification is available")
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
