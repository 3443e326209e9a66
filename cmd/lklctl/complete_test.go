// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// The completions come from the running stack.
func TestComplete(t *testing.T) {
	instanceOf(t, "web")
	if r := lklctl(t, "__complete", "link", "set", "l"); r.status != 0 || !strings.HasPrefix(r.out, "lo\n") {
		t.Errorf("interfaces: %+v", r)
	}
	if r := lklctl(t, "__complete", "-n", "none", "link", "set", ""); r.status != 0 || !strings.HasPrefix(r.out, ":") {
		t.Errorf("of no instance: %+v", r)
	}
}
