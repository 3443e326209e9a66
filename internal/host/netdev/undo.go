// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"fmt"
	"time"
)

// Undo reverts one change to the host. It is a line of the journal. Another
// process may read it much later. It must then be able to tell whether an
// object that it finds is still the one that was changed.
type Undo struct {
	Op      string `json:"op"`
	Name    string `json:"name"` // of the object: a device, an instance, a sysctl
	Ifindex int    `json:"ifindex,omitempty"`
	Netns   string `json:"netns"`         // target of the link /proc/PID/ns/net
	Old     string `json:"old,omitempty"` // the value before
	New     string `json:"new,omitempty"` // the value that we set
}

// operation carries out undos of one kind. It changes nothing and returns no
// error if the undo was carried out already, or if the object is gone or no
// longer ours.
type operation struct {
	words string // description of the effect on the object called Name
	apply func(context.Context, Undo) error
}

// operations are all operations that a journal may contain. Each family has its
// own file.
var operations = map[string]operation{
	OpDeleteLink:   {"delete device", undoDeleteLink},
	OpReservePorts: {"release the reserved ports of", undoReserve},
	OpGuard:        {"remove the firewall rules of", undoGuard},
	OpBridge:       {"remove from its bridge", undoBridge},
	OpNAT:          {"remove the NAT of", undoNAT},
	OpThreaded:     {"restore `threaded` of", undoThreaded},
}

// String describes the undo.
func (u Undo) String() string {
	if op, ok := operations[u.Op]; ok {
		return op.words + " " + u.Name
	}
	return u.Op + " " + u.Name
}

// undoLimit bounds the wait for the kernel's answer to one undo.
const undoLimit = 5 * time.Second

// Apply carries out the undo. It does nothing if that was done already, or if
// the object is no longer the one that was changed.
func (u Undo) Apply(ctx context.Context) error {
	op, ok := operations[u.Op]
	if !ok {
		return fmt.Errorf("unknown undo operation %q", u.Op)
	}
	if here := netnsID(); u.Netns != here {
		return fmt.Errorf("%v: it is in network namespace %s, and this process is in %s", u, u.Netns, here)
	}
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	if err := op.apply(ctx, u); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	return nil
}
