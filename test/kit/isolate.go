// SPDX-License-Identifier: Apache-2.0

package kit

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
	rootEnv  = "LKLRUN_TEST_ROOT"  // path of the repository
)

// StateHome is the XDG_STATE_HOME of the tests and their programs.
const StateHome = "/mnt"

// The process's main thread never leaves its namespace. Other processes see its namespace
// in /proc/PID/ns. Unlike other threads, it cannot end after Netns.Do. A thread locked in
// an init function belongs to the main goroutine for ever.
func init() { runtime.LockOSThread() }

// Main is the body of a TestMain. As root it runs m in namespaces of its own; otherwise
// it runs m directly, and tests call Need to check their requirements. If before is not
// nil, it runs once outside the namespaces, to build test programs.
func Main(m *testing.M, before func(root string) error) {
	code, err := run(m, before)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kit:", err)
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
		restoreSignals()
		return m.Run(), nil
	}
	root, err := findRoot()
	if err != nil {
		return 1, err
	}
	// With PYTHONUNBUFFERED, print() of a test's program writes a line in several parts, and
	// a test can read half a line.
	if err := errors.Join(os.Setenv(rootEnv, root), os.Unsetenv("PYTHONUNBUFFERED")); err != nil {
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

// restoreSignals handles signals that were ignored at the start (by nohup, or in a
// background job of a shell script). A signal with a handler here has its default action
// after execve(2), so it ends the tests' programs as expected.
func restoreSignals() {
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// Root returns the repository's directory.
func Root() string { return os.Getenv(rootEnv) }

// Bin returns the path of a built program: in bin/, or in the directory LKLRUN_BIN, which
// has programs that were built in another way.
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
		if _, err := os.Stat(filepath.Join(d, "cmd/lklrun")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no cmd/lklrun above %s", dir)
		}
	}
}

// again runs this test binary again, in another stage.
func again(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	for _, a := range os.Args[1:] {
		// The log for the test cache is in the real /tmp, which is hidden inside. Without
		// the log, go test does not cache the result. That is correct for these tests.
		if !strings.HasPrefix(a, "-test.testlogfile") {
			cmd.Args = append(cmd.Args, a)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Files that a panic leaves (internal/diag/crash) also disappear with the namespaces.
	// The stacks of the user who runs the tests are out of sight.
	cmd.Env = append(os.Environ(), stageEnv+"="+stage, "XDG_STATE_HOME="+StateHome, "XDG_DATA_HOME="+StateHome+"/data")
	return cmd
}

// outside starts the first process of the new namespaces and waits for it.
func outside() (int, error) {
	// Pdeathsig refers to the thread that started the child (prctl(2)). This is the main
	// thread, see init.
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

// relay forwards signals that would end this process: go test's SIGQUIT on timeout, a
// terminal's SIGINT.
func relay(pid int) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	go func() {
		for s := range c {
			_ = unix.Kill(pid, s.(syscall.Signal)) // it may have ended already
		}
	}()
}

// furnish sets up the new namespaces: /proc, /sys, empty /run, /tmp, /dev/shm, /mnt, and
// lo.
func furnish() error {
	root := Root()
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// Open it now, because the new /tmp may hide it.
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
	// The first named namespace leaves a mount on /run/netns. Create it now, so that no
	// test is blamed for it.
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"netns", "add", "first"}, {"netns", "del", "first"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// detach removes our copies of the mounts below the given directories. They would be
// hidden, and would still be unmounted when the machine unmounts its own.
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
		// EINVAL and ENOENT mean that the mount has disappeared already, perhaps with
		// another one.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("detaching %s: %w", f[1], err)
		}
	}
	return nil
}

// reap starts the tests and reaps every process that ends, as the first process of a pid
// namespace must. It returns the tests' exit status.
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
