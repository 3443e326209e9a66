// SPDX-License-Identifier: Apache-2.0

// Package stackbuild builds stacks from kernel sources. It calls the build script of
// lklrun's kernel library, which does the work, and adds the manifest.
package stackbuild

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/lazyregexp"
	"github.com/lklrun/lklrun/internal/stack"
)

// DefaultKernel is the version that is built by default.
const DefaultKernel = "6.12"

// OptionSets are the sets of kernel options that a name stands for. Each is a file in
// third_party/lkl/arch/lkl/configs.
var OptionSets = []string{"debug", "selftests"}

// stopLimit bounds the wait for a build that was interrupted.
const stopLimit = 10 * time.Second

// Options describe a stack to build.
type Options struct {
	Kernel  string       // version of a Debian package, or a directory
	Patches []string     // files
	Config  []string     // files with kernel options, or names in OptionSets
	Name    string       // name of the stack; empty: derived from Kernel
	Like    *stack.Stack // stack whose settings are copied
	Dir     string       // directory of stacks
	Jobs    int          // compilers at once; 0: one per CPU
	NoFixes bool         // omit lklrun's patches

	// Progress is called for each file that is compiled, and for each step and
	// warning of the build, which is not a file.
	Progress func(line string, file bool)
}

// Result is a stack that was built.
type Result struct {
	Stack *stack.Stack
	Log   string // file with the output of the build
	Took  time.Duration
}

var (
	versions = lazyregexp.New(`^[0-9]+\.[0-9]+$`)
	names    = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// Script returns the path of the build script: in the package lklrun-stack-dev, which is
// installed beside this program, or in the source tree that contains this program.
func Script() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(exe)
	installed := filepath.Join(dir, "stack-dev", "build.sh")
	for _, path := range []string{installed, filepath.Join(filepath.Dir(dir), "third_party", "lkl", "build.sh")} {
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", exit.Usagef("%s does not exist; install the package lklrun-stack-dev", installed)
}

// build is a build with checked options.
type build struct {
	Options
	script string
	dir    string // absolute path of a kernel tree; empty: a version
	log    string
}

// Build builds a stack and returns it. An interrupted or failed build leaves the previous
// stack of that name unchanged.
func Build(ctx context.Context, opts Options) (*Result, error) {
	b, err := check(opts)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	out := filepath.Join(b.Dir, "."+b.Name+".new")
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(out) }() // or the next build does
	if err := b.run(ctx, out); err != nil {
		return nil, err
	}
	s, err := b.finish(out)
	if err != nil {
		return nil, err
	}
	return &Result{Stack: s, Log: b.log, Took: time.Since(start)}, nil
}

// check completes and checks the options.
func check(opts Options) (*build, error) {
	b := &build{Options: opts}
	var err error
	if b.dir, err = Tree(b.Kernel); err != nil {
		return nil, err
	}
	if b.Name == "" {
		b.Name = "linux-" + b.Kernel
		if b.dir != "" {
			b.Name = filepath.Base(b.dir)
		}
	}
	if !names().MatchString(b.Name) {
		return nil, exit.Usagef("--name %q: expected a name of letters, digits, dots, underscores and hyphens", b.Name)
	}
	if b.Dir, err = filepath.Abs(b.Dir); err != nil {
		return nil, err
	}
	if d := hides(stack.SearchPath(), b.Dir, b.Name); d != "" {
		return nil, exit.Usagef("--name %s: %s already contains a stack of this name; choose another name", b.Name, d)
	}
	for i, file := range b.Patches {
		if b.Patches[i], err = readable(file); err != nil {
			return nil, exit.Usagef("--patch %s: %w", file, err)
		}
	}
	for i, file := range b.Config {
		if slices.Contains(OptionSets, file) {
			continue
		}
		if b.Config[i], err = readable(file); err != nil {
			return nil, exit.Usagef("--config %s: %w", file, err)
		}
		if err := checkOptions(b.Config[i]); err != nil {
			return nil, err
		}
	}
	if b.script, err = Script(); err != nil {
		return nil, err
	}
	for i, name := range b.Config {
		if slices.Contains(OptionSets, name) {
			b.Config[i] = filepath.Join(filepath.Dir(b.script), "arch", "lkl", "configs", name)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	b.log = filepath.Join(cache, "lklrun", "stack-"+b.Name+".log")
	return b, os.MkdirAll(filepath.Dir(b.log), 0o755)
}

// hides returns the directory of the search path whose stack would hide a new one of the
// same name in dir, or "".
func hides(path []stack.Place, dir, name string) string {
	at := slices.IndexFunc(path, func(p stack.Place) bool { return p.Dir == dir })
	for _, p := range path[:max(at, 0)] {
		if _, err := os.Stat(filepath.Join(p.Dir, name)); err == nil {
			return p.Dir
		}
	}
	return ""
}

// Tree returns the absolute path of a kernel tree, or "" if kernel is a version.
func Tree(kernel string) (string, error) {
	if versions().MatchString(kernel) {
		return "", nil
	}
	st, err := os.Stat(kernel)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.Contains(kernel, "/"):
		return "", exit.Usagef("--kernel %s: neither a version such as %s nor a directory", kernel, DefaultKernel)
	case errors.Is(err, fs.ErrNotExist):
		return "", exit.Usagef("--kernel %s: the directory does not exist", kernel)
	case err != nil:
		return "", exit.Usagef("--kernel %w", err)
	case !st.IsDir():
		return "", exit.Usagef("--kernel %s: not a directory; unpack it, and pass the directory that contains Kbuild", kernel)
	}
	return filepath.Abs(kernel)
}

// readable returns the absolute path of a file that can be read.
func readable(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", errors.New("not a file")
	}
	if strings.ContainsAny(file, "\n") {
		return "", errors.New("the name contains a line break")
	}
	return filepath.Abs(file)
}

var option = lazyregexp.New(`^(CONFIG_\w+=\S.*|\s*|#.*)$`)

// checkOptions checks the lines of a file with kernel options, because the kernel ignores
// lines that it does not understand. The build checks the options themselves.
func checkOptions(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return exit.Usagef("--config %w", err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case !option().MatchString(line):
			return exit.Usagef("--config %s:%d: %q; expected CONFIG_NAME=VALUE or # CONFIG_NAME is not set", file, i+1, line)
		case strings.HasPrefix(line, "CONFIG_") && strings.HasSuffix(line, "=m"):
			return exit.Usagef("--config %s:%d: %s: a stack has no modules; use =y", file, i+1, line)
		}
	}
	return nil
}

// environ is the environment of the script.
func (b *build) environ(out string) []string {
	fixes := "try"
	if b.NoFixes {
		fixes = "none"
	}
	env := append(os.Environ(), "OUT="+out, "LKL_FIXES="+fixes, "LKL_VERBOSE=1", "MAKEFLAGS=", "LC_ALL=C",
		"LKL_PATCHES="+strings.Join(b.Patches, "\n"), "LKL_CONFIG="+strings.Join(b.Config, "\n"))
	if b.Jobs > 0 {
		env = append(env, fmt.Sprintf("JOBS=%d", b.Jobs))
	}
	return append(env, kernelEnv(b.Kernel, b.dir)...)
}

// kernelEnv is the part of the environment that selects the kernel.
func kernelEnv(kernel, dir string) []string {
	if dir != "" {
		return []string{"LINUX_SOURCE=" + dir, "LKL_KERNEL="}
	}
	return []string{"LINUX_SOURCE=", "LKL_KERNEL=" + kernel}
}

// run runs the script, which writes the library to out.
func (b *build) run(ctx context.Context, out string) error {
	log, err := os.Create(b.log)
	if err != nil {
		return err
	}
	defer log.Close()
	pipe, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pipe.Close()
	cmd := exec.CommandContext(ctx, b.script)
	cmd.Env = b.environ(out)
	cmd.Stdout, cmd.Stderr = theirs, theirs
	// The compilers are in the same process group, so they end, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = stopLimit
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("starting the build: %w", err)
	}
	f := &failure{}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		warning := f.refused
		line, file := f.read(lines.Text())
		// The script's last message is the reason why it ended; it becomes the error.
		if warning != "" && (f.refused != warning || file) {
			b.report(warning, false)
			if f.refused == warning {
				f.refused = ""
			}
		}
		if line != "" {
			b.report(line, file)
		}
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return f.err(b.log, err)
	}
	return nil
}

func (b *build) report(line string, file bool) {
	if b.Progress != nil {
		b.Progress(line, file)
	}
}

// failure collects the lines that explain why a build failed.
type failure struct {
	full     string // first message about a full disk, which causes the others
	refused  string // message of the script itself, which is not a warning
	compiler string // first error of a compiler
	make     string // first error of make
}

// noSpace is the text of ENOSPC in the messages of tar, cp and the compiler.
const noSpace = "No space left on device"

var (
	compiled = lazyregexp.New(`^  (?:CC|AS|LD|AR|HOSTCC)\s+(?:\[M\]\s+)?(\S+)$`)
	wrong    = lazyregexp.New(`^(\S+?:\d+):(?:\d+:)? (?:fatal )?error: (.*)`)
)

// read takes a line of the build's output. It returns the line to report as progress.
func (f *failure) read(line string) (report string, file bool) {
	if f.full == "" && strings.Contains(line, noSpace) {
		f.full = line
	}
	if m := compiled().FindStringSubmatch(line); m != nil && strings.Contains(m[1], "/") {
		return m[1], true
	}
	if step, ok := strings.CutPrefix(line, "  "); ok && !strings.HasPrefix(step, " ") {
		if word, rest, _ := strings.Cut(step, "  "); word == "UNPACK" || word == "KERNEL" {
			return strings.ToLower(word) + " " + strings.TrimSpace(rest), false
		}
		return "", false
	}
	if message, ok := strings.CutPrefix(line, "lkl: "); ok {
		f.refused = message
		return "", false
	}
	if m := wrong().FindStringSubmatch(line); m != nil && f.compiler == "" {
		at := m[1]
		if _, rest, ok := strings.Cut(at, "/tree/"); ok { // the tree of links
			at = rest
		}
		f.compiler = at + ": " + m[2]
	}
	if strings.HasPrefix(line, "make") && strings.Contains(line, "***") && f.make == "" {
		f.make = line
	}
	return "", false
}

func (f *failure) err(log string, err error) error {
	switch {
	case f.full != "":
		return fmt.Errorf("the build failed because a disk is full: %s; free some space, or set XDG_CACHE_HOME, TMPDIR or --dir to directories on another disk", f.full)
	case strings.HasPrefix(f.compiler, "arch/lkl/"):
		return exit.Usagef("the kernel lacks something that lklrun's port uses: %s; add the difference to asm/lkl_compat.h, or use another version; all output is in %s", f.compiler, log)
	case f.compiler != "":
		return fmt.Errorf("the kernel does not compile: %s; all output is in %s", f.compiler, log)
	case f.make != "":
		return fmt.Errorf("the build failed: %s; all output is in %s", f.make, log)
	case f.refused != "":
		return exit.Usagef("%s", f.refused)
	}
	return fmt.Errorf("the build failed: %w; all output is in %s", err, log)
}

// finish writes the manifest and puts the stack in its place.
func (b *build) finish(out string) (*stack.Stack, error) {
	for _, f := range []string{"liblkl.info", "liblkl.a"} { // the archive is for programs that link it
		if err := os.Remove(filepath.Join(out, f)); err != nil {
			return nil, err
		}
	}
	s := *b.Like
	s.Name, s.ABI, s.Library, s.Dir = b.Name, stack.ABINative, stack.LibraryFile, out
	info, err := s.ReadInfo()
	if err != nil {
		return nil, err
	}
	s.Kernel, s.Summary, s.Offers = info.Kernel, "Linux "+info.Kernel, &info.Offers
	if b.NoFixes {
		s.Summary += " without lklrun's fixes"
	}
	s.Built = &stack.Built{
		Time: time.Now().UTC().Truncate(time.Second), Source: "linux-source-" + b.Kernel,
		Patches: b.Patches, Config: b.Config, Fixes: info.Fixes, Missing: info.Missing,
	}
	if b.dir != "" {
		s.Built.Source = b.dir
		s.Built.Commit, s.Built.Dirty = commit(b.dir)
		s.Summary += ", " + filepath.Base(b.dir)
	}
	for _, p := range b.Patches {
		s.Summary += " + " + filepath.Base(p)
	}
	if limit := 60; len(s.Summary) > limit { // for a line of `lklrun stack list`
		s.Summary = s.Summary[:limit-3] + "..."
	}
	data, err := json.MarshalIndent(&s, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(out, stack.ManifestFile), append(data, '\n'), 0o644); err != nil {
		return nil, err
	}
	s.Dir = filepath.Join(b.Dir, b.Name)
	if err := replace(out, s.Dir); err != nil {
		return nil, err
	}
	return &s, nil
}

// replace moves a directory to a place that may contain an older one.
func replace(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		err = os.Rename(from, to)
	}
	return err // the older one is now at from, and is removed with it
}

// commit returns the commit that a tree has checked out, and whether files under git have
// changed since. It returns "" if the tree is not the top of a git work tree. It writes
// nothing, unlike `git describe --dirty`, which updates the index.
func commit(dir string) (name string, dirty bool) {
	git := func(args ...string) (string, error) {
		// The tree may belong to another user. Building it executes its Makefiles anyway.
		all := []string{"--no-optional-locks", "-C", dir, "-c", "safe.directory=*", "-c", "core.fsmonitor=false"}
		out, err := exec.Command("git", append(all, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if prefix, err := git("rev-parse", "--show-prefix"); err != nil || prefix != "" {
		return "", false
	}
	name, err := git("describe", "--always", "--tags", "--abbrev=12")
	if err != nil {
		return "", false
	}
	changes, err := git("status", "--porcelain", "--untracked-files=no")
	return name, err == nil && changes != ""
}

// Fit checks whether a kernel tree can be built, without building it. It returns a line
// for each fact about the tree, or why it cannot be built.
func Fit(ctx context.Context, dir string) ([]string, error) {
	script, err := Script()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, script)
	cmd.Env = append(append(os.Environ(), "LKL_CHECK=1", "LKL_FIXES=try", "MAKEFLAGS="), kernelEnv("", dir)...)
	out, err := cmd.CombinedOutput()
	f := &failure{}
	var facts []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f.read(line)
		facts = append(facts, strings.TrimPrefix(line, "lkl: "))
	}
	if err != nil {
		return nil, f.err(script, err)
	}
	return facts, nil
}
