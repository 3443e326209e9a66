// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// write writes a bundle with one file of the given content. The manifest describes
// the content in said, which can differ.
func write(t *testing.T, dir, content, said string) {
	t.Helper()
	sum := sha256.Sum256([]byte(said))
	m := Manifest{Arch: "amd64", Files: []ManifestFileEntry{{Name: "lklrun", Size: int64(len(said)), Mode: 0o755, SHA256: hex.EncodeToString(sum[:])}}}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "lklrun"), []byte(content), 0o755), os.WriteFile(filepath.Join(dir, ManifestFile), text, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "lklrun"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Install makes a bundle appear completely or not at all. A second installation
// changes nothing.
func TestInstall(t *testing.T) {
	base := t.TempDir()
	to, from := filepath.Join(base, "0123456789ab"), filepath.Join(base, "0123456789ab.X")
	write(t, from, "cut sho", "cut short")
	if err := Install(from, to); err == nil || !strings.Contains(err.Error(), "lklrun is damaged") {
		t.Errorf("damaged: %v", err)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("damaged: %v", err)
	}
	write(t, from, "first", "first")
	if err := Install(from, to); err != nil || content(t, to) != "first" {
		t.Errorf("%v", err)
	}
	write(t, from, "second", "second")
	if err := Install(from, to); err != nil || content(t, to) != "first" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(from); !os.IsNotExist(err) {
		t.Errorf("what was put there: %v", err)
	}
}

// Install removes other bundles, unless they are young or in use. It keeps folders
// that are not bundles.
func TestTidy(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * spareTime)
	for name, age := range map[string]time.Time{
		"aaaaaaaaaaaa": old, "bbbbbbbbbbbb": time.Now(), "cccccccccccc.HALF": old, "dddddddddddd": old, "run": old, "tmp": old, "notabundle12": old,
		"eeeeeeeeeeee": old, "ffffffffffff": old, "012345678901": old,
	} {
		dir := filepath.Join(base, name)
		write(t, dir, "x", "x")
		if err := os.Chtimes(dir, age, age); err != nil {
			t.Fatal(err)
		}
	}
	// A program runs from one bundle, a process uses a library of another, and the
	// third starts an app.
	write(t, filepath.Join(base, AppFolder), "exec "+base+"/012345678901/lklrun -- \"$@\"\n", "")
	program := exec.Command(filepath.Join(base, "eeeeeeeeeeee", "sleep"), "60")
	if out, err := exec.Command("sh", "-c", "cp $(command -v sleep) "+program.Path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chtimes(filepath.Dir(program.Path), old, old); err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = program.Process.Kill(), program.Wait() }()
	lib, err := os.Open(filepath.Join(base, "ffffffffffff", "lklrun"))
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	mapped, err := unix.Mmap(int(lib.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	tidy(link, "dddddddddddd")
	left, err := filepath.Glob(base + "/*")
	if got := strings.ReplaceAll(strings.Join(left, " "), base+"/", ""); err != nil || got != "012345678901 app bbbbbbbbbbbb dddddddddddd eeeeeeeeeeee ffffffffffff notabundle12 run tmp" {
		t.Errorf("left: %s", got)
	}
}

// Remove changes nothing if lklrun is not in a bundle, or if another process runs
// from it.
func TestRemove(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"run", "tmp", "dddddddddddd"} {
		write(t, filepath.Join(base, name), "x", "x")
	}
	if err := (Place{Base: base, Bundle: filepath.Join(base, "bin")}).Remove(); err == nil || !strings.Contains(err.Error(), "not the directory of a bundle") {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(base + "/*"); err != nil || len(left) != 3 {
		t.Errorf("left: %v", left)
	}
	if err := (Place{Base: base, Bundle: filepath.Join(base, "dddddddddddd")}).Remove(); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(base); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}
