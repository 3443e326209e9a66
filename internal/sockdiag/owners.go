// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/ctlproto"
)

// Process is a process that has a socket, or made it.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	// FDs are the process's descriptors of the socket; empty: it made the
	// socket, but who holds it now cannot be seen.
	FDs []int `json:"fds,omitempty"`
}

// procRoot is where the host's processes are seen.
const procRoot = "/proc"

// Attribute tells each socket's processes: those below the process root (the
// stack host) that hold the carrier which stands for the socket, whoever made
// it. owners comes from the stack host.
func Attribute(sockets []Socket, owners []ctlproto.Owner, root int) {
	byStack := make(map[uint64]ctlproto.Owner, len(owners))
	for _, o := range owners {
		byStack[o.StackIno] = o
	}
	var holders map[uint64][]Process
	for i := range sockets {
		o, ok := byStack[sockets[i].Inode]
		if !ok || sockets[i].Inode == 0 {
			continue
		}
		if holders == nil {
			holders = holding(procRoot, descendants(procRoot, root))
		}
		procs := holders[o.CarrierIno]
		if len(procs) == 0 && o.PID != 0 {
			procs = []Process{{PID: int(o.PID), Comm: o.Comm}}
		}
		sockets[i].Processes = procs
	}
}

// descendants lists the processes below root, without root.
func descendants(proc string, root int) []int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob(proc + "/[0-9]*") // a constant pattern
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if ppid, ok := parent(dir); ok {
			children[ppid] = append(children[ppid], pid)
		}
	}
	var all []int
	for next := children[root]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, children[next[0]]...)
	}
	slices.Sort(all)
	return all
}

// parent reads the parent from /proc/PID/stat: the second field behind the
// name, which itself may hold blanks and parentheses (proc(5)).
func parent(dir string) (int, bool) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, false // ended meanwhile
	}
	i := strings.LastIndexByte(string(stat), ')')
	fields := strings.Fields(string(stat[i+1:]))
	if i < 0 || len(fields) < 2 {
		return 0, false
	}
	ppid, err := strconv.Atoi(fields[1])
	return ppid, err == nil
}

// holding returns, by inode, the processes among pids that have a socket open.
// What must not be seen is left out: Attribute has a second source.
func holding(proc string, pids []int) map[uint64][]Process {
	all := map[uint64][]Process{}
	for _, pid := range pids {
		dir := fmt.Sprintf("%s/%d", proc, pid)
		entries, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(dir + "/comm")
		if err != nil {
			continue
		}
		fds := map[uint64][]int{}
		for _, e := range entries {
			link, err := os.Readlink(dir + "/fd/" + e.Name())
			if err != nil {
				continue
			}
			ino, ok := socketInode(link)
			fd, err := strconv.Atoi(e.Name())
			if !ok || err != nil {
				continue
			}
			fds[ino] = append(fds[ino], fd)
		}
		for ino, list := range fds {
			slices.Sort(list)
			all[ino] = append(all[ino], Process{PID: pid, Comm: strings.TrimSuffix(string(comm), "\n"), FDs: list})
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	}
	return all
}

// socketInode parses "socket:[123]".
func socketInode(link string) (uint64, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, "]")
	if !ok {
		return 0, false
	}
	ino, err := strconv.ParseUint(s, 10, 64)
	return ino, err == nil
}
