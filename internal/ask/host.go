// SPDX-License-Identifier: Apache-2.0

package ask

import (
	"github.com/lklrun/lklrun/internal/procstat"
	"github.com/lklrun/lklrun/internal/sockdiag"
)

// What follows is for who is on another machine than the run: the processes there.

// Holders asks which of the run's processes have sockets open that stand for those
// of the stack.
const Holders = Verb[Carriers, Held]("holders")

// Carriers are the sockets that are asked about.
type Carriers struct {
	Inodes []uint64 `json:"inodes"` // ctl_owner.carrier_ino, in csrc/include/ctl_proto.h
}

// Held are the processes of the first of the sockets, as many as an answer has room
// for: the others are asked about anew.
type Held struct {
	Processes [][]sockdiag.Process `json:"processes"` // of each, in the order of Carriers
}

// Usage asks for the CPU time that lklhost and the processes below it have used.
const Usage = Verb[struct{}, Used]("usage")

// Used are the run's processes by their pids.
type Used struct {
	Processes map[int]procstat.Process `json:"processes"`
}
