// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// TestBench measures one table once. It makes no statement about speed: it checks that every value
// was measured, and that nothing is left behind.
func TestBench(t *testing.T) {
	kit.NewSite(t)
	kit.Need(t, "iperf3", "mptcpize", "nsenter", "/usr/sbin/nginx", "pasta", "slirp4netns", "sockperf", "ss", "unshare")
	out := filepath.Join(t.TempDir(), "page.md")
	before := kit.Take(t)
	bench := func(args ...string) kit.Result {
		cmd := exec.Command(kit.Program("bench"), args...)
		cmd.Dir = kit.Root()
		return kit.Run(t, 2*time.Minute, cmd)
	}
	if r := bench("-turns", "1", "-only", "^(Start|MPTCP beside)", "-o", out); r.Status != 0 {
		t.Fatalf("status %d: %s", r.Status, r.Stderr)
	}
	page, err := os.ReadFile(out)
	if err == nil {
		err = os.Remove(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	before.Same()
	const value = ` [0-9.]+ (\(\*\*[0-9.]+\*\*\) )?±0 % \|`
	for _, want := range []string{`(?m)^\| start and end, ms \|(` + value + `){5}$`, `(?m)^\| memory, MB \|  \|(` + value + `){4}$`, `(?m)^\| send, 1 connection, Gbit/s \|(` + value + `){3}$`} {
		if !regexp.MustCompile(want).Match(page) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	for _, args := range [][]string{{"-turns", "0"}, {"-only", "("}, {"word"}, {"-wrong"}} {
		if r := bench(args...); r.Status != 2 {
			t.Errorf("%v: status %d, %s", args, r.Status, r.Stderr)
		}
	}
}
