// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) {
	kit.Main(m, func(root string) error {
		cmd := exec.Command("go", "build", "-trimpath", "-o", cgoProgram(), "./test/kit/probe")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building a dynamic Go program: %w: %s", err, out)
		}
		return nil
	})
}

// cgoProgram returns a dynamic Go program that uses the resolver of the C
// library.
func cgoProgram() string { return filepath.Join(kit.Root(), "build", "test", "probe-cgo") }

const limit = 20 * time.Second

// doctor runs the built lklrun as root or as an ordinary user, and parses its
// report.
func doctor(t *testing.T, bin string, user bool, args ...string) (Report, kit.Result) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "lklrun"), append([]string{"doctor", "-o", "json"}, args...)...)
	if user {
		kit.AsUser(cmd, "")
	}
	return read(t, cmd)
}

func read(t *testing.T, cmd *exec.Cmd) (Report, kit.Result) {
	t.Helper()
	res := kit.Run(t, limit, cmd)
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
	kit.Need(t, kit.Bin("lklrun"), kit.Bin("lklhost"), kit.Bin("stacks/mptcp/liblkl.so"))
}

// To serve the stack's files, lklrun needs a device that an ordinary user may
// not be able to open.
func TestFiles(t *testing.T) {
	need(t)
	kit.Need(t, "setfacl")
	bin, node := kit.PublicBin(t), filepath.Join(kit.Dir(t), "null")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	mode := func(m os.FileMode) {
		if err := os.Chmod(node, m); err != nil {
			t.Fatal(err)
		}
	}
	check := func(user bool, state State, text string) {
		t.Helper()
		r, _ := doctor(t, bin, user, "true")
		if f := r.find(t, "stack's files"); f.State != state || !strings.Contains(f.Text, text) || !r.Runs {
			t.Errorf("%+v, runs: %v; want %s, %q", f, r.Runs, state, text)
		}
	}
	check(false, OK, "/proc/net")
	if err := unix.Mount(node, "/dev/fuse", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/dev/fuse", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	mode(0o666)
	check(true, Limited, "mknod -m 666 /dev/fuse c 10 229")
	mode(0o600)
	check(true, Limited, "uid 54321 has no permission to open it; as root, run `setfacl -m u:54321:rw /dev/fuse`")
	kit.Host.Run(t, "setfacl", "-m", "u:54321:rw", "/dev/fuse")
	check(true, Limited, "mknod -m 666 /dev/fuse c 10 229")
}

// The report about a program that loads the kernel must match a run.
func TestPreload(t *testing.T) {
	need(t)
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	for name, content := range map[string]string{
		"script": "#!/bin/sh\ntrue\n", "plain": "true\n", "goscript": "#!" + filepath.Join(bin, "lklrun") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]string{"suid": "4755", "caps": "755", "unread": "711"} {
		kit.Host.Run(t, "cp", "/bin/ls", filepath.Join(dir, name))
		kit.Host.Run(t, "chmod", mode, filepath.Join(dir, name))
	}
	// cap_net_raw=ep, revision 2: struct vfs_cap_data, linux/capability.h.
	caps := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(filepath.Join(dir, "caps"), "security.capability", caps, 0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command string
		user    bool
		stack   string
		why     string // "": it is available
	}{
		{"/bin/ls", false, "mptcp", ""},
		{"ls", true, "vanilla", ""},
		{dir + "/script", true, "mptcp", ""},
		{dir + "/plain", false, "mptcp", ""},
		{filepath.Join(bin, "lklrun"), false, "mptcp", "lklrun is a static program"},
		{dir + "/goscript", false, "mptcp", "lklrun is a static program"},
		{cgoProgram(), false, "mptcp", "probe-cgo is a Go program"},
		{dir + "/suid", false, "mptcp", "suid gains privileges"},
		{dir + "/caps", false, "mptcp", "caps gains privileges"},
		{dir + "/unread", true, "mptcp", "unread is not readable"},
		{"/bin/ls", false, "host", "the host's own kernel"},
	} {
		r, _ := doctor(t, bin, tt.user, "--stack", tt.stack, tt.command)
		if len(r.Engines) != 3 || !r.Engines[0].Runs || r.Engines[1].Engine != "preload" || r.Engines[1].Runs != (tt.why == "") || !strings.Contains(r.Engines[1].Why, tt.why) {
			t.Errorf("%s on %s: %+v, want %q", tt.command, tt.stack, r.Engines, tt.why)
		}
		cmd := exec.Command(filepath.Join(bin, "lklrun"), "-q", "--engine", "preload", "--stack", tt.stack, "--", tt.command, "--version")
		if tt.user {
			kit.AsUser(cmd, "")
		}
		run := kit.Run(t, limit, cmd)
		if refused := run.Status == 2 && strings.Contains(run.Stderr, "--engine preload: ") && strings.Contains(run.Stderr, "--engine supervise"); refused != (tt.why != "") || !refused && run.Status != 0 {
			t.Errorf("%s: doctor says %q, and lklrun: %v", tt.command, tt.why, run)
		}
	}
}

// If the host has no user notification, lklrun loads the kernel into the
// program if possible, and otherwise traces the program.
func TestNoNotification(t *testing.T) {
	need(t)
	here := &stack.Stack{Name: "here", ABI: stack.ABINative, Dir: kit.Bin("stacks/mptcp"), Library: stack.LibraryFile}
	q := Question{
		Stack: here, Command: "/bin/ls",
		FindHost:       func() (string, error) { return "/lklhost", nil },
		FindPreload:    func(string) (string, error) { return "/lib.so", nil },
		MakeNamespaces: func(context.Context) error { return nil },

		LookNotification: func() (preflight.Notification, error) {
			return preflight.Notification{}, errors.New("no user notification")
		},
		CheckFilter: func() error { return errors.New("no filters") },
		CheckTrace:  func() error { return nil },
	}
	if r := Examine(t.Context(), q); !r.Runs || r.Engine != "preload" || r.find(t, "seccomp").State != Limited || r.find(t, "seccomp filters").State != Limited {
		t.Errorf("%+v", r)
	}
	q.FindPreload = func(string) (string, error) { return "", errors.New("no such library") }
	if r := Examine(t.Context(), q); !r.Runs || r.Engine != "trace" || r.Engines[1].Why != "no such library" {
		t.Errorf("%+v", r)
	}
	q.CheckTrace = func() error { return errors.New("no ptrace") }
	if r := Examine(t.Context(), q); r.Runs || r.Why != "no user notification" || r.Engines[2].Why != "no ptrace" {
		t.Errorf("%+v", r)
	}
}

// Ordinary users cannot create user namespaces here. The test creates a user
// namespace, sets its limit of further namespaces to 0, and runs a process
// without capabilities in it.
func TestNoUserNamespaces(t *testing.T) {
	need(t)
	kit.Need(t, "setpriv")
	bin := kit.PublicBin(t)
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
	if f := r.find(t, "user namespaces"); f.State != Limited || !strings.Contains(f.Text, "sysctl -w user.max_user_namespaces=") || !r.Runs {
		t.Errorf("without: %+v", r)
	}
	if e := r.Engines[1]; !e.Runs || !strings.Contains(e.Why, "; without a network namespace, only the seccomp filter") {
		t.Errorf("without: %+v", e)
	}
	if run := kit.Run(t, limit, inside("--engine", "preload", "true")); run.Status != 0 || !strings.Contains(run.Stderr, "cannot create a network namespace (No space left on device)") {
		t.Errorf("and lklrun with preload: %v", run)
	}
	if run := kit.Run(t, limit, inside("true")); run.Status != 0 || !strings.Contains(run.Stderr, "cannot create a network namespace (No space left on device)") {
		t.Errorf("and lklrun: %v", run)
	}
}

func TestUsage(t *testing.T) {
	need(t)
	for want, args := range map[string][]string{
		"--frobnicate":         {"--frobnicate"},
		"no stack \"nope\"":    {"--stack", "nope", "true"},
		"the COMMAND is empty": {""},
		"table or json":        {"-o", "yaml"},
	} {
		res := kit.Run(t, limit, exec.Command(kit.Bin("lklrun"), append([]string{"doctor"}, args...)...))
		if res.Status != 2 || res.Stdout != "" || strings.Count(res.Stderr, "\n") != 1 || !strings.Contains(res.Stderr, want) {
			t.Errorf("%q: %v", args, res)
		}
	}
	// The table must have the same content as the JSON.
	table := kit.OK(t, limit, exec.Command(kit.Bin("lklrun"), "doctor", "true"))
	r, _ := doctor(t, kit.Bin(""), false, "true")
	for _, f := range append(r.Host, r.Command...) {
		if !strings.Contains(table, f.Subject) || !strings.Contains(table, f.Text) {
			t.Errorf("%+v is not in\n%s", f, table)
		}
	}
}

// A problem of a stack counts only if that stack was selected.
func TestLibrary(t *testing.T) {
	here := &stack.Stack{Name: "here", ABI: stack.ABIHost}
	gone := &stack.Stack{Name: "gone", ABI: stack.ABIAuto, Dir: t.TempDir(), Library: stack.LibraryFile}
	q := Question{
		Stack: here, Stacks: []*stack.Stack{here, gone},
		FindHost:       func() (string, error) { return "/lklhost", nil },
		FindPreload:    func(string) (string, error) { return "/lib.so", nil },
		MakeNamespaces: func(context.Context) error { return nil },

		LookNotification: func() (preflight.Notification, error) { return preflight.Notification{}, nil },
		CheckFilter:      func() error { return nil },
		CheckTrace:       func() error { return nil },
	}
	if r := Examine(t.Context(), q); !r.Runs || r.find(t, "stack gone").State != Limited || r.find(t, "seccomp").State != OK {
		t.Errorf("%+v", r)
	}
	q.LookNotification = func() (preflight.Notification, error) {
		return preflight.Notification{TwoSteps: true, Interruptible: true}, nil
	}
	if f := Examine(t.Context(), q).find(t, "seccomp"); f.State != Limited || !strings.Contains(f.Text, "SECCOMP_ADDFD_FLAG_SEND") {
		t.Errorf("%+v", f)
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
