// SPDX-License-Identifier: Apache-2.0

// Package oci contains the tests of lklrun-oci, the OCI runtime that gives containers a
// stack. test/docs runs the commands of its page.
package oci

import (
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

const limit = 5 * time.Minute

func TestMain(m *testing.M) { kit.EndToEnd(m) }

// checkScript checks that a script has succeeded, and that its output contains each text
// of want.
func checkScript(t *testing.T, r kit.Result, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(r.Stdout, text) {
			t.Errorf("the output lacks %q", text)
		}
	}
	if r.Status != 0 || t.Failed() {
		t.Errorf("the script: %v", r)
	}
}
