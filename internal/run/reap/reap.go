// SPDX-License-Identifier: Apache-2.0

// Package reap ends the processes of a run that outlive their parents.
package reap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
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
	mine := map[int]bool{}
	// Usually there are none. WNOWAIT leaves those that have ended.
	if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil); errors.Is(err, unix.ECHILD) {
		return mine, nil
	}
	list, ok := childrenOf(os.Getpid())
	if !ok {
		parents, err := procstat.List(procstat.Root)
		if err != nil {
			return nil, err
		}
		for pid, p := range parents {
			if p.Parent == os.Getpid() {
				list = append(list, pid)
			}
		}
	}
	for _, pid := range list {
		mine[pid] = true
	}
	return mine, nil
}

// childrenOf returns the PIDs of a process's children without scanning all processes. It
// returns none for a process that has ended. It works only if the host's kernel lists
// children by thread (CONFIG_PROC_CHILDREN).
func childrenOf(pid int) ([]int, bool) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, errors.Is(err, fs.ErrNotExist)
	}
	var all []int
	for _, task := range tasks {
		list, err := os.ReadFile(dir + "/" + task.Name() + "/children")
		if err != nil {
			return nil, false // a thread may have ended; scan all processes instead
		}
		for _, f := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
			}
		}
	}
	return all, true
}

// KillDescendants kills all descendants of this process, except the children in
// preexisting and their descendants. Such children may exist: a shell that became
// lklrun by exec may have had background jobs. When lklhost has ended, its
// orphans are our children.
func KillDescendants(preexisting map[int]bool) error {
	deadline := time.Now().Add(limit)
	for {
		if reapZombies(preexisting) {
			return nil // without children there are no descendants
		}
		below, err := descendants(preexisting)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			return nil
		}
		for _, pid := range below {
			_ = unix.Kill(pid, unix.SIGKILL) // fails only if the process has already ended
		}
		for _, pid := range below {
			if !awaitEnd(pid, deadline) {
				return fmt.Errorf("%d processes did not exit after SIGKILL: %v", len(below), below)
			}
		}
	}
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

// reapZombies reaps children that have ended. It reports whether no others are left.
func reapZombies(preexisting map[int]bool) bool {
	if len(preexisting) == 0 {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				return errors.Is(err, unix.ECHILD)
			}
		}
	}
	mine, err := Children() // if this fails, the caller's next scan reports the error
	none := err == nil
	for pid := range mine {
		if !preexisting[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // if the child has not ended, the next call reaps it
			none = false
		}
	}
	return none
}

// descendants lists the running descendants of this process, parents before
// children. Killing in this order keeps shells silent: a shell whose child is
// killed first would print a message.
func descendants(preexisting map[int]bool) ([]int, error) {
	if below := walk(preexisting); len(below) > 0 {
		return below, nil
	}
	return scan(preexisting)
}

// walk is like descendants. It reads only the processes below this one, and may miss some
// while processes end. It returns none if the kernel does not list children.
func walk(preexisting map[int]bool) []int {
	below, ok := childrenOf(os.Getpid())
	below = slices.DeleteFunc(below, func(pid int) bool { return preexisting[pid] })
	for i := 0; ok && i < len(below); i++ {
		var more []int
		more, ok = childrenOf(below[i])
		below = append(below, more...)
	}
	if !ok {
		return nil
	}
	return below
}

// scan is like descendants. It reads all processes of the host.
func scan(preexisting map[int]bool) ([]int, error) {
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
			if preexisting[p] {
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
	sort.Slice(below, func(i, j int) bool { return depth[below[i]] < depth[below[j]] })
	return below, nil
}
