// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
)

const (
	viewDir  = "/proc/sys/net"
	viewFile = "core/somaxconn" // in viewDir
)

// stackFiles are the folders and the link that the command of a run shows in place of those
// of its network namespace (csrc/target/mounts.c).
var stackFiles = []string{viewDir, "/sys/class/net", "/sys/devices/virtual/net", "/proc/net"}

// showFiles gives a container the files of its stack, read-only, as its own /proc/sys is. The
// container exists, and has not executed its command yet.
func (c commandLine) showFiles(id string) error {
	info, err := instance.Place{}.Open(id)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.options["--pid-file"])
	if err != nil {
		return fmt.Errorf("reading the process ID of the container: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("reading the process ID of the container: %w", err)
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the container's mount namespace
		result <- mountFiles(info.TargetPID, pid)
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("showing the stack's files in the container: %w", err)
	}
	return nil
}

// mountFiles mounts the stack's files, as process from sees them, for process to. It does
// nothing if the processes of this user namespace must not read them, or if from has none.
func mountFiles(from, to int) error {
	spaces := [2]int{-1, -1}
	for i, pid := range []int{from, to} {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening the mount namespace of process %d: %w", pid, err)
		}
		defer unix.Close(fd)
		spaces[i] = fd
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("preparing a thread: %w", err)
	}
	if err := unix.Setns(spaces[0], unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the mount namespace of the run: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(viewDir, &fs); err != nil || fs.Type != unix.FUSE_SUPER_MAGIC || unix.Access(viewDir+"/"+viewFile, unix.R_OK) != nil {
		return nil
	}
	trees := map[string]int{}
	for _, name := range stackFiles {
		tree, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("copying the mount of %s: %w", name, err)
		}
		defer unix.Close(tree)
		trees[name] = tree
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("making the copy of %s read-only: %w", name, err)
		}
	}
	if err := unix.Setns(spaces[1], unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the mount namespace of the container: %w", err)
	}
	for _, name := range stackFiles {
		// The container may have no /sys. Without the flag for links, /proc/net itself is covered.
		if err := unix.MoveMount(trees[name], "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mounting %s: %w", name, err)
		}
	}
	return nil
}
