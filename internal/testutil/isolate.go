// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	stageEnv = "LKLRUN_TEST_STAGE" // unset, "init", "test"
	rootEnv  = "LKLRUN_TEST_ROOT"  // the repository
)

// StateHome is XDG_STATE_HOME of the tests and what they start: of their own.
const StateHome = "/mnt"

// The process's main thread never leaves its namespace: it is what others see
// of us in /proc/PID/ns, and unlike other threads it cannot end after Netns.Do.
// Locked from an init function, it belongs to the main goroutine for ever.
func init() { runtime.LockOSThread() }

// Main is the body of a TestMain: it runs m in namespaces of its own when it is
// root, and as it is when not (the tests then say with Need what they lack).
// before, when not nil, runs once, still outside: for building test programs.
func Main(m *testing.M, before func(root string) error) {
	code, err := run(m, before)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testutil:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, before func(root string) error) (int, error) {
	switch os.Getenv(stageEnv) {
	case "init":
		if err := furnish(); err != nil {
			return 1, fmt.Errorf("furnishing the namespaces: %w", err)
		}
		return reap()
	case "test":
		heedSignals()
		return m.Run(), nil
	}
	root, err := findRoot()
	if err != nil {
		return 1, err
	}
	if err := os.Setenv(rootEnv, root); err != nil {
		return 1, err
	}
	if before != nil {
		if err := before(root); err != nil {
			return 1, err
		}
	}
	if os.Geteuid() != 0 {
		return m.Run(), nil
	}
	return outside()
}

// heedSignals makes signals that were ignored from the start (nohup, a job in the
// background of a shell script) end a program that a test starts, as it expects:
// what has a handler here has its default after execve(2).
func heedSignals() {
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// Root returns the repository's folder.
func Root() string { return os.Getenv(rootEnv) }

// Bin returns the path of a built program: in bin/, or in the folder that
// LKLRUN_BIN names, for programs that were built in another way.
func Bin(name string) string {
	if dir := os.Getenv("LKLRUN_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join(Root(), "bin", name)
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod above %s", dir)
		}
	}
}

// again is this test binary, once more, in another stage.
func again(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	for _, a := range os.Args[1:] {
		// The log for the test cache lies under the real /tmp, which is hidden
		// inside; without it go test does not cache, which is right here.
		if !strings.HasPrefix(a, "-test.testlogfile") {
			cmd.Args = append(cmd.Args, a)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// What a panic leaves (internal/bundle) goes with the namespaces, too.
	cmd.Env = append(os.Environ(), stageEnv+"="+stage, "XDG_STATE_HOME="+StateHome)
	return cmd
}

// outside starts the first process of the new namespaces and waits for it.
func outside() (int, error) {
	// Pdeathsig is about the thread that started the child (prctl(2)): this is
	// the main thread, see init.
	cmd := again("init")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("making namespaces: %w", err)
	}
	relay(cmd.Process.Pid)
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// relay passes on what would end us: go test's SIGQUIT at a time-out, a
// terminal's SIGINT.
func relay(pid int) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	go func() {
		for s := range c {
			_ = unix.Kill(pid, s.(syscall.Signal)) // gone: then nothing is to be told
		}
	}()
}

// furnish gives the new namespaces a /proc, a /sys and empty /run, /tmp,
// /dev/shm, /mnt, and brings lo up.
func furnish() error {
	root := Root()
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// Opened now, for /tmp may be what hides it in a moment.
	repo, err := unix.OpenTree(unix.AT_FDCWD, root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("cloning the mount of %s: %w", root, err)
	}
	defer unix.Close(repo)
	if err := detach("/run/", "/tmp/", "/dev/shm/"); err != nil {
		return err
	}
	for _, m := range []struct{ kind, on, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", StateHome, "mode=1777"},
	} {
		if err := unix.Mount(m.kind, m.on, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.on, err)
		}
	}
	if _, err := os.Stat(root); err != nil {
		if err := os.MkdirAll(root, 0o755); err != nil {
			return err
		}
		if err := unix.MoveMount(repo, "", unix.AT_FDCWD, root, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mounting %s: %w", root, err)
		}
		if err := os.Chdir(wd); err != nil {
			return err
		}
	}
	// The first namespace with a name leaves a mount on /run/netns, which is no
	// test's doing: it is there from the start.
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"netns", "add", "first"}, {"netns", "del", "first"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// detach takes our copies of the mounts below the given folders away: hidden in
// a moment, they would still go when the machine takes its own away.
func detach(below ...string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || !slices.ContainsFunc(below, func(b string) bool { return strings.HasPrefix(f[1], b) }) {
			continue
		}
		err := unix.Unmount(f[1], unix.MNT_DETACH)
		// EINVAL, ENOENT: gone with another one, or meanwhile.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("detaching %s: %w", f[1], err)
		}
	}
	return nil
}

// reap starts the tests and waits for every process that ends, as the first
// process of a pid namespace must; the tests' own exit status is the result.
func reap() (int, error) {
	cmd := again("test")
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	relay(cmd.Process.Pid)
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("waiting: %w", err)
		case pid == cmd.Process.Pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case pid == cmd.Process.Pid:
			return ws.ExitStatus(), nil
		}
	}
}
