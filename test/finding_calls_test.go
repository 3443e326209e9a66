// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
)

// The process that gets the number of one killed in the middle of a call keeps its
// memory as it is.
func TestFinding02ForeignMemory(t *testing.T) {
	s := newSite(t)
	fs := testutil.NewStallFS(t)
	script := filepath.Join(testutil.Root(), "test", "testdata", "finding02.py")
	r := testutil.Run(t, limit, s.onTap("/usr/bin/python3", script, fs.Dir))
	if r.Status != 0 || r.Stdout != "untouched\n" {
		t.Errorf("%v", r)
	}
}
