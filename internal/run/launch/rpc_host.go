// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"os"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

const (
	// heldMost bounds the size of the answer about holders, and processMost
	// bounds the number of processes listed for one socket. The answer must
	// fit into one frame.
	heldMost    = ctlproto.CTL_ASK_MAX / 2
	processMost = 64
	fdMost      = 64 // maximum number of descriptors listed for a process
	// processSize and fdSize estimate the JSON size of a process and of one
	// descriptor.
	processSize, fdSize = 64, 8
	// usedMost is the maximum number of processes in the answer about CPU
	// time.
	usedMost = 500
)

// processes answers questions about lklhost and its descendants.
type processes struct{ host int } // PID of lklhost

// holders lists the processes that have the carrier sockets of the stack's
// sockets open.
func (p processes) holders(_ context.Context, of rpc.Carriers, _ *os.File) (rpc.Held, error) {
	all := sockdiag.Holding(p.host)
	held := rpc.Held{Processes: [][]sockdiag.Process{}}
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

// usage returns the CPU time used by lklhost and its descendants.
func (p processes) usage(context.Context, struct{}, *os.File) (rpc.Used, error) {
	all, err := procstat.List(procstat.Root)
	if err != nil {
		return rpc.Used{}, err
	}
	used := rpc.Used{Processes: map[int]procstat.Process{}}
	if x, ok := all[p.host]; ok {
		used.Processes[p.host] = x
	}
	for _, pid := range procstat.Below(all, p.host) {
		if len(used.Processes) == usedMost {
			break
		}
		used.Processes[pid] = all[pid]
	}
	return used, nil
}
