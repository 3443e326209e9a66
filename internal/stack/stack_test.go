// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"os"
	"path/filepath"
	"reflect"
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
	all, err := List([]Place{{Dir: "../../stacks"}})
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
	s, err := Find(Default, []Place{{Dir: "../../stacks"}})
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
	dirs := []Place{{a, OriginProject}, {filepath.Join(a, "nowhere"), OriginUser}, {b, OriginSystem}}

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

// TestShadows puts stacks of the same names into all directories of the search path.
func TestShadows(t *testing.T) {
	project, more, data, home := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv(EnvPath, project+":"+more)
	t.Setenv("XDG_DATA_HOME", data)
	t.Setenv("HOME", home)
	t.Setenv("SUDO_UID", "")
	places := SearchPath()
	var origins []string
	for _, p := range places {
		origins = append(origins, p.Origin)
	}
	if got := strings.Join(origins, " "); got != "project project user system lklrun" || places[2].Dir != filepath.Join(data, "lklrun/stacks") || places[3].Dir != SystemDir {
		t.Errorf("search path: %v", places)
	}
	places = places[:3]
	for i, p := range places {
		write(t, filepath.Join(p.Dir, "all", ManifestFile), `{"summary":"all"}`)
		if i > 0 {
			write(t, filepath.Join(p.Dir, "later", ManifestFile), `{"summary":"later"}`)
		}
	}
	write(t, filepath.Join(places[2].Dir, "own", ManifestFile), `{"summary":"own"}`)
	write(t, filepath.Join(places[2].Dir, ".own.new", ManifestFile), `{"summary":"being built"}`)
	write(t, filepath.Join(places[0].Dir, "broken", ManifestFile), `{`)
	write(t, filepath.Join(places[2].Dir, "broken", ManifestFile), `{"summary":"works"}`)

	describe := func(all []*Stack) string {
		var words []string
		for _, s := range all {
			word := s.Name + ":" + s.Origin
			if s.Shadowed {
				word = "(" + word + ")"
			}
			words = append(words, word)
		}
		return strings.Join(words, " ")
	}
	all, err := ListAll(append(places, Place{project, OriginLklrun})) // the same directory again
	if got := describe(all); got != "all:project (all:project) (all:user) (broken:user) later:project (later:user) own:user" {
		t.Errorf("all stacks: %s", got)
	}
	if err == nil || !strings.Contains(err.Error(), filepath.Join(project, "broken")) {
		t.Errorf("the broken manifest: %v", err)
	}
	some, _ := List(places)
	if got := describe(some); got != "all:project later:project own:user" {
		t.Errorf("stacks by name: %s", got)
	}
	// --stack takes the first one, and does not silently take the next if it is broken.
	for name, dir := range map[string]string{"all": project, "later": more, "own": places[2].Dir} {
		if s, err := Find(name, places); err != nil || s.Dir != filepath.Join(dir, name) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if s, err := Find("broken", places); err == nil {
		t.Errorf("broken: %+v", s)
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

func TestParseInfo(t *testing.T) {
	got := parseInfo("kernel=6.12.117\nfix=a\nfix=b\nmissing=c\ncongestion=bbr\nscheduler=default\nqdisc=fq\nlater=x\n")
	want := &Info{
		Kernel: "6.12.117", Fixes: []string{"a", "b"}, Missing: []string{"c"},
		Offers: Offers{Congestion: []string{"bbr"}, Schedulers: []string{"default"}, Qdiscs: []string{"fq"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v; expected %+v", got, want)
	}
	if got := parseInfo(""); !reflect.DeepEqual(got, &Info{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
