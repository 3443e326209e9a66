// SPDX-License-Identifier: Apache-2.0

// Package procstat reads the host's processes from /proc/PID/stat (proc_pid_stat(5)):
// their parents, and the CPU time of each.
package procstat

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Root is the path of the host's /proc.
const Root = "/proc"

// Process is the content of a /proc/PID/stat.
type Process struct {
	Name    string
	Parent  int
	Stopped bool // by a signal, such as SIGSTOP or that of Ctrl-Z
	// CPU is the time that all threads have used in user and system mode. Its
	// resolution is one clock tick, 10 ms. CPUKnown is false if the line is too
	// short.
	CPU      time.Duration
	CPUKnown bool
	// Start is the start time in clock ticks after the boot. PID and start time
	// together identify a process.
	Start uint64
}

// Tick is 1/USER_HZ. USER_HZ is 100 on every architecture that Go supports
// (include/asm-generic/param.h).
const Tick = time.Second / 100

// List reads the processes in proc and returns them by PID. It omits processes that end
// while it reads.
func List(proc string) (map[int]Process, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	all := map[int]Process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := Read(proc, pid); err == nil {
			all[pid] = p
		}
	}
	return all, nil
}

// Read reads one process in proc. It fails if the process has ended.
func Read(proc string, pid int) (Process, error) {
	line, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", proc, pid))
	if err != nil {
		return Process{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	p, ok := Parse(string(line))
	if !ok {
		return Process{}, fmt.Errorf("reading process %d: %q is not a line of /proc/PID/stat", pid, line)
	}
	return p, nil
}

// Parse parses a line of /proc/PID/stat. The command in the second field may contain
// blanks, parentheses and newlines.
func Parse(line string) (p Process, ok bool) {
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	f := strings.Fields(line[to+1:]) // f[0] is the third field of the line
	if from < 0 || to < from || len(f) < 2 {
		return Process{}, false
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return Process{}, false
	}
	p.Name, p.Parent, p.Stopped = line[from+1:to], parent, f[0] == "T"
	const utime, stime, starttime = 14 - 3, 15 - 3, 22 - 3
	if len(f) <= starttime {
		return p, true
	}
	user, err1 := strconv.ParseUint(f[utime], 10, 64)
	system, err2 := strconv.ParseUint(f[stime], 10, 64)
	start, err3 := strconv.ParseUint(f[starttime], 10, 64)
	if err1 == nil && err2 == nil && err3 == nil {
		p.CPU, p.CPUKnown, p.Start = time.Duration(user+system)*Tick, true, start
	}
	return p, true
}

// Below returns the PIDs of all descendants of root, sorted, without root itself.
func Below(all map[int]Process, root int) []int {
	children := map[int][]int{}
	for pid, p := range all {
		children[p.Parent] = append(children[p.Parent], pid)
	}
	var below []int
	for next := children[root]; len(next) > 0; next = next[1:] {
		below = append(below, next[0])
		next = append(next, children[next[0]]...)
	}
	slices.Sort(below)
	return below
}
