// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
)

// tree identifies the processes of a run's program. A cleanup uses it after
// lklrun, lklhost and the program were killed at the same time, because the
// program's children survive that. lklhost has created their mounts for the
// program. Unlike a PID or the inode number of a namespace, the mount ID of
// their root is unique until the next boot.
type tree struct {
	Boot string `json:"boot"`
	Root uint64 `json:"root"` // mount ID of the root, from statx(2) with STATX_MNT_ID_UNIQUE
}

// rootOf returns the ID of the mount that is a process's root. It returns 0 if
// the ID is not available, as on kernels before Linux 6.8.
func rootOf(pid int) uint64 {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/root", pid), 0, unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return 0
	}
	return st.Mnt_id
}

// WriteTree records the identity of the program's processes.
func WriteTree(dir *instance.Dir, target int) error {
	t := tree{Boot: netdev.Boot(), Root: rootOf(target)}
	if t.Root == 0 || t.Root == rootOf(os.Getpid()) {
		return nil // the program uses the host's mounts
	}
	return dir.WriteJSON(instance.TreeFile, t)
}

// KillTree kills the remaining processes of a run that was killed.
func KillTree(dir *instance.Dir) error {
	data, err := os.ReadFile(dir.File(instance.TreeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the program's processes: %w", err)
	}
	var t tree
	if json.Unmarshal(data, &t) != nil || t.Boot != netdev.Boot() || t.Root == rootOf(os.Getpid()) {
		return nil // the recorded data cannot be used
	}
	for deadline := time.Now().Add(limit); ; {
		all, err := procstat.List(procstat.Root)
		if err != nil {
			return err
		}
		var left []int
		for pid := range all {
			if rootOf(pid) == t.Root {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			killMember(pid, t.Root)
		}
		if !awaitEnd(left[0], deadline) {
			return fmt.Errorf("processes %v did not exit after SIGKILL", left)
		}
	}
}

// killMember kills a process unless its PID was reused.
func killMember(pid int, root uint64) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // the process has ended
	}
	defer unix.Close(fd)
	if rootOf(pid) == root {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // fails only if the process has ended
	}
}
