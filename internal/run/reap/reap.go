// SPDX-License-Identifier: Apache-2.0

// Package reap ends the processes of a run that outlive their parents.
package reap

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/procstat"
)

// limit bounds the wait for processes after SIGKILL. A process may be stuck in
// the host's kernel.
const limit = 5 * time.Second

// Children returns the PIDs of this process's children.
func Children() (map[int]bool, error) {
	if mine, ok := listedChildren(); ok {
		return mine, nil
	}
	parents, err := procstat.List(procstat.Root)
	if err != nil {
		return nil, err
	}
	mine := map[int]bool{}
	for pid, p := range parents {
		if p.Parent == os.Getpid() {
			mine[pid] = true
		}
	}
	return mine, nil
}

// listedChildren returns the PIDs of the children without scanning all
// processes. It works only if the host's kernel lists children by thread
// (CONFIG_PROC_CHILDREN).
func listedChildren() (map[int]bool, bool) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, false
	}
	mine := map[int]bool{}
	for _, task := range tasks {
		list, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			return nil, false // a thread may have ended; scan all processes instead
		}
		for _, f := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				mine[pid] = true
			}
		}
	}
	return mine, true
}

// KillDescendants kills all descendants of this process, except the children in
// spared and their descendants. Such children may exist: a shell that became
// lklrun by exec may have had background jobs. When lklhost has ended, its
// orphans are our children.
func KillDescendants(spared map[int]bool) error {
	deadline := time.Now().Add(limit)
	for {
		reapZombies(spared)
		if mine, err := Children(); err == nil && !beyond(mine, spared) {
			return nil // without children there are no descendants
		}
		below, err := descendants(spared)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			return nil
		}
		for _, pid := range below {
			_ = unix.Kill(pid, unix.SIGKILL) // fails only if the process has already ended
		}
		if !awaitEnd(below[0], deadline) {
			return fmt.Errorf("%d processes did not exit after SIGKILL: %v", len(below), below)
		}
	}
}

// beyond reports whether all contains a PID that is not in some.
func beyond(all, some map[int]bool) bool {
	for pid := range all {
		if !some[pid] {
			return true
		}
	}
	return false
}

// awaitEnd waits until a process has ended. The process need not be our child.
// awaitEnd returns false on a timeout.
func awaitEnd(pid int, deadline time.Time) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return time.Now().Before(deadline) // the process has ended
	}
	defer unix.Close(fd)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// reapZombies reaps children that have ended.
func reapZombies(spared map[int]bool) {
	if len(spared) == 0 {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				return
			}
		}
	}
	mine, _ := Children() // if this fails, the caller's next scan reports the error
	for pid := range mine {
		if !spared[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // if the child has not ended, the next call reaps it
		}
	}
}

// descendants lists the running descendants of this process, parents before
// children. Killing in this order keeps shells silent: a shell whose child is
// killed first would print a message.
func descendants(spared map[int]bool) ([]int, error) {
	parents, err := procstat.List(procstat.Root)
	if err != nil {
		return nil, err
	}
	me := os.Getpid()
	var below []int
	depth := map[int]int{}
	for pid := range parents {
		p := pid
		// A chain cannot be longer than the number of processes. A pid
		// reused during the scan could form a cycle.
		for n := range len(parents) {
			if spared[p] {
				break
			}
			up, ok := parents[p]
			if !ok {
				break
			}
			if up.Parent == me {
				below = append(below, pid)
				depth[pid] = n
				break
			}
			p = up.Parent
		}
	}
	slices.SortFunc(below, func(a, b int) int { return depth[a] - depth[b] })
	return below, nil
}
