// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/procstat"
)

// reapLimit bounds the wait for processes that were sent SIGKILL: one may be
// stuck in the host's kernel.
const reapLimit = 5 * time.Second

// children lists the children of this process.
func children() (map[int]bool, error) {
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

// listedChildren does it without looking at every process of the machine, where
// the host's kernel lists children by thread (CONFIG_PROC_CHILDREN).
func listedChildren() (map[int]bool, bool) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, false
	}
	mine := map[int]bool{}
	for _, task := range tasks {
		list, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			return nil, false // also when a thread ended: the slow way then
		}
		for _, f := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				mine[pid] = true
			}
		}
	}
	return mine, true
}

// killDescendants ends every process below this one except spared children and
// what is below them (a shell may have had background jobs when it became
// lklrun by exec). With lklhost gone its orphans are ours.
func killDescendants(spared map[int]bool) error {
	deadline := time.Now().Add(reapLimit)
	for {
		reapZombies(spared)
		if mine, err := children(); err == nil && !beyond(mine, spared) {
			return nil // and so nobody is below
		}
		below, err := descendants(spared)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			return nil
		}
		for _, pid := range below {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already: fine
		}
		if !awaitEnd(below[0], deadline) {
			return fmt.Errorf("%d processes do not end on SIGKILL: %v", len(below), below)
		}
	}
}

// beyond tells whether all has somebody who is not in some.
func beyond(all, some map[int]bool) bool {
	for pid := range all {
		if !some[pid] {
			return true
		}
	}
	return false
}

// awaitEnd waits for the end of a process, ours or not; false: not in time.
func awaitEnd(pid int, deadline time.Time) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return time.Now().Before(deadline) // gone
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

// reapZombies collects children that have ended.
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
	mine, _ := children() // an error shows in the caller's next look
	for pid := range mine {
		if !spared[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // not yet: next time
		}
	}
}

// descendants lists the processes below this one that still run, parents before
// their children: a shell that sees its child killed would still say so.
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
		// A chain cannot be longer than there are processes; pids that were
		// reused while we looked could make a circle.
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
