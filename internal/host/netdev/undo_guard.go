// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"encoding/json"

	"github.com/lklrun/lklrun/internal/host/guard"
)

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
