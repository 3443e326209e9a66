// SPDX-License-Identifier: Apache-2.0

package stackbuild

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestTree(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "linux.tar.xz")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ kernel, want, err string }{
		{"6.12", "", ""},
		{dir, dir, ""},
		{dir + "/./", dir, ""},
		{file, "", "not a directory; unpack it"},
		{"6.12.1", "", "neither a version such as 6.12 nor a directory"},
		{dir + "/none", "", "the directory does not exist"},
	} {
		got, err := Tree(c.kernel)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; expected %q, %q", c.kernel, got, err, c.want, c.err)
		}
		if err != nil && !errors.As(err, new(*UsageError)) {
			t.Errorf("%s: %v is no error of the user", c.kernel, err)
		}
	}
}

// TestFailure reads the output of builds that fail.
func TestFailure(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		want   string
		usage  bool
		files  int
	}{
		"the script refuses": {
			"lkl: without mptcp-idle-subflow: /linux has no net/mptcp/pm.c\nlkl: my.patch does not apply to Linux 6.12\n",
			"my.patch does not apply to Linux 6.12", true, 0,
		},
		"a file does not compile": {
			"  KERNEL  6.18.3\n  CC      net/ipv4/tcp.o\n  CC [M]  net/x/y.o\n/c/work-1/tree/arch/lkl/mm/init.c:12:9: error: implicit declaration of function 'f'\n" +
				"make[3]: *** [/c/Makefile:243: arch/lkl/mm/init.o] Error 1\n",
			"the kernel does not compile: arch/lkl/mm/init.c:12: implicit declaration of function 'f'; all output is in log", false, 2,
		},
		"make fails": {
			"make[1]: *** No rule to make target 'net/nothing.o'.  Stop.\nmake: *** [Makefile:20: all] Error 2\n",
			"the build failed: make[1]: *** No rule to make target 'net/nothing.o'.  Stop.; all output is in log", false, 0,
		},
		"nothing explains it": {"", "the build failed: exit status 1; all output is in log", false, 0},
	} {
		f := &failure{}
		files := 0
		for _, line := range strings.Split(c.output, "\n") {
			if _, file := f.read(line); file {
				files++
			}
		}
		err := f.err("log", errors.New("exit status 1"))
		if err.Error() != c.want || errors.As(err, new(*UsageError)) != c.usage || files != c.files {
			t.Errorf("%s: %v after %d files; expected %s after %d", name, err, files, c.want, c.files)
		}
	}
}

func TestInfo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "liblkl.info")
	if err := os.WriteFile(path, []byte("kernel=6.12.117\nfix=a\nfix=b\nmissing=c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := readInfo(path)
	if want := (&info{"6.12.117", []string{"a", "b"}, []string{"c"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; expected %v", got, err, want)
	}
}

// TestReplace replaces a stack, and then makes a new one.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "stack")
	for _, name := range []string{"first", "second"} {
		from := filepath.Join(dir, "new")
		if err := os.Mkdir(from, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := replace(from, to); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(from); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(to); err != nil || len(files) != 1 || files[0].Name() != name {
			t.Errorf("%v, %v; expected %s", files, err, name)
		}
	}
}
