// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// The expected texts are those of amd64.
func TestPrograms(t *testing.T) {
	need(t)
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	i386 := make([]byte, 52) // Elf32_Ehdr: class 32, little-endian, ET_EXEC, EM_386
	copy(i386, "\x7fELF\x01\x01\x01")
	i386[16], i386[18] = 2, 3
	for name, content := range map[string][]byte{
		"i386": i386, "script": []byte("#!/bin/sh\ntrue\n"), "broken": []byte("#!/no/such\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kit.Host.Run(t, "cp", "/bin/ls", filepath.Join(dir, "suid"))
	kit.Host.Run(t, "chmod", "4755", filepath.Join(dir, "suid"))
	kit.Host.Run(t, "cp", "/bin/ls", filepath.Join(dir, "sgid"))
	kit.Host.Run(t, "chmod", "2755", filepath.Join(dir, "sgid"))
	for _, tt := range []struct {
		command string
		user    bool
		subject string
		state   State
		text    string
	}{
		{"/bin/ls", false, "format", OK, "ELF, 64-bit, x86-64, dynamic, loaded by /lib64/ld-linux-x86-64.so.2"},
		{"ls", true, "program", OK, "/bin/ls"},
		{kit.Bin("lklrun"), false, "format", OK, "ELF, 64-bit, x86-64, static"}, // a Go program
		{dir + "/script", true, "interpreter", OK, "/bin/sh: ELF, 64-bit, "},
		{dir + "/i386", true, "execution", No, "a 32-bit program for i386; "},
		{dir + "/broken", true, "execution", No, "interpreter /no/such: no such file or directory"},
		{"no-such-program", true, "program", No, "command not found in PATH"},
		{dir + "/none", true, "program", No, "no such file or directory"},
		{"/etc/passwd", false, "program", No, "permission denied"},
		{dir + "/suid", true, "privileges", No, "/suid is set-user-ID to 0, which has no effect if an ordinary user runs lklrun (no_new_privs); run lklrun as root"},
		{dir + "/sgid", true, "privileges", Limited, "set-group-ID to 0, which has no effect: the program has no_new_privs and runs as uid "},
		{dir + "/suid", false, "privileges", OK, "set-user-ID to 0, which takes effect"},
	} {
		r, res := doctor(t, bin, tt.user, tt.command, "--not-for-doctor")
		f := r.find(t, tt.subject)
		if f.State != tt.state || !strings.Contains(f.Text, tt.text) || r.Runs != (tt.state != No) {
			t.Errorf("%s: %+v, runs: %v; want %+v", tt.command, f, r.Runs, tt)
		}
		if want := "lklrun: " + tt.command + " cannot be run: "; !r.Runs && !strings.HasPrefix(res.Stderr, want) {
			t.Errorf("%q, want %q...", res.Stderr, want)
		}
		// The doctor's prediction matches a run.
		cmd := exec.Command(filepath.Join(bin, "lklrun"), "-q", "--", tt.command, "--version")
		if tt.user {
			kit.AsUser(cmd, "")
		}
		if run := kit.Run(t, limit, cmd); (run.Status < 125 && run.Status != 2) != r.Runs {
			t.Errorf("%s: doctor says %v, and lklrun: %v", tt.command, r.Runs, run)
		}
	}
}
