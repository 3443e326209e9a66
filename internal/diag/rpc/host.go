// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// The verbs below serve callers that run on another machine than the run and cannot see
// its processes.

// Holders asks which processes of the run have carrier sockets of the stack's sockets
// open.
const Holders = Verb[Carriers, Held]("holders")

// Carriers are the carrier sockets to search for.
type Carriers struct {
	Inodes []uint64 `json:"inodes"` // ctl_owner.carrier_ino, in csrc/shared/ctl_proto.h
}

// Held lists the processes of the first sockets, as many as fit into an answer. The
// caller must ask again for the others.
type Held struct {
	Processes [][]sockdiag.Process `json:"processes"` // for each socket, in the order of Carriers
}

// Usage asks for the CPU time that lklhost and its descendants have used.
const Usage = Verb[struct{}, Used]("usage")

// Used maps each PID of the run's processes to its process.
type Used struct {
	Processes map[int]procstat.Process `json:"processes"`
}
