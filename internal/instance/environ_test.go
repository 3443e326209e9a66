// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The prompts of real shells show the instance, with and without the user's own files.
func TestPrompt(t *testing.T) {
	home := t.TempDir()
	// As in /etc/bash.bashrc of Debian.
	const debian = `if [ -z "${debian_chroot:-}" ] && [ -r /etc/debian_chroot ]; then debian_chroot=$(cat /etc/debian_chroot); fi
PS1='${debian_chroot:+($debian_chroot)}there> '
`
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte(debian), 0o600); err != nil {
		t.Fatal(err)
	}
	base := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=dumb", EnvName + "=other"}
	for _, c := range []struct {
		command string
		env     []string
		want    string
	}{
		{"bash -i", nil, "(lklrun:web)there> "},
		{"bash --norc -i", nil, "(lklrun:web) "},
		{"bash --norc -i", []string{"PS1=mine> "}, "(lklrun:web) mine> "},
		{"bash --norc -i", []string{"PS1=${debian_chroot:+($debian_chroot)}mine> "}, "(lklrun:web)mine> "},
		{"bash -i", []string{"debian_chroot=sid"}, "(sid)there> "},
		{"sh -i", nil, "(lklrun:web) # "},
		{"dash -i", []string{"PS1=mine> "}, "(lklrun:web) mine> "},
	} {
		words := strings.Fields(c.command)
		if _, err := exec.LookPath(words[0]); err != nil {
			t.Logf("%s is not installed", words[0])
			continue
		}
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = Environ(append(slices.Clone(base), c.env...), "web", words, true, true)
		cmd.Stdin = strings.NewReader("echo name $LKLRUN_NAME\n")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) || strings.Count(string(out), "name web") != 1 || strings.Contains(string(out), "(lklrun:web) (lklrun:web)") {
			t.Errorf("%s with %q, %v:\n%s\nwant %q", c.command, c.env, err, out, c.want)
		}
	}
}

// Other programs, and shells with a script, get only the name.
func TestEnviron(t *testing.T) {
	for _, command := range []string{"zsh", "bash -c true", "bash -lc true", "sh script", "curl"} {
		if got := Environ([]string{"A=b"}, "web", strings.Fields(command), true, false); !slices.Equal(got, []string{"A=b", "LKLRUN_NAME=web"}) {
			t.Errorf("%s: %q", command, got)
		}
	}
	if got := Environ(nil, "web", []string{"bash"}, false, false); len(got) != 1 {
		t.Errorf("without a terminal: %q", got)
	}
}
