// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// image makes the files of the image, all of which have the given text.
func image(t *testing.T, text string) string {
	from := t.TempDir()
	kit.Must(t, os.MkdirAll(filepath.Join(from, "stacks/bbr"), 0o755))
	for _, name := range append([]string{"stacks/bbr/stack.json", "other"}, programs...) {
		kit.WriteFile(t, filepath.Join(from, name), text)
	}
	return from
}

// list returns the paths below dir.
func list(t *testing.T, dir string) (paths []string) {
	kit.Must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, strings.TrimPrefix(path, dir))
		return err
	}))
	return paths
}

// A new copy replaces the one of an agent that was killed, and the link never misses.
func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "opt/lklrun")
	var copies []string
	for _, text := range []string{"old", "new"} {
		files, err := install(image(t, text), dir)
		kit.Must(t, err)
		copies = append(copies, files)
		for _, name := range []string{"lklrun", "lklctl", "lklhost", "lklrun-oci", "stacks/bbr/stack.json"} {
			if got := kit.ReadFile(t, filepath.Join(dir, link, name)); got != text {
				t.Errorf("%s: %q, want %q", name, got, text)
			}
		}
		st, err := os.Stat(filepath.Join(dir, link, "lklrun"))
		kit.Must(t, err)
		if st.Mode().Perm() != 0o755 {
			t.Errorf("mode %v of lklrun", st.Mode())
		}
	}
	if _, err := os.Lstat(copies[0]); err == nil {
		t.Errorf("the old copy remains: %q", list(t, dir))
	}
	// The end of an old agent does not remove the link to a newer copy.
	kit.Must(t, remove(copies[0]))
	if got := kit.ReadFile(t, filepath.Join(dir, link, "lklrun")); got != "new" {
		t.Errorf("the old agent has removed the new copy: %q", list(t, dir))
	}
	if Ready(dir) == nil {
		t.Error("ready without a connection")
	}
	kit.WriteFile(t, filepath.Join(copies[1], readyFile), "")
	kit.Must(t, Ready(dir), remove(copies[1]))
	if _, err := os.Lstat(dir); err == nil {
		t.Errorf("files remain: %q", list(t, dir))
	}
}

// Files of others stay, and nothing is left of a failure.
func TestInstallBesideOthers(t *testing.T) {
	dir := t.TempDir()
	kit.WriteFile(t, filepath.Join(dir, "theirs"), "")
	files, err := install(image(t, ""), dir)
	kit.Must(t, err, remove(files))
	if got := list(t, dir); len(got) != 2 || got[1] != "/theirs" {
		t.Errorf("want only the other file: %q", got)
	}
	kit.Must(t, os.Mkdir(filepath.Join(dir, link), 0o755))
	if _, err := install(image(t, ""), dir); err == nil || !strings.Contains(err.Error(), "is not a symbolic link of lklrun") {
		t.Errorf("want an error for a folder in place of the link: %v", err)
	}
	if _, err := install(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "lklrun: no such file") {
		t.Errorf("want an error for an image without lklrun: %v", err)
	}
	if got := list(t, dir); len(got) != 3 {
		t.Errorf("want only the files of others: %q", got)
	}
}
