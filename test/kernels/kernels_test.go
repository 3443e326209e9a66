// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestLinux612 tests the version of lklrun's own stacks.
func TestLinux612(t *testing.T) { testKernel(t, "6.12", "mptcp") }

// TestLinux61 tests the oldest version (make stack-linux KERNEL=6.1).
func TestLinux61(t *testing.T) { testKernel(t, "6.1", "linux-6.1") }

// TestLinuxNewest tests the newest version that is built (make stack-linux KERNEL=newest).
func TestLinuxNewest(t *testing.T) {
	version := newest(t)
	if version == "" {
		kit.Need(t, kit.Bin("stacks/linux-newest/liblkl.so"))
	}
	testKernel(t, version, "linux-"+version)
}

// newest returns the newest version after 6.12 of which there is a stack, or "".
func newest(t *testing.T) string {
	stacks, err := filepath.Glob(kit.Bin("stacks/linux-*"))
	kit.Must(t, err)
	best, name := []int{6, 12}, ""
	for _, dir := range stacks {
		version := strings.TrimPrefix(filepath.Base(dir), "linux-")
		if v := numbers(version); slices.Compare(v, best) > 0 {
			best, name = v, version
		}
	}
	return name
}

// numbers splits a version such as 7.3; nil for any other text.
func numbers(version string) (v []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		v = append(v, n)
	}
	return v
}

// A kernel is a stack of one version, by one engine.
type kernel struct {
	version, stack, engine string
}

func testKernel(t *testing.T, version, stack string) {
	t.Parallel()
	kit.Need(t, filepath.Join(kit.Bin("stacks"), stack, "liblkl.so"))
	t.Run("fixes", func(t *testing.T) { fixes(t, version, stack) })
	for _, engine := range []string{"supervise", "preload"} {
		k := kernel{version, stack, engine}
		for name, test := range map[string]func(*testing.T, kernel){
			"curl": curl, "nginx": nginx, "redis": redis, "static": static, "paths": paths, "fallback": fallback, "loopback": loopback,
		} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, k)
			})
		}
	}
}

// fixes checks that a stack is of the right version, and has all fixes for it. Point
// releases of Linux take over fixes, or change the code around them.
func fixes(t *testing.T, version, stack string) {
	var facts struct{ Kernel string }
	text := kit.OK(t, kit.Limit, kit.Lklrun("stack", "check", stack, "-o", "json"))
	kit.Must(t, json.Unmarshal([]byte(text), &facts))
	t.Logf("Linux %s", facts.Kernel)
	if !strings.HasPrefix(facts.Kernel, version+".") {
		t.Errorf("the stack %s is Linux %s", stack, facts.Kernel)
	}
	var manifest struct {
		Built *struct{ Fixes, Missing []string }
	}
	text = kit.OK(t, kit.Limit, kit.Lklrun("stack", "show", stack, "-o", "json"))
	kit.Must(t, json.Unmarshal([]byte(text), &manifest))
	series, err := os.ReadFile(filepath.Join(kit.Root(), "third_party/lkl/patches", version, "series"))
	if manifest.Built == nil || os.IsNotExist(err) {
		return // by make stack, which refuses a kernel that the fixes do not fit; or a version without fixes
	}
	kit.Must(t, err)
	var want []string
	for _, line := range kit.Lines(string(series)) {
		if !strings.HasPrefix(line, "#") {
			want = append(want, strings.TrimSuffix(filepath.Base(line), ".patch"))
		}
	}
	if !slices.Equal(manifest.Built.Fixes, want) || manifest.Built.Missing != nil {
		t.Errorf("the stack has the fixes %v, and lacks %v; want %v", manifest.Built.Fixes, manifest.Built.Missing, want)
	}
}
