// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/guard"
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

// OpDeleteLink deletes a network device.
const OpDeleteLink = "delete-link"

func undoDeleteLink(_ context.Context, u Undo) error {
	d, err := netlink.LinkByIndex(u.Ifindex)
	if err != nil || d.Attrs().Name != u.Name {
		return nil // a tap that no process has open vanishes by itself
	}
	if err := netlink.LinkDel(d); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// The operations that undo the changes of internal/host/guard, for addresses
// shared with the host.
const (
	OpReservePorts = "reserve-ports" // New: the ports, as guard.Reserve passes them to its journal
	OpGuard        = "guard"         // New: a guard.Rules, as JSON
)

// UndoReserve removes ports from the host's reserved ports.
func UndoReserve(instance, ports string) Undo {
	return Undo{Op: OpReservePorts, Name: instance, Netns: netnsID(), New: ports}
}

// UndoGuard removes rules from the host's firewall.
func UndoGuard(r guard.Rules) (Undo, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return Undo{}, err
	}
	return Undo{Op: OpGuard, Name: r.Name, Netns: netnsID(), New: string(text)}, nil
}

func undoReserve(ctx context.Context, u Undo) error { return guard.Release(ctx, u.New) }

func undoGuard(ctx context.Context, u Undo) error {
	r, err := u.Rules()
	if err != nil {
		return err
	}
	return guard.Remove(ctx, r)
}

// Rules returns the rules that an undo of OpGuard removes.
func (u Undo) Rules() (r guard.Rules, err error) {
	err = json.Unmarshal([]byte(u.New), &r)
	return r, err
}

// Here reports whether an undo applies to the network namespace of this thread.
func (u Undo) Here() bool { return u.Netns == netnsID() }
