// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// In /tmp somebody else may have made the folder, or a link in its place: root does
// not take it either. On Android root takes what the shell has made.
func TestProbeBases(t *testing.T) {
	const nobody = 65534
	dir := t.TempDir()
	theirs, link, own := filepath.Join(dir, "theirs"), filepath.Join(dir, "link"), filepath.Join(dir, "own")
	for _, d := range []string{theirs, own} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(theirs, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	bases := "set -- " + strings.Join([]string{theirs, link, own}, " ")
	head, _, _ := strings.Cut(basesSSH, "set --")
	for _, shell := range [][]string{{"sh"}, {"bash"}, {"busybox", "sh"}} {
		for before, want := range map[string]string{head: own, "": theirs} {
			script := strings.Replace(probeScript, "@BASES@", before+bases, 1)
			out, err := exec.Command(shell[0], append(shell[1:], "-c", script)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "\nbase="+want+"\n") {
				t.Errorf("%v, %q: %v, want base=%s:\n%s", shell, before, err, want, out)
			}
		}
	}
	if left, err := filepath.Glob(dir + "/*/.*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
