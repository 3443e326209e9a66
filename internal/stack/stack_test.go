// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The manifests of this repository pass the strict checks and are complete.
func TestOwnManifests(t *testing.T) {
	all, err := List([]string{"../../stacks"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if s.Summary == "" || len(s.Summary) > 60 {
			t.Errorf("%s: summary %q; expected 1 to 60 characters, for a line of `lklrun stack list`", s.Name, s.Summary)
		}
		if (s.ABI == ABIHost) != (s.LibraryPath() == "") {
			t.Errorf("%s: abi %s, library %q", s.Name, s.ABI, s.LibraryPath())
		}
	}
	if got := strings.Join(names, " "); got != "bbr host mptcp vanilla" {
		t.Errorf("stacks: %s", got)
	}
	s, err := Find(Default, []string{"../../stacks"})
	if err != nil || !s.MPTCP {
		t.Errorf("default stack: %+v, %v", s, err)
	}
}

func TestFind(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, filepath.Join(a, "x", "stack.json"), `{"summary":"first","mem":"128M","sysctls":{"b.c":"2","a.b":"1"}}`)
	write(t, filepath.Join(b, "x", "stack.json"), `{"summary":"second"}`)
	write(t, filepath.Join(b, "y", "stack.json"), `{"summary":"y","mptcp":true,"library":"/lib/z.so"}`)
	write(t, filepath.Join(b, "bare", "liblkl.so"), "no ELF")
	write(t, filepath.Join(b, "file"), "")
	dirs := []string{a, filepath.Join(a, "nowhere"), b}

	s, err := Find("x", dirs)
	if err != nil || s.Summary != "first" || s.Name != "x" || s.MemBytes() != 128<<20 || s.ABI != ABIAuto {
		t.Errorf("x: %+v, %v", s, err)
	}
	if k := s.SortedSysctls(); len(k) != 2 || k[0].Name != "a.b" {
		t.Errorf("sysctls: %v", k)
	}
	if got := s.LibraryPath(); got != filepath.Join(a, "x", "liblkl.so") {
		t.Errorf("library: %s", got)
	}
	if s, err = Find("y", dirs); err != nil || s.LibraryPath() != "/lib/z.so" {
		t.Errorf("y: %+v, %v", s, err)
	}
	_, err = Find("z", dirs)
	if err == nil || !strings.Contains(err.Error(), `no stack "z"; there are x, y (looked in `+a) {
		t.Errorf("z: %v", err)
	}
	if _, err = Find("lkl-4.9", dirs); err == nil || !strings.Contains(err.Error(), "`make lkl-4.9`") {
		t.Errorf("a stack that is not built: %v", err)
	}
	if _, err = Find("file", dirs); err == nil {
		t.Error("a file was taken for a stack")
	}
	s, err = Find(filepath.Join(b, "bare"), nil)
	if err != nil || s.Name != "bare" {
		t.Errorf("bare: %+v, %v", s, err)
	}
	if err := s.CheckLibrary(); err == nil || !strings.Contains(err.Error(), "is not a shared library") {
		t.Errorf("bare library: %v", err)
	}
	if s, err = Find(filepath.Join(b, "bare", "liblkl.so"), nil); err != nil || s.LibraryPath() != filepath.Join(b, "bare", "liblkl.so") {
		t.Errorf("library by path: %+v, %v", s, err)
	}
	if _, err = Find(filepath.Join(b, "nothing"), nil); err == nil {
		t.Error("a missing path was accepted")
	}
	if _, err = Find(a, nil); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("folder without anything: %v", err)
	}
}

func TestCheckLibrary(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &Stack{Name: "s", Dir: filepath.Dir(exe), Library: filepath.Base(exe), ABI: ABIAuto}
	if err := s.CheckLibrary(); err == nil && !strings.Contains(exe, ".so") {
		// A position-dependent test binary is ET_EXEC.
		t.Error("a program was accepted as a library")
	}
	s.Library = "none.so"
	if err := s.CheckLibrary(); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("missing library: %v", err)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"name":"x","abi":"native","mem":"64M","sysctls":{"net.core.default_qdisc":"fq"}}`))
	f.Add([]byte(`{"abi":"none"}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data, "/x")
		if err != nil {
			return
		}
		if s.Name == "" || s.ABI == "" {
			t.Fatalf("%q: %+v", data, s)
		}
		s.MemBytes()
		s.SortedSysctls()
	})
}
