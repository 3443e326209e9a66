// SPDX-License-Identifier: Apache-2.0

package stackbuild

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack"
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
		if err != nil && !errors.As(err, new(*exit.UsageError)) {
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
			"  KERNEL  6.18.3\n  CC      net/ipv4/tcp.o\n  CC [M]  net/x/y.o\n/c/work-1/tree/net/x/y.c:12:9: error: implicit declaration of function 'f'\n" +
				"make[3]: *** [/c/Makefile:243: net/x/y.o] Error 1\n",
			"the kernel does not compile: net/x/y.c:12: implicit declaration of function 'f'; all output is in log", false, 2,
		},
		"a file of the port does not compile": {
			"/c/work-1/tree/arch/lkl/mm/init.c:12:9: error: implicit declaration of function 'f'\n",
			"the kernel lacks something that lklrun's port uses: arch/lkl/mm/init.c:12: implicit declaration of function 'f'; " +
				"add the difference to asm/lkl_compat.h, or use another version; all output is in log", true, 0,
		},
		"make fails": {
			"make[1]: *** No rule to make target 'net/nothing.o'.  Stop.\nmake: *** [Makefile:20: all] Error 2\n",
			"the build failed: make[1]: *** No rule to make target 'net/nothing.o'.  Stop.; all output is in log", false, 0,
		},
		"the disk is full": {
			"/c/work-1/tree/arch/lkl/mm/init.c:12:9: fatal error: error writing to /tmp/a.s: No space left on device\nmake: *** [Makefile:20: all] Error 2\n",
			"the build failed because a disk is full: /c/work-1/tree/arch/lkl/mm/init.c:12:9: fatal error: error writing to /tmp/a.s: No space left on device; " +
				"free some space, or set XDG_CACHE_HOME, TMPDIR or --dir to directories on another disk", false, 0,
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
		if err.Error() != c.want || errors.As(err, new(*exit.UsageError)) != c.usage || files != c.files {
			t.Errorf("%s: %v after %d files; expected %s after %d", name, err, files, c.want, c.files)
		}
	}
}

func TestCheckOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "options")
	for text, want := range map[string]string{
		"# comment\n\nCONFIG_A=y\nCONFIG_B=\"x y\"\n# CONFIG_C is not set\nCONFIG_D=100\n": "",
		"CONFIG_A=y\nCONFG_B=y\n": `options:2: "CONFG_B=y"; expected CONFIG_NAME=VALUE`,
		"CONFIG_A\n":              `options:1: "CONFIG_A"; expected`,
		"CONFIG_A=m\n":            "options:1: CONFIG_A=m: a stack has no modules",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := checkOptions(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; expected %q", text, err, want)
		}
		if err != nil && !errors.As(err, new(*exit.UsageError)) {
			t.Errorf("%q: %v is no error of the user", text, err)
		}
	}
}

// TestOptionSets checks that each set is a file that a build accepts.
func TestOptionSets(t *testing.T) {
	for _, name := range OptionSets {
		if err := checkOptions(filepath.Join("..", "..", "..", "third_party", "lkl", "arch", "lkl", "configs", name)); err != nil {
			t.Error(err)
		}
	}
}

// TestCommit looks at a checkout, at a linked worktree, and at a folder below a checkout.
// It must not change the index, even if git would update it.
func TestCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		all := []string{"-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"}
		if out, err := exec.Command("git", append(all, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	expect := func(where, dir, name string, dirty bool) {
		t.Helper()
		if n, d := commit(dir); n != name || d != dirty {
			t.Errorf("%s: %q, %v; expected %q, %v", where, n, d, name, dirty)
		}
	}
	expect("not a checkout", dir, "", false)
	file := filepath.Join(dir, "sub", "file")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	git("init", "-q")
	git("add", "sub/file")
	git("commit", "-qm", "first")
	git("tag", "v7.9")
	index, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	if err != nil {
		t.Fatal(err)
	}
	write("a") // with another time, so that git would update the index
	expect("a clean checkout", dir, "v7.9", false)
	expect("a folder of a checkout", filepath.Dir(file), "", false)
	worktree := filepath.Join(t.TempDir(), "linked")
	git("worktree", "add", "-q", worktree)
	expect("a linked worktree", worktree, "v7.9", false)
	write("b")
	expect("a dirty checkout", dir, "v7.9", true)
	expect("the linked worktree", worktree, "v7.9", false)
	if now, err := os.ReadFile(filepath.Join(dir, ".git/index")); err != nil || !bytes.Equal(now, index) {
		t.Errorf("the index has changed (%v)", err)
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

// TestHides looks for stacks that would hide a new one.
func TestHides(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(first, "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := []stack.Place{{Dir: first}, {Dir: second}}
	for _, c := range []struct{ dir, name, want string }{
		{second, "old", first},
		{second, "new", ""},
		{first, "old", ""},       // is replaced
		{t.TempDir(), "old", ""}, // is found by its path only
	} {
		if got := hides(path, c.dir, c.name); got != c.want {
			t.Errorf("%s in %s: %q, expected %q", c.name, c.dir, got, c.want)
		}
	}
}

// TestClean checks that Clean deletes what builds keep, nothing else, and nothing during a build.
func TestClean(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("XDG_DATA_HOME", cache+"/data")
	dir := filepath.Join(cache, "lklrun")
	stacks, err := stack.UserDir()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "source")
	for _, file := range []string{dir + "/linux-1-2/Makefile", dir + "/work-a-b/obj/x.o", dir + "/0123456789abcdef0123/liblkl.so", dir + "/npm/x", dir + "/linux-source-7.3.tar.xz", dir + "/lock-a", other, stacks + "/.web.new/liblkl.so", stacks + "/web/liblkl.so"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, 100), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(other), dir+"/work-a-b/tree"); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(dir + "/lock-a")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, freed, err := Clean(); err == nil || freed != 0 || !strings.Contains(err.Error(), "a build uses") {
		t.Errorf("during a build: %d bytes, %v", freed, err)
	}
	lock.Close()
	if _, freed, err := Clean(); err != nil || freed != 400 {
		t.Errorf("%d bytes, %v", freed, err)
	}
	left, _ := filepath.Glob(dir + "/*")
	kept, _ := filepath.Glob(stacks + "/*")
	if len(left) != 3 || len(kept) != 1 {
		t.Errorf("left: %q, %q", left, kept)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
