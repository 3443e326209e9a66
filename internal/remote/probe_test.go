// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// In /tmp, another user may have created the folder, or a link in its place.
// The probe rejects both, even as root. On Android, root accepts a folder that
// the shell created.
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

// A device can answer the probe with any data.
func FuzzProbe(f *testing.F) {
	f.Add("machine=aarch64\nkernel=6.1.0\nuid=0\ndf=/dev/x 100 50 50 50% /data\nbase=/data/local/tmp\nbundle=0123\n")
	f.Add("uid=\nmachine\n=x\ndf=99999999999999999999 1%\nuid=-5")
	f.Fuzz(func(t *testing.T, out string) {
		p := parseProbe(out)
		if p.Arch != "" && !strings.Contains(out, p.Machine) || len(p.bundles) > strings.Count(out, "bundle=") {
			t.Errorf("%q was read as %+v", out, p)
		}
		if p.Free < -1 {
			t.Errorf("%q: %d bytes free", out, p.Free)
		}
	})
}
