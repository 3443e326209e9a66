// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"os"

	"github.com/lklrun/lklrun/internal/ask"
	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/procstat"
	"github.com/lklrun/lklrun/internal/sockdiag"
)

const (
	// heldMost bounds the answer about holders, and processMost those told of one
	// socket: an answer must fit into a frame.
	heldMost    = ctlproto.CTL_ASK_MAX / 2
	processMost = 64
	fdMost      = 64 // descriptors of a process
	// processSize is about what a process takes as JSON, and a descriptor of its.
	processSize, fdSize = 64, 8
	// usedMost is how many processes are told of with their CPU time.
	usedMost = 500
)

// askHolders answers whose the sockets are that stand for the stack's.
func (r *run) askHolders(_ context.Context, of ask.Carriers, _ *os.File) (ask.Held, error) {
	all := sockdiag.Holding(r.state.HostPID)
	held := ask.Held{Processes: [][]sockdiag.Process{}}
	size := 0
	for _, inode := range of.Inodes {
		procs := all[inode]
		procs = procs[:min(len(procs), processMost)]
		size += processSize
		for i := range procs {
			p := &procs[i]
			p.FDs = p.FDs[:min(len(p.FDs), fdMost)]
			size += processSize + fdSize*len(p.FDs)
		}
		if size > heldMost && len(held.Processes) > 0 {
			break
		}
		held.Processes = append(held.Processes, procs)
	}
	return held, nil
}

// askUsage answers what lklhost and the processes below it have used of the CPU.
func (r *run) askUsage(context.Context, struct{}, *os.File) (ask.Used, error) {
	all, err := procstat.List(procstat.Root)
	if err != nil {
		return ask.Used{}, err
	}
	host := r.state.HostPID
	used := ask.Used{Processes: map[int]procstat.Process{}}
	if p, ok := all[host]; ok {
		used.Processes[host] = p
	}
	for _, pid := range procstat.Below(all, host) {
		if len(used.Processes) == usedMost {
			break
		}
		used.Processes[pid] = all[pid]
	}
	return used, nil
}
