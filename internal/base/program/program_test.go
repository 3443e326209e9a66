// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// file makes a file and returns its path.
func file(t *testing.T, mode os.FileMode, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// header returns the header of an ELF file without any further content.
func header(class elf.Class, machine elf.Machine, typ elf.Type) []byte {
	b := make([]byte, 64)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA], b[elf.EI_VERSION] = byte(class), byte(elf.ELFDATA2LSB), 1
	binary.LittleEndian.PutUint16(b[16:], uint16(typ))
	binary.LittleEndian.PutUint16(b[18:], uint16(machine))
	if class == elf.ELFCLASS32 {
		return b[:52]
	}
	return b
}

// wants fails unless Look returns this status for command, and an error with all words.
// Status 0 means that the command can be executed.
func wants(t *testing.T, command string, status int, words ...string) *Program {
	t.Helper()
	p, err := Look(command)
	var e *Error
	if (status == 0) != (err == nil) || err != nil && (!errors.As(err, &e) || e.Status != status || e.Command != command) {
		t.Errorf("%s: %v; want status %d", command, err, status)
		return p
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v; want %q in it", command, err, w)
		}
	}
	return p
}

func TestDynamic(t *testing.T) {
	p := wants(t, "ls", 0)
	if filepath.Base(p.Path) != "ls" || p.Format != FormatELF || p.Bits != 64 || p.Linkage != "dynamic" || !filepath.IsAbs(p.Loader) || p.Privileged() {
		t.Errorf("%+v", p)
	}
	if p = wants(t, "/bin/ls", 0); p.Path != "/bin/ls" {
		t.Errorf("%+v", p)
	}
}

func TestStatic(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module static\n", "main.go": "package main\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "static")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if p := wants(t, filepath.Join(dir, "static"), 0); p.Linkage != "static" || p.Loader != "" || p.Bits != 64 {
		t.Errorf("%+v", p)
	}
}

// loadedBy returns a 64-bit program for this machine whose program header names a loader.
func loadedBy(loader string) []byte {
	b := header(elf.ELFCLASS64, elf.EM_X86_64, elf.ET_DYN)
	if m, ok := Machine(); ok {
		binary.LittleEndian.PutUint16(b[18:], uint16(m))
	}
	binary.LittleEndian.PutUint64(b[32:], 64) // e_phoff
	binary.LittleEndian.PutUint16(b[54:], 56) // e_phentsize
	binary.LittleEndian.PutUint16(b[56:], 1)  // e_phnum
	h := make([]byte, 56)
	binary.LittleEndian.PutUint32(h, uint32(elf.PT_INTERP))
	binary.LittleEndian.PutUint64(h[8:], 64+56)
	binary.LittleEndian.PutUint64(h[32:], uint64(len(loader)+1))
	return append(append(append(b, h...), loader...), 0)
}

// A program header names a loader that does not exist, in a 64-bit and a 32-bit file.
func TestLoader(t *testing.T) {
	const name = "/lib/no-such-loader.so\x00"
	p := wants(t, file(t, 0o755, loadedBy("/lib/no-such-loader.so")), 127, "its loader /lib/no-such-loader.so does not exist")
	if p.Linkage != "dynamic" {
		t.Errorf("%+v", p)
	}
	b := header(elf.ELFCLASS32, elf.EM_386, elf.ET_DYN)
	binary.LittleEndian.PutUint32(b[28:], 52)
	binary.LittleEndian.PutUint16(b[42:], 32)
	binary.LittleEndian.PutUint16(b[44:], 1)
	h := make([]byte, 32)
	binary.LittleEndian.PutUint32(h, uint32(elf.PT_INTERP))
	binary.LittleEndian.PutUint32(h[4:], 52+32)
	binary.LittleEndian.PutUint32(h[16:], uint32(len(name)))
	if p, _ := Look(file(t, 0o755, append(append(b, h...), name...))); p.Loader != "/lib/no-such-loader.so" {
		t.Errorf("%+v", p)
	}
}

// A program of bionic needs a library of its own, and a bionic with thread-local variables
// for loaded libraries. It is at one of two places beside the loader.
func TestBionic(t *testing.T) {
	ls := wants(t, "ls", 0)
	if err := ls.CheckPreload(); err != nil || ls.PreloadLibrary() != PreloadLibrary {
		t.Errorf("%s for ls: %v", ls.PreloadLibrary(), err)
	}
	old, err := os.ReadFile(ls.Loader)
	if err != nil {
		t.Fatal(err)
	}
	// A version of glibc's symbols gets the name of Android's.
	android10 := bytes.ReplaceAll(old, []byte("GLIBC_PRIVATE\x00"), []byte("LIBC_Q\x00PRIVATE"))
	for _, tt := range []struct {
		libc    string // file
		content []byte
		want    string // "": the library can be loaded
	}{
		{"lib64/libc.so", android10, ""},
		{"lib64/bionic/libc.so", android10, ""},
		{"lib64/libc.so", old, "Android 9 or earlier"},
		{"lib64/libc.so", []byte("no ELF file"), "cannot be examined"},
		{"lib/libc.so", android10, "cannot be examined"},
	} {
		system := t.TempDir()
		for name, content := range map[string][]byte{"bin/linker64": nil, tt.libc: tt.content} {
			path := filepath.Join(system, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		p := wants(t, file(t, 0o755, loadedBy(filepath.Join(system, "bin/linker64"))), 0)
		err := p.CheckPreload()
		if p.PreloadLibrary() != PreloadLibraryBionic || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %d bytes: %s, %v; want %q", tt.libc, len(tt.content), p.PreloadLibrary(), err, tt.want)
		}
	}
}

func TestScript(t *testing.T) {
	p := wants(t, file(t, 0o755, []byte("#! /bin/sh -e\nexit 0\n")), 0)
	if p.Format != FormatScript || p.Interpreter == nil || p.Interpreter.Path != "/bin/sh" || p.Interpreter.Format != FormatELF {
		t.Errorf("%+v", p)
	}
	wants(t, file(t, 0o755, []byte("#!/no/such/interpreter\n")), 127, "interpreter /no/such/interpreter: no such file or directory")
	wants(t, file(t, 0o755, []byte("#!/etc/passwd\n")), 126, "permission denied")
	wants(t, file(t, 0o755, []byte("#!\n")), 126, "exec format error")
	// A script's own mode bits have no effect.
	if p := wants(t, file(t, os.ModeSetuid|0o755, []byte("#!/bin/sh\n")), 0); !p.SetUID || p.Privileged() {
		t.Errorf("%+v", p)
	}
	if p := wants(t, file(t, 0o755, []byte("echo no first line\n")), 0); p.Format != FormatPlain || p.Interpreter.Path != "/bin/sh" {
		t.Errorf("%+v", p)
	}
	// The script is its own interpreter.
	path := file(t, 0o755, nil)
	if err := os.WriteFile(path, []byte("#!"+path+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	wants(t, path, 126, "too many levels")
}

func TestSetUID(t *testing.T) {
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, os.ModeSetuid|os.ModeSetgid|0o755, sh)
	var vfs unix.Statfs_t
	if err := unix.Statfs(path, &vfs); err != nil {
		t.Fatal(err)
	}
	p := wants(t, path, 0)
	if !p.SetUID || !p.SetGID || p.UID != os.Geteuid() || p.NoSUID != (vfs.Flags&unix.ST_NOSUID != 0) || p.Privileged() == p.NoSUID {
		t.Errorf("%+v", p)
	}
	if os.Geteuid() != 0 {
		return
	}
	// cap_net_raw+ep as setcap(8) writes it: struct vfs_cap_data, revision 2.
	data := make([]byte, 20)
	binary.LittleEndian.PutUint32(data, 0x02000001)
	binary.LittleEndian.PutUint32(data[4:], 1<<unix.CAP_NET_RAW)
	path = file(t, 0o755, sh)
	if err := unix.Setxattr(path, "security.capability", data, 0); err != nil {
		t.Fatalf("file capabilities: %v", err)
	}
	if p := wants(t, path, 0); !p.Capabilities || p.SetUID {
		t.Errorf("%+v", p)
	}
}

func TestNotFound(t *testing.T) {
	t.Chdir(t.TempDir())
	for command, want := range map[string]int{
		"no-such-command-here": 127, "./no-such": 127, "/etc/passwd": 126, "/etc": 126, "/etc/passwd/x": 127,
	} {
		if p := wants(t, command, want); p != nil {
			t.Errorf("%s: %+v", command, p)
		}
	}
	wants(t, "no-such-command-here", 127, "command not found in PATH")
	if _, err := Look(""); err == nil || err.Error() != `"": the command is an empty string` {
		t.Errorf("an empty word: %v", err)
	}
}

func TestHandler(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"status":       "enabled\n",
		"by-name":      "enabled\ninterpreter /usr/bin/jexec\nflags: \nextension .jar\n",
		"switched-off": "disabled\ninterpreter /usr/bin/off\nflags: \noffset 0\nmagic 7f454c46\n",
		"qemu-arm":     "enabled\ninterpreter /usr/bin/qemu-arm\nflags: OCF\noffset 0\nmagic 7f454c4601010100000000000000000002002800\nmask ffffffffffffff00fffffffffffffffffeffffff\n",
		"at-4":         "enabled\ninterpreter /usr/bin/at4\nflags: \noffset 4\nmagic 6d61676963\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, head := range map[string][]byte{
		"/usr/bin/qemu-arm": header(elf.ELFCLASS32, elf.EM_ARM, elf.ET_DYN), // the mask accepts both types
		"/usr/bin/at4":      []byte("1234magic"),
		"":                  header(elf.ELFCLASS32, elf.EM_386, elf.ET_DYN),
	} {
		if got := handler(dir, head); got != want {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
	if got := handler(dir, []byte("1234mag")); got != "" {
		t.Errorf("cut: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "status"), []byte("disabled\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := handler(dir, []byte("1234magic")); got != "" {
		t.Errorf("all switched off: %q", got)
	}
}

func FuzzELF(f *testing.F) {
	f.Add(header(elf.ELFCLASS64, elf.EM_X86_64, elf.ET_DYN))
	f.Add(header(elf.ELFCLASS32, elf.EM_386, elf.ET_EXEC))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &Program{Path: "x"}
		if err := p.readELF(strings.NewReader(string(data))); err == nil && p.Bits == 0 {
			t.Errorf("%q: %+v", data, p)
		}
	})
}

func TestThroughEnv(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	script := func(name, line string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!"+line+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := "/usr/bin/env "
	for i, tt := range []struct{ line, want string }{
		{env + "sh", "sh SCRIPT a"},
		{"  /usr/bin/env \t sh  ", "sh SCRIPT a"},
		{env + "-S sh -eu", "sh -eu SCRIPT a"},
		{env + "-Ssh", "sh SCRIPT a"},
		{env + dir + "/inner", "sh " + dir + "/inner SCRIPT a"},
		// In these cases env behaves differently, or refuses the command.
		{env + "sh -e", ""},
		{env + "-i sh", ""},
		{env + "-S -i sh", ""},
		{env + "-S A=b sh", ""},
		{env + "-S sh -c 'a b'", ""},
		{env + "-S sh $A", ""},
		{env + "", ""},
		{"/bin/sh -e", ""},
	} {
		name := fmt.Sprintf("script%d", i)
		script("inner", env+"sh")
		script(name, tt.line)
		for command, path := range map[string]string{name: dir + "/" + name, dir + "/../" + filepath.Base(dir) + "/" + name: dir + "/../" + filepath.Base(dir) + "/" + name} {
			p := wants(t, command, 0)
			got, _, err := ThroughEnv([]string{command, "a"}, p)
			want := strings.ReplaceAll(tt.want, "SCRIPT", path)
			if tt.want == "" {
				want = command + " a"
			}
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s: %q, %v; want %s", tt.line, got, err, want)
			}
		}
	}
	script("none", env+"no-such-command")
	_, _, err := ThroughEnv([]string{"none"}, wants(t, "none", 0))
	if e := (*Error)(nil); !errors.As(err, &e) || e.Status != StatusNotFound {
		t.Errorf("env finds nothing: %v", err)
	}
	// A script that executes itself does not cause an endless loop.
	script("loop", env+"loop")
	if _, _, err := ThroughEnv([]string{"loop"}, wants(t, "loop", 0)); err != nil {
		t.Errorf("loop: %v", err)
	}
}

func TestShown(t *testing.T) {
	const script = NodeMark + "\"$@\" &\nexec sleep infinity"
	for _, c := range []struct{ words, want []string }{
		{[]string{"sh", "-c", script, "sh", "iperf3", "-s"}, []string{"iperf3", "-s"}},
		{[]string{"sh", "-c", script, "sh"}, []string{"sleep", "infinity"}},
		{[]string{"sh", "-c", "exec sleep 1", "sh", "x"}, []string{"sh", "-c", "exec sleep 1", "sh", "x"}},
		{[]string{"sh", "-c", script}, []string{"sh", "-c", script}}, // not one of pkg/lab
		{nil, nil},
	} {
		if got := Shown(c.words); !slices.Equal(got, c.want) {
			t.Errorf("Shown(%q) = %q, want %q", c.words, got, c.want)
		}
	}
}
