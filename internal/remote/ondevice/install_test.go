// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write writes a bundle of one file, whose content the manifest has as said.
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

// A bundle appears whole or not at all; who comes second changes nothing.
func TestInstall(t *testing.T) {
	base := t.TempDir()
	to, from := filepath.Join(base, "0123456789ab"), filepath.Join(base, "0123456789ab.X")
	write(t, from, "cut sho", "cut short")
	if err := Install(from, to); err == nil || !strings.Contains(err.Error(), "lklrun has come damaged") {
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

// Older bundles go, but for those that are young, in use, or none.
func TestTidy(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * spareTime)
	for name, age := range map[string]time.Time{
		"aaaaaaaaaaaa": old, "bbbbbbbbbbbb": time.Now(), "cccccccccccc.HALF": old, "dddddddddddd": old, "run": old, "tmp": old, "notabundle12": old,
	} {
		dir := filepath.Join(base, name)
		write(t, dir, "x", "x")
		if err := os.Chtimes(dir, age, age); err != nil {
			t.Fatal(err)
		}
	}
	tidy(base, "dddddddddddd")
	left, err := filepath.Glob(base + "/*")
	if got := strings.ReplaceAll(strings.Join(left, " "), base+"/", ""); err != nil || got != "bbbbbbbbbbbb dddddddddddd notabundle12 run tmp" {
		t.Errorf("left: %s", got)
	}
}
