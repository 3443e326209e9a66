// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strings"
	"testing"
)

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{
		"5.13.19-generic": true, "5.14.0-427.el9.x86_64": false, "5.4.0": true, "4.19.0-27-amd64": true,
		"6.1.0": false, "6.12.117-lkl": false, "10.2": false, "": false, "next": false,
	} {
		if got := olderThan(release, 5, 14); got != want {
			t.Errorf("%q: %v", release, got)
		}
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
