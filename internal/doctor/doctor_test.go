// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, nil) }

const limit = 20 * time.Second

// doctor runs the built lklrun, as root or an ordinary user, and reads its
// report.
func doctor(t *testing.T, bin string, user bool, args ...string) (Report, testutil.Result) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "lklrun"), append([]string{"doctor", "-o", "json"}, args...)...)
	if user {
		testutil.AsUser(cmd, "")
	}
	return read(t, cmd)
}

func read(t *testing.T, cmd *exec.Cmd) (Report, testutil.Result) {
	t.Helper()
	res := testutil.Run(t, limit, cmd)
	var r Report
	if err := json.Unmarshal([]byte(res.Stdout), &r); err != nil {
		t.Fatalf("%q: %v: %v", cmd.Args, err, res)
	}
	want := 0
	if !r.Runs {
		want = 1
	}
	if res.Status != want || strings.Count(res.Stderr, "\n") != want || r.Why == "" || r.Runs != (r.Engine == "supervise") {
		t.Errorf("%q: %v", cmd.Args, res)
	}
	return r, res
}

// find returns the finding about subject.
func (r *Report) find(t *testing.T, subject string) Finding {
	t.Helper()
	for _, f := range append(r.Host, r.Command...) {
		if f.Subject == subject {
			return f
		}
	}
	t.Fatalf("nothing about %s: %+v", subject, r)
	return Finding{}
}

func need(t *testing.T) {
	t.Helper()
	testutil.Need(t, testutil.Bin("lklrun"), testutil.Bin("lklhost"), testutil.Bin("stacks/mptcp/liblkl.so"))
}

func TestPrograms(t *testing.T) {
	need(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the words are those of amd64")
	}
	bin, dir := testutil.PublicBin(t), testutil.Dir(t)
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
	testutil.Host.Run(t, "cp", "/bin/ls", filepath.Join(dir, "suid"))
	testutil.Host.Run(t, "chmod", "4755", filepath.Join(dir, "suid"))
	for _, tt := range []struct {
		command string
		user    bool
		subject string
		state   State
		text    string
	}{
		{"/bin/ls", false, "format", OK, "ELF, 64-bit, x86-64, dynamic, loaded by /lib64/ld-linux-x86-64.so.2"},
		{"ls", true, "program", OK, "/bin/ls"},
		{testutil.Bin("lklrun"), false, "format", OK, "ELF, 64-bit, x86-64, static"}, // a Go program
		{dir + "/script", true, "interpreter", OK, "/bin/sh: ELF, 64-bit, "},
		{dir + "/i386", true, "execution", No, "a 32-bit program for i386: "},
		{dir + "/broken", true, "execution", No, "its interpreter /no/such: no such file or directory"},
		{"no-such-program", true, "program", No, "command not found in PATH"},
		{dir + "/none", true, "program", No, "no such file or directory"},
		{"/etc/passwd", false, "program", No, "permission denied"},
		{dir + "/suid", true, "privileges", Limited, "set-user-ID to 0, which has no effect: the program gets no_new_privs and runs as uid "},
		{dir + "/suid", false, "privileges", OK, "set-user-ID to 0, which has its effect"},
	} {
		r, res := doctor(t, bin, tt.user, tt.command, "--not-for-doctor")
		f := r.find(t, tt.subject)
		if f.State != tt.state || !strings.Contains(f.Text, tt.text) || r.Runs != (tt.state != No) {
			t.Errorf("%s: %+v, runs: %v; want %+v", tt.command, f, r.Runs, tt)
		}
		if want := "lklrun: " + tt.command + " cannot be run: "; !r.Runs && !strings.HasPrefix(res.Stderr, want) {
			t.Errorf("%q, want %q...", res.Stderr, want)
		}
		// What it says is so.
		cmd := exec.Command(filepath.Join(bin, "lklrun"), "-q", "--", tt.command, "--version")
		if tt.user {
			testutil.AsUser(cmd, "")
		}
		if run := testutil.Run(t, limit, cmd); (run.Status < 125) != r.Runs {
			t.Errorf("%s: doctor says %v, and lklrun: %v", tt.command, r.Runs, run)
		}
	}
}

// A host that lets ordinary users make no user namespaces: here a user namespace
// whose own switch is off, and in it a process without capabilities.
func TestNoUserNamespaces(t *testing.T) {
	need(t)
	testutil.Need(t, "setpriv")
	bin := testutil.PublicBin(t)
	if r, _ := doctor(t, bin, true, "true"); r.find(t, "user namespaces").State != OK || !r.Runs {
		t.Fatalf("with them: %+v", r)
	}
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c",
			`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=1 --regid=1 --clear-groups "$@"`,
			"sh", filepath.Join(bin, "lklrun")}, args...)...)
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
		return cmd
	}
	r, _ := read(t, inside("doctor", "-o", "json", "true"))
	if f := r.find(t, "user namespaces"); f.State != No || !strings.Contains(f.Text, "sysctl -w user.max_user_namespaces=") || r.Runs {
		t.Errorf("without: %+v", r)
	}
	if run := testutil.Run(t, limit, inside("true")); run.Status != 2 || !strings.Contains(run.Stderr, "user.max_user_namespaces is 0") {
		t.Errorf("and lklrun: %v", run)
	}
}

func TestUsage(t *testing.T) {
	need(t)
	for want, args := range map[string][]string{
		"--frobnicate":      {"--frobnicate"},
		"no stack \"nope\"": {"--stack", "nope", "true"},
		"an empty COMMAND":  {""},
		"table or json":     {"-o", "yaml"},
	} {
		res := testutil.Run(t, limit, exec.Command(testutil.Bin("lklrun"), append([]string{"doctor"}, args...)...))
		if res.Status != 2 || res.Stdout != "" || strings.Count(res.Stderr, "\n") != 1 || !strings.Contains(res.Stderr, want) {
			t.Errorf("%q: %v", args, res)
		}
	}
	// The table says the same as the JSON.
	table := testutil.OK(t, limit, exec.Command(testutil.Bin("lklrun"), "doctor", "true"))
	r, _ := doctor(t, testutil.Bin(""), false, "true")
	for _, f := range append(r.Host, r.Command...) {
		if !strings.Contains(table, f.Subject) || !strings.Contains(table, f.Text) {
			t.Errorf("%+v is not in\n%s", f, table)
		}
	}
}

// What a stack lacks counts when it is the one that was asked for.
func TestLibrary(t *testing.T) {
	here := &stack.Stack{Name: "here", ABI: stack.ABIHost}
	gone := &stack.Stack{Name: "gone", ABI: stack.ABIAuto, Dir: t.TempDir(), Library: stack.LibraryFile}
	q := Question{
		Stack: here, Stacks: []*stack.Stack{here, gone},
		FindHost:       func() (string, error) { return "/lklhost", nil },
		MakeNamespaces: func(context.Context) error { return nil },
	}
	if r := Examine(t.Context(), q); !r.Runs || r.find(t, "stack gone").State != Limited {
		t.Errorf("%+v", r)
	}
	q.Stack = gone
	if r := Examine(t.Context(), q); r.Runs || r.find(t, "stack gone").State != No || !strings.HasPrefix(r.Why, "stack gone: ") {
		t.Errorf("%+v", r)
	}
	q.Stack, q.FindHost = here, func() (string, error) { return "", errors.New("lklhost is not there") }
	if r := Examine(t.Context(), q); r.Runs || r.find(t, "lklhost").State != No {
		t.Errorf("%+v", r)
	}
}
