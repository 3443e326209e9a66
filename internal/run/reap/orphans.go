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

// tree identifies the processes of a run's program, for a cleanup after lklrun,
// lklhost and the program were killed at once. The program's children survive
// that. They are in mounts that lklhost made for the program. The mount ID of
// their root is unique until the next boot, unlike a pid or the inode number of
// a namespace.
type tree struct {
	Boot string `json:"boot"`
	Root uint64 `json:"root"` // statx(2), STATX_MNT_ID_UNIQUE
}

// rootOf returns the ID of the mount that is a process's root. It returns 0 if
// that is not available, as on a kernel before Linux 6.8.
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
		return nil // the mounts are the host's
	}
	return dir.WriteJSON(instance.TreeFile, t)
}

// KillTree kills the remaining processes of a killed run.
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
		return nil // not usable
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

// killMember kills a process if its pid has not been reused.
func killMember(pid int, root uint64) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if rootOf(pid) == root {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // fails only if it has ended
	}
}
