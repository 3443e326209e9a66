// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `{"version": 1, "lklrun": "1", "lab": "v.json", "seed": 7, "capture": true, "dir": "/tmp/lklrun-record-1",
"folder": "/tmp/rec/results", "work": ".", "env": ["PATH=/bin", "LC_ALL=C"], "lklvirtual": "", "stacks": {}, "programs": {}, "files": {}}`

// FuzzParse checks that a record that is accepted names nothing outside of its folder, and passes no
// other variables.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	for _, change := range [][2]string{
		{"v.json", "../v.json"}, {"v.json", ""}, {"v.json", ".."}, {`": "."`, `": "a/../../b"`}, {"PATH=", "LD_PRELOAD="},
		{"LC_ALL=C", "LC_ALL"}, {"/tmp/lklrun-record-1", "/"}, {"/tmp/rec/results", "rec"}, {": 1,", ": 2,"}, {"seed", "sead"},
	} {
		text := strings.Replace(sample, change[0], change[1], 1)
		if _, err := parse([]byte(text)); err == nil || text == sample {
			f.Errorf("%q for %q is accepted", change[1], change[0])
		}
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parse(b)
		if err != nil {
			return
		}
		if strings.Contains(r.Lab, "/") || r.Lab == ".." || !filepath.IsLocal(r.Work) || !filepath.IsAbs(r.Dir) || r.Dir == "/" {
			t.Errorf("accepted: %+v", r)
		}
		for _, e := range r.Env {
			if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "LD_") || strings.Contains(e, "\x00") {
				t.Errorf("passes %q", e)
			}
		}
	})
}

// TestCopyFolderLinks checks which links are copied.
func TestCopyFolderLinks(t *testing.T) {
	for _, c := range []struct {
		to string
		ok bool
	}{
		{"file", true}, {"d/file", true}, {"d/../file", true}, {"missing", true},
		{"/etc/passwd", false}, {"..", false}, {"../x", false}, {"d/../../x", false}, {"up/../../x", false}, {"d/e/up/../..", false},
	} {
		from, to := t.TempDir(), t.TempDir()
		for _, err := range []error{
			os.WriteFile(filepath.Join(from, "file"), nil, 0o644), os.MkdirAll(filepath.Join(from, "d", "e"), 0o755),
			os.WriteFile(filepath.Join(from, "d", "file"), nil, 0o644), os.Symlink("../..", filepath.Join(from, "d", "e", "up")),
			os.Symlink("d", filepath.Join(from, "up")), os.Symlink(c.to, filepath.Join(from, "link")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		src, err := os.OpenRoot(from)
		if err != nil {
			t.Fatal(err)
		}
		digests, err := copyFolder(src, to, nil)
		src.Close()
		if (err == nil) != c.ok {
			t.Errorf("a link to %s: %v", c.to, err)
		}
		if got, _ := os.Readlink(filepath.Join(to, "link")); c.ok && (got != c.to || digests["link"] != "link:"+c.to || len(digests) != 5) {
			t.Errorf("a link to %s: copied as %q: %v", c.to, got, digests)
		}
	}
}
