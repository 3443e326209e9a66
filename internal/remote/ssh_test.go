// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sweepSSH removes folders of killed runs. It keeps folders that are in use or
// belong to other users.
func TestSweepSSH(t *testing.T) {
	place := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{"lklrun-ssh-1": old, "lklrun-ssh-2/s": old, "lklrun-ssh-3": time.Now(), "lklrun-other": old} {
		if err := os.MkdirAll(filepath.Join(place, name), 0o700); err != nil {
			t.Fatal(err)
		}
		top, _, _ := strings.Cut(name, "/")
		if err := os.Chtimes(filepath.Join(place, top), at, at); err != nil {
			t.Fatal(err)
		}
	}
	sweepSSH(place)
	left, err := filepath.Glob(place + "/*")
	if got := strings.ReplaceAll(strings.Join(left, " "), place+"/", ""); err != nil || got != "lklrun-other lklrun-ssh-2 lklrun-ssh-3" {
		t.Errorf("left: %s", got)
	}
}
