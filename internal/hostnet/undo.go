// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"time"
)

// Undo takes back one step on the host. It is a line of the journal: another
// process, long after, must be able to tell from it alone whether what it finds
// is still the thing that was made.
type Undo struct {
	Op      string `json:"op"`
	Name    string `json:"name"` // of the thing: a device, an instance, a sysctl
	Ifindex int    `json:"ifindex,omitempty"`
	Netns   string `json:"netns"`         // as /proc/PID/ns/net reads
	Old     string `json:"old,omitempty"` // what was there before
	New     string `json:"new,omitempty"` // what we made of it
}

// operation is how undos of one kind are carried out. Carrying one out a second
// time, and when the thing is gone or no longer ours, changes nothing and is no
// error.
type operation struct {
	words string // what it does to the thing called Name
	apply func(context.Context, Undo) error
}

// operations are all that a journal may ask for. Each family of them has a file
// of its own.
var operations = map[string]operation{
	OpDeleteLink:   {"delete device", undoDeleteLink},
	OpReservePorts: {"reserve no more ports for", undoReserve},
	OpGuard:        {"remove the firewall rules of", undoGuard},
	OpBridge:       {"take out of its bridge", undoBridge},
	OpNAT:          {"end the way out of", undoNAT},
	OpThreaded:     {"set back `threaded` of", undoThreaded},
}

// String says what the undo does.
func (u Undo) String() string {
	if op, ok := operations[u.Op]; ok {
		return op.words + " " + u.Name
	}
	return u.Op + " " + u.Name
}

// undoLimit bounds the wait for the kernel's answer to one undo.
const undoLimit = 5 * time.Second

// Apply carries the undo out. What is undone already, or is no longer the thing
// that was made, is left alone without an error.
func (u Undo) Apply(ctx context.Context) error {
	op, ok := operations[u.Op]
	if !ok {
		return fmt.Errorf("unknown undo %q", u.Op)
	}
	if here := netnsID(); u.Netns != here {
		return fmt.Errorf("%v: it is in network namespace %s, this is %s", u, u.Netns, here)
	}
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	if err := op.apply(ctx, u); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	return nil
}
