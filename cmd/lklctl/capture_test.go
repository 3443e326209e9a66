// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// Without tcpdump, the error message contains the remedy.
func TestCaptureWithoutTcpdump(t *testing.T) {
	instanceOf(t, "web")
	t.Setenv("PATH", t.TempDir())
	r := lklctl(t, "capture")
	if r.status != 1 || r.errors != "lklctl: tcpdump is not installed; install it, or write a file with -w FILE\n" {
		t.Errorf("%+v", r)
	}
}
