// SPDX-License-Identifier: Apache-2.0

package ask

import (
	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// The verbs below serve callers on another machine than the run, which cannot see its
// processes.

// Holders asks which of the run's processes have carriers of the stack's sockets open.
const Holders = Verb[Carriers, Held]("holders")

// Carriers are the sockets to look for.
type Carriers struct {
	Inodes []uint64 `json:"inodes"` // ctl_owner.carrier_ino, in csrc/shared/ctl_proto.h
}

// Held are the processes of the first sockets, as many as fit in an answer; the caller
// asks again for the others.
type Held struct {
	Processes [][]sockdiag.Process `json:"processes"` // of each, in the order of Carriers
}

// Usage asks for the CPU time that lklhost and the processes below it have used.
const Usage = Verb[struct{}, Used]("usage")

// Used are the run's processes by pid.
type Used struct {
	Processes map[int]procstat.Process `json:"processes"`
}
