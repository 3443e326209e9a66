// SPDX-License-Identifier: Apache-2.0

package run

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

var update = flag.Bool("update", false, "write testdata/wrong.txt anew")

// TestOneLine checks that each wrong input produces one line that names the problem and,
// if there is one, the remedy. testdata/wrong.txt has the command lines and their output:
// "$" marks command lines of root, and "%" those of an ordinary user.
func TestOneLine(t *testing.T) {
	kit.NewSite(t)
	for _, name := range []string{"one", "two"} { // with two instances, lklctl must ask which one is meant
		kit.Start(t, kit.Lklrun("-q", "--name", name, "--", "sleep", "1000"))
		kit.WaitFor(t, "the instance "+name, kit.Limit, func() bool {
			return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "sysctl", "net.ipv4.ip_forward")).Status == 0
		})
	}
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "wrong.txt")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	n := 0
	for _, line := range kit.Lines(string(old)) {
		if prompt, command, ok := strings.Cut(line, " "); ok && (prompt == "$" || prompt == "%") {
			n++
			answer := wrong(t, prompt == "%", bin, dir, command)
			if count := strings.Count(answer, "\n"); count != 2 {
				t.Errorf("%s: %d lines instead of one and the status:\n%s", command, count, answer)
			}
			fmt.Fprintf(&got, "%s\n%s\n", line, answer)
		}
	}
	if n < 40 {
		t.Errorf("%d wrong inputs; want 40 at least", n)
	}
	if *update {
		kit.WriteFile(t, path, got.String())
	} else if got.String() != string(old) {
		t.Errorf("%s is not what lklrun says (-update writes it); now:\n%s", path, got.String())
	}
}

// wrong runs a command line and returns its output and status, without the paths of
// this machine, and without the stacks of other kernels that are built here.
func wrong(t *testing.T, user bool, bin, dir, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "PATH="+bin+":$PATH; exec 2>&1; "+command)
	if user {
		cmd = kit.AsUser(cmd, "")
	}
	cmd.Dir = dir
	r := kit.Run(t, kit.Limit, cmd)
	text := regexp.MustCompile(`\(pid \d+\)`).ReplaceAllString(r.Stdout+r.Stderr, "(pid N)")
	text = regexp.MustCompile(`linux-[\d.]+, `).ReplaceAllString(text, "")
	text = strings.NewReplacer(bin, "BIN", dir, "DIR").Replace(text)
	return fmt.Sprintf("%s[%d]\n", text, kit.ShellStatus(r))
}
