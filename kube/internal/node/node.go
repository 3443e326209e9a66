// SPDX-License-Identifier: Apache-2.0

// Package node runs lklrun on a node of Kubernetes, as the pod of a DaemonSet.
//
// The pod shares the node's PID namespace:
//
//	Run ─┬─ copies lklrun from the image to a folder of the node
//	     └─ Serve, the plug-in for containerd (package oci): the copy, in the node's
//	        mount, cgroup, IPC and UTS namespaces
//
// Run itself stays in the container, because kubectl exec and probes enter the namespaces
// of the container's first process.
//
// Serve starts each stack in a cgroup outside of the pod, so the stacks continue when the
// pod ends. They need none of the files, so the end of the pod removes these.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/kube/internal/oci"
)

const (
	// Dir is the default folder on the node.
	Dir = "/opt/lklrun"

	// link is the name of the symbolic link to the newest copy, in which the paths of
	// programs do not change with the version.
	link = "bin"

	copyPrefix = "copy-"     // of the names of copies
	readyFile  = "connected" // in a copy: containerd has accepted the plug-in

	endLimit = 20 * time.Second

	cgroups = "/sys/fs/cgroup"
	cgroup  = cgroups + "/lklrun" // of the stacks

	// The image has no other path, and lklrun executes tools of the node.
	path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// programs are the files of the image that a node needs.
var programs = []string{"lklrun", oci.Name, "lklctl", "lklhost"}

// Run copies lklrun to the folder dir of the node, and runs the copy there with the
// arguments args and the path of the copy, until ctx is done. It returns the exit status of
// the copy, which reports its errors itself.
func Run(ctx context.Context, dir string, args []string) (status int, err error) {
	if os.Getpid() == 1 {
		return 0, errors.New("this is a PID namespace of the container; the pod needs hostPID: true")
	}
	exe, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding the lklrun-oci program: %w", err)
	}
	files, err := install(filepath.Dir(exe), dir)
	if err != nil {
		return 0, fmt.Errorf("installing lklrun in %s: %w", dir, err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(files, oci.Name), append(args, files)...)
	cmd.Env = append(os.Environ(), "PATH="+path)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = endLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	started := false
	err = within(files, func() error {
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("starting %s on the node: %w", cmd.Path, err)
		}
		started = true
		return cmd.Wait() // on the thread whose end would kill the process
	})
	switch {
	case !started:
		return 0, errors.Join(err, remove(files))
	case cmd.ProcessState.Exited():
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, fmt.Errorf("the plug-in on the node: %w", err)
}

// install copies the programs and stacks from one folder to a new folder in dir, lets
// the link point to it, and removes older copies. It returns the path of the copy.
func install(from, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files, err := os.MkdirTemp(dir, copyPrefix)
	if err != nil {
		return "", err
	}
	err = fill(from, files)
	if err == nil {
		err = replaceLink(files, filepath.Join(dir, link))
	}
	if err == nil {
		err = removeOthers(files)
	}
	if err != nil {
		return "", errors.Join(err, remove(files))
	}
	return files, nil
}

// fill copies the programs and stacks to the folder files.
func fill(from, files string) error {
	if err := os.Chmod(files, 0o755); err != nil {
		return err
	}
	for _, name := range programs {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(files, name), text, 0o755); err != nil {
			return err
		}
	}
	return os.CopyFS(filepath.Join(files, "stacks"), os.DirFS(filepath.Join(from, "stacks")))
}

// replaceLink lets a symbolic link point to files, in one step.
func replaceLink(files, at string) error {
	if st, err := os.Lstat(at); err == nil && st.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("%s is not a symbolic link of lklrun; move it away or use another folder", at)
	}
	next := filepath.Join(files, ".link")
	if err := os.Symlink(filepath.Base(files), next); err != nil {
		return err
	}
	return os.Rename(next, at)
}

// removeOthers removes the copies of agents that have been killed.
func removeOthers(files string) error {
	copies, err := filepath.Glob(filepath.Join(filepath.Dir(files), copyPrefix+"*"))
	for _, c := range copies {
		if c != files {
			err = errors.Join(err, os.RemoveAll(c))
		}
	}
	return err
}

// within calls f on a thread of the node, whose first process is PID 1. The copy must be at
// the same path there. Processes that f starts are processes of the node.
func within(files string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with f
		if unix.Gettid() == os.Getpid() {
			// kubectl exec enters the namespaces of the main thread. While this goroutine
			// waits, no other one gets this thread.
			defer runtime.UnlockOSThread()
			result <- within(files, f)
			return
		}
		err := enter(files)
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

func enter(files string) error {
	var here, there unix.Stat_t
	if err := unix.Stat(files, &here); err != nil {
		return fmt.Errorf("%s: %w", files, err)
	}
	first, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return fmt.Errorf("opening PID 1: %w", err)
	}
	defer unix.Close(first)
	// Threads with a common root and working directory cannot enter a mount namespace.
	err = unix.Unshare(unix.CLONE_FS)
	if err == nil {
		err = unix.Setns(first, unix.CLONE_NEWNS|unix.CLONE_NEWCGROUP|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS)
	}
	if err != nil {
		return fmt.Errorf("entering the namespaces of PID 1: %w; the container needs the capabilities SYS_ADMIN, SYS_CHROOT and SYS_PTRACE", err)
	}
	if err := unix.Stat(files, &there); err != nil || here.Dev != there.Dev || here.Ino != there.Ino {
		return fmt.Errorf("PID 1 does not see %s; the pod needs hostPID: true, and %s of the node as a volume", files, filepath.Dir(files))
	}
	return nil
}

// Serve is the plug-in for containerd, until ctx is done. It then removes the copy from
// the node, unless pods still need it.
func Serve(ctx context.Context, files string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroups, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s is not a hierarchy of cgroup v2, which the stacks need to outlive the pod", cgroups)
	}
	if err := os.Mkdir(cgroup, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("creating the cgroup of the stacks: %w", err)
	}
	// The containers of the pod have the directory as a volume. If it were empty, a run
	// would remove it at its end, and the volume would remain empty.
	if err := os.WriteFile(mark(), nil, 0o600); err != nil {
		return fmt.Errorf("keeping the directory of the runs: %w", err)
	}
	group, err := os.Open(cgroup)
	if err != nil {
		return fmt.Errorf("opening the cgroup of the stacks: %w", err)
	}
	defer group.Close()
	ready := filepath.Join(files, readyFile)
	pods, err := oci.Agent{
		Cgroup:    group,
		Connected: func() error { return os.WriteFile(ready, nil, 0o644) },
		Lost:      func() error { return os.Remove(ready) },
	}.Run(ctx)
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		fmt.Fprintf(os.Stderr, "lklrun-oci node: %s remains, because pods use its OCI runtime: %s\n", files, strings.Join(pods, ", "))
		return nil
	}
	return uninstall(files)
}

// mark is a file that no program reads.
func mark() string { return filepath.Join(instance.Root(), ".node") }

// Ready returns an error unless containerd has accepted the plug-in of the copy to which
// the link points.
func Ready(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, link, readyFile)); err != nil {
		return errors.New("containerd has not accepted the plug-in; the log says why")
	}
	return nil
}

// uninstall removes everything from the node that no stack needs.
func uninstall(files string) error {
	err := remove(files)
	err = errors.Join(err, forget(filepath.Join(filepath.Dir(files), copyPrefix)))
	// A stack that still runs is in the cgroup.
	if rerr := unix.Rmdir(cgroup); rerr != nil && rerr != unix.EBUSY && rerr != unix.ENOENT {
		err = errors.Join(err, fmt.Errorf("removing %s: %w", cgroup, rerr))
	}
	return err
}

// forget deletes the records of ended runs whose program was in a copy.
func forget(copies string) error {
	all, err := instance.Place{}.Ended()
	for _, i := range all {
		if len(i.Command) > 0 && strings.HasPrefix(i.Command[0], copies) {
			_, ferr := instance.Place{}.Forget(i.Name)
			err = errors.Join(err, ferr)
		}
	}
	if rerr := os.Remove(mark()); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	_ = os.Remove(instance.Root()) // fails while there are runs or other records
	return err
}

// remove removes a copy, and the folder above it if it is empty then.
func remove(files string) error {
	dir := filepath.Dir(files)
	err := os.RemoveAll(files)
	if to, lerr := os.Readlink(filepath.Join(dir, link)); lerr == nil && to == filepath.Base(files) {
		err = errors.Join(err, os.Remove(filepath.Join(dir, link)))
	}
	_ = os.Remove(dir) // fails while it has other files
	return err
}
