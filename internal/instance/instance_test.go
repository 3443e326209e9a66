// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoot(t *testing.T) {
	env := func(v string) func(string) string {
		return func(k string) string {
			if k == "XDG_RUNTIME_DIR" {
				return v
			}
			return ""
		}
	}
	for _, tc := range []struct {
		uid  int
		xdg  string
		want string
	}{
		{0, "/run/user/0", "/run/lklrun"},
		{1000, "/run/user/1000", "/run/user/1000/lklrun"},
		{1000, "", "/tmp/lklrun-1000"},
		{1000, "relative", "/tmp/lklrun-1000"},
	} {
		if got := root(tc.uid, env(tc.xdg)); got != tc.want {
			t.Errorf("root(%d, %q) = %q, want %q", tc.uid, tc.xdg, got, tc.want)
		}
	}
	for dir, want := range map[string]string{"/data/local/tmp/lklrun/run/": "/data/local/tmp/lklrun/run", "relative": "/run/lklrun"} {
		if got := root(0, func(k string) string { return map[string]string{EnvRoot: dir}[k] }); got != want {
			t.Errorf("%s=%s: %q, want %q", EnvRoot, dir, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, ok := range []string{"a", "curl-2", "A.b_c", "9"} {
		if err := CheckName(ok); err != nil {
			t.Errorf("CheckName(%q): %v", ok, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "-x", "a/b", "a b", "ü", strings.Repeat("x", MaxName+1)} {
		if CheckName(bad) == nil {
			t.Errorf("CheckName(%q) passed", bad)
		}
	}
	for in, want := range map[string]string{
		"curl": "curl", "/usr/bin/python3.11": "python3.11", "./my prog": "myprog",
		"--": "run", "/": "run", "…": "run", strings.Repeat("y", 99): strings.Repeat("y", MaxName-6),
	} {
		got := BaseName(in)
		if got != want {
			t.Errorf("BaseName(%q) = %q, want %q", in, got, want)
		}
		if err := CheckName(got); err != nil {
			t.Error(err)
		}
	}
}

func TestLife(t *testing.T) {
	base := t.TempDir()
	d, err := create(base, "one")
	if err != nil {
		t.Fatal(err)
	}
	if d.Leftover {
		t.Error("a new directory is called a leftover")
	}
	want := State{Name: "one", PID: os.Getpid(), Stack: "mptcp", Command: []string{"curl", "-s"}}
	if err := d.WriteState(&want); err != nil {
		t.Fatal(err)
	}

	_, err = create(base, "one")
	var running *RunningError
	if !errors.As(err, &running) || running.PID != os.Getpid() {
		t.Errorf("second create: %v", err)
	}
	if _, err = Take(d.Path); err != nil {
		// Our own descriptor holds the lock, as when lklhost hands it
		// over.
		t.Errorf("take with the lock inherited: %v", err)
	}

	got, err := open(base, base, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.State); diff != "" {
		t.Error(diff)
	}
	if !got.Running || got.Socket() != filepath.Join(base, "one", "ctl.sock") {
		t.Errorf("%+v", got)
	}

	two, err := create(base, "two")
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(base, base, "")
	if err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("choice among two: %v", err)
	}
	if _, err = open(base, base, "two"); err != nil {
		t.Error(err)
	}
	if err := two.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(two.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", two.Path)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err = open(base, base, "one"); err == nil {
		t.Error("a removed instance can be opened")
	}
}

// Runs that start and end concurrently under the same names must neither fail
// nor leave files behind.
func TestRace(t *testing.T) {
	base := filepath.Join(t.TempDir(), "root")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				d, err := create(base, "x")
				var running *RunningError
				if errors.As(err, &running) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if d.Leftover {
					t.Error("somebody's directory was taken for a leftover")
				}
				if err := d.WriteState(&State{Name: "x"}); err != nil {
					t.Error(err)
				}
				if err := d.Remove(); err != nil {
					t.Error(err)
				}
				if _, err := list(base); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", base, err)
	}
}

// Sweep deletes the remains of an interrupted Remove, and nothing else.
func TestSweep(t *testing.T) {
	base := t.TempDir()
	d, err := create(base, "alive")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, ".dead.1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sweep(base); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(base)
	if err != nil || len(left) != 1 || left[0].Name() != "alive" {
		t.Errorf("%v, %v", left, err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
}

// An inherited lock remains held after its creator has closed its own
// descriptor. This lets lklhost and lklrun hold it as one owner.
func TestLockInherited(t *testing.T) {
	base := t.TempDir()
	d, err := create(base, "x")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat")
	cmd.ExtraFiles = []*os.File{d.LockFD()}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.Release()
	if _, err := create(base, "x"); err == nil {
		t.Error("the lock was free though a child holds it")
	}
	if i, err := inspect(d.Path); err != nil || !i.Running {
		t.Errorf("inspect: %+v, %v", i, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if i, err := inspect(d.Path); err != nil || i.Running {
		t.Errorf("inspect after the end: %+v, %v", i, err)
	}
	again, err := create(base, "x")
	if err != nil {
		t.Fatal(err)
	}
	if !again.Leftover {
		t.Error("a leftover is not called one")
	}
	if err := again.Remove(); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	base := t.TempDir()
	if _, err := create(filepath.Join(base, strings.Repeat("d", 90)), "x"); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("long path: %v", err)
	}
	if _, err := create(filepath.Join(base, "no", "where"), "x"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing root: %v", err)
	}
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := makeRoot(open, os.Geteuid()); err == nil {
		t.Error("a root directory that others can write to was accepted")
	}
	if err := makeRoot(open, os.Geteuid()+1); err == nil {
		t.Error("somebody else's root directory was accepted")
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeRoot(file, os.Geteuid()); err == nil {
		t.Error("a file was accepted as the root directory")
	}
}

// IsRunDir decides which directories `lklrun cleanup --dir` may delete.
func TestIsRunDir(t *testing.T) {
	if !IsRunDir(filepath.Join(Root(), "x")) || IsRunDir(Root()) || IsRunDir("/etc") {
		t.Error("the place does not count")
	}
	dir := t.TempDir()
	for _, name := range []string{LockFile, JournalFile} {
		if IsRunDir(dir) {
			t.Errorf("accepted without %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !IsRunDir(dir) {
		t.Error("refused with all a run writes first")
	}
}
