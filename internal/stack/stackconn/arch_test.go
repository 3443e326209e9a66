// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// numbers returns the constants of golang.org/x/sys/unix for an architecture whose names
// have the prefix.
func numbers(t *testing.T, file, arch, prefix string) map[string]uint64 {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", fmt.Sprintf(file, arch)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^\s*(`+prefix+`\w+)\s*=\s*(\w+)`).FindAllStringSubmatch(string(text), -1) {
		if n, err := strconv.ParseUint(m[2], 0, 64); err == nil {
			all[m[1]] = n
		}
	}
	if len(all) == 0 {
		t.Fatalf("no %s in the file for %s", prefix, arch)
	}
	return all
}

// The table has the same numbers as golang.org/x/sys/unix for each architecture.
func TestCallNumbers(t *testing.T) {
	byArch := map[string]map[string]uint64{}
	for _, arch := range []string{"amd64", "arm64", "arm"} {
		byArch[arch] = numbers(t, "zsysnum_linux_%s.go", arch, "SYS_")
	}
	for _, c := range calls {
		name := ""
		for n, nr := range byArch["amd64"] {
			if nr == uint64(c.amd64) {
				name = n
			}
		}
		if got := byArch["arm64"][name]; got != uint64(c.arm64) {
			t.Errorf("%s: arm64 has %d, the table %d", name, got, c.arm64)
		}
		if got := byArch["arm"][name]; got != uint64(c.arm) {
			t.Errorf("%s: arm has %d, the table %d", name, got, c.arm)
		}
	}
}

func TestOpenFlags(t *testing.T) {
	x86 := numbers(t, "zerrors_linux_%s.go", "amd64", "O_")
	for _, arch := range []string{"arm64", "arm"} {
		arm := numbers(t, "zerrors_linux_%s.go", arch, "O_")
		for _, name := range []string{"O_DIRECT", "O_DIRECTORY", "O_NOFOLLOW"} {
			if got := swapped(x86[name]|unix.O_RDWR, true); got != arm[name]|unix.O_RDWR {
				t.Errorf("%s: %#x, want %#x", name, got, arm[name])
			}
			if got := swapped(arm[name]|unix.O_CLOEXEC, false); got != x86[name]|unix.O_CLOEXEC {
				t.Errorf("%s back: %#x, want %#x", name, got, x86[name])
			}
		}
	}
}

func TestTranslate(t *testing.T) {
	args := [6]uint64{0, 0, 0x10000}
	nr, err := translate(257, &args, "amd64", "arm64")
	if err != nil || nr != 56 || args[2] != 0x4000 {
		t.Errorf("openat: %d with flags %#x, %v", nr, args[2], err)
	}
	if nr, err = translate(56, &args, "arm64", "amd64"); err != nil || nr != 257 || args[2] != 0x10000 {
		t.Errorf("openat back: %d with flags %#x, %v", nr, args[2], err)
	}
	if _, err := translate(9999, &args, "amd64", "arm64"); err == nil {
		t.Error("a call that nobody knows was translated")
	}
	if _, err := translate(0, &args, "amd64", "mips"); err == nil || !strings.Contains(err.Error(), `"mips"`) {
		t.Errorf("an architecture that nobody knows: %v", err)
	}
	if _, ok := number(0, runtime.GOARCH); !ok {
		t.Errorf("the table has no column for %s", runtime.GOARCH)
	}
}
