// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Process is a process that has a socket open, or has created it.
type Process struct {
	PID  int    `json:"pid"`           // process ID on the host
	Comm string `json:"comm"`          // first 15 characters of the process name
	FDs  []int  `json:"fds,omitempty"` // descriptors of the socket; empty: the process created it, and its current owner is unknown
}

// Attribute sets the processes of each socket to those that hold its carrier, even if
// another process created the socket. owners comes from the stack host. holding finds the
// processes of carriers by inode, and is called at most once.
func Attribute(sockets []Socket, owners []ctlproto.Owner, holding func(carriers []uint64) map[uint64][]Process) {
	byStack := make(map[uint64]ctlproto.Owner, len(owners))
	for _, o := range owners {
		byStack[o.StackIno] = o
	}
	var carriers []uint64
	for i := range sockets {
		if o, ok := byStack[sockets[i].Inode]; ok && sockets[i].Inode != 0 {
			carriers = append(carriers, o.CarrierIno)
		}
	}
	if len(carriers) == 0 {
		return
	}
	holders := holding(carriers)
	for i := range sockets {
		o, ok := byStack[sockets[i].Inode]
		if !ok || sockets[i].Inode == 0 {
			continue
		}
		procs := holders[o.CarrierIno]
		if len(procs) == 0 && o.PID != 0 {
			procs = []Process{{PID: int(o.PID), Comm: o.Comm}}
		}
		sockets[i].Processes = procs
	}
}

// Holding returns, by inode, the descendants of root that have a socket of this machine
// open. root is the PID of the stack host.
func Holding(root int) map[uint64][]Process {
	return holding(procstat.Root, descendants(procstat.Root, root))
}

// descendants lists the processes below root, without root; none if the host's processes
// are not visible.
func descendants(proc string, root int) []int {
	all, err := procstat.List(proc)
	if err != nil {
		return nil
	}
	return procstat.Below(all, root)
}

// holding returns, by inode, the processes among pids that have a socket open. Processes
// without access are left out: Attribute has a second source.
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
		sort.Slice(list, func(i, j int) bool { return list[i].PID < list[j].PID })
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
