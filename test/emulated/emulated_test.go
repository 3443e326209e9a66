// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// emulated returns the directory of the arm64 bundle, and one with Debian's arm64
// programs, which qemu-user runs.
func emulated(t *testing.T) (bundle, root string) {
	t.Helper()
	kit.Need(t, "qemu-aarch64-static", "python3")
	bundle = filepath.Join(kit.Root(), "build", "cross", "arm64")
	if _, err := os.Stat(filepath.Join(bundle, "liblklpreload.so")); err != nil {
		t.Fatalf("%v: make cross", err)
	}
	root = filepath.Join(kit.Root(), "build", "root-arm64")
	for _, args := range [][]string{{".ci/binfmt"}, {".ci/fetch-debs", "--deps", "arm64", root, "libc6", "musl", "curl"}} {
		if out, err := exec.Command(filepath.Join(kit.Root(), args[0]), args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
	}
	return bundle, root
}

// TestEmulatedARM64 runs the unmodified arm64 bundle with qemu-user and an arm64 curl:
// the stack inside curl, the user-mode gateway and exit statuses. qemu-user has no
// seccomp, so only the empty network namespace catches calls that the library misses.
// lklrun must choose the engine automatically.
func TestEmulatedARM64(t *testing.T) {
	bundle, root := emulated(t)
	n := kit.NewNetns(t, "arm64")
	n.Addr(t, "lo", "10.99.0.1/32")
	dir := t.TempDir()
	want := make([]byte, 3<<20)
	if _, err := rand.Read(want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	n.PythonHTTP(t, 8000, dir)
	run := func(args ...string) kit.Result {
		t.Helper()
		cmd := n.Command(append([]string{filepath.Join(bundle, "lklrun")}, args...)...)
		cmd.Env = append(os.Environ(), "QEMU_LD_PREFIX="+root)
		return kit.Run(t, 2*time.Minute, cmd)
	}
	curl := filepath.Join(root, "usr", "bin", "curl")
	got := filepath.Join(dir, "got")
	if r := run("--engine", "preload", "--", curl, "-sSf", "-o", got, "http://10.99.0.1:8000/file"); r.Status != 0 {
		t.Fatalf("curl: %v", r)
	}
	if data, err := os.ReadFile(got); err != nil || !bytes.Equal(data, want) {
		t.Errorf("what arrived (%v, %d bytes) is not what was sent", err, len(data))
	}
	r := run("--", curl, "-sSf", "-o", got, "http://10.99.0.1:8000/nothing")
	if r.Status != 22 || !strings.Contains(r.Stderr, "404") || !strings.Contains(r.Stderr, "the kernel is loaded into the command") {
		t.Errorf("a page that is not there, with no engine asked for: %v", r)
	}
	r = run("doctor", curl)
	if r.Status != 0 || !strings.Contains(r.Stdout, "this kernel has no seccomp filters") || !strings.Contains(r.Stdout, "aarch64") {
		t.Errorf("doctor: %v", r)
	}
	r = run("--engine", "supervise", "--", curl, "--version")
	if r.Status != 2 || r.Stdout != "" || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, "seccomp user notification") {
		t.Errorf("the engine supervise: %v", r)
	}
}
