// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Dir makes a directory that every user may enter and read, unlike t.TempDir.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lklrun-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // on a tmpfs that ends with the tests
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestData returns the absolute path of a file in testdata beside the test.
func TestData(name string) string {
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		panic(err) // there is no working directory
	}
	return path
}

// ReadFile returns the text of a file.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// WriteFile writes a file that all may read, makes the directories above it, and returns
// its path.
func WriteFile(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Lines splits a text into its non-empty lines.
func Lines(text string) []string {
	var all []string
	for _, l := range strings.Split(text, "\n") {
		if strings.TrimSpace(l) != "" {
			all = append(all, l)
		}
	}
	return all
}

// Random writes n random bytes to path.
func Random(t testing.TB, path string, n int64) {
	t.Helper()
	src, err := os.Open("/dev/urandom")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(dst, src, n); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// OwnEtc gives the tests a private /etc that they may change.
func OwnEtc(t *testing.T) {
	t.Helper()
	etc := filepath.Join(Dir(t), "etc")
	Host.Run(t, "cp", "-a", "/etc", etc)
	Must(t, unix.Mount(etc, "/etc", "", unix.MS_BIND, ""))
	t.Cleanup(func() { Must(t, unix.Unmount("/etc", 0)) })
}
