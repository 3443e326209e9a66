// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// lklrun runs a command on the stack "host". It uses the real lklrun and
// lklhost, and the host's kernel instead of a library.
func lklrun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	kit.Need(t, kit.Bin("lklrun"), kit.Bin("lklhost"))
	return exec.Command(kit.Bin("lklrun"), append([]string{"--stack", "host"}, args...)...)
}

func TestHostStatus(t *testing.T) {
	before := kit.Take(t)
	for _, tc := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"--", "sh", "-c", "exit 9"}, 9, ""},
		{[]string{"--", "stacks"}, 127, "lklrun: stacks: command not found in PATH\n"},
		{[]string{"/etc"}, 126, "lklrun: /etc: is a directory\n"},
		{[]string{"--if", "user", "true"}, 2, "lklrun: --if \"user\": the stack is the host's own kernel, with the host's own interfaces; remove --if, or choose another --stack\n"},
	} {
		r := kit.Run(t, limit, lklrun(t, tc.args...))
		if r.Status != tc.status || r.Stderr != tc.stderr {
			t.Errorf("%q: %v", tc.args, r)
		}
	}
	before.Same()
}

// The target gets a passed descriptor under its number, even if os/exec would
// use that number for one of lklrun's own descriptors. The target does not get
// sockets of the host's network.
func TestDescriptors(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	cmd := lklrun(t, "--", "sh", "-c", "cat <&3; cat <&5; test -e /proc/self/fd/4; echo $?")
	for i, text := range []string{"three ", "", "five "} {
		if text == "" {
			cmd.ExtraFiles = append(cmd.ExtraFiles, socket)
			continue
		}
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if r := kit.Run(t, limit, cmd); r.Stdout != "three five 1\n" || r.Stderr != "" {
		t.Errorf("%v", r)
	}
}
