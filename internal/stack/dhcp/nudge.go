// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"sync"
)

// Nudges, as bits.
const (
	nudgeCarrier = 1 << iota // the carrier has changed
	nudgeRenew               // a renewal is requested
	nudgeRelease             // a release is requested
)

// errNudged is the reason why the context of a phase ended.
var errNudged = errors.New("interrupted by a higher-priority task")

// nudges interrupts a waiting client.
type nudges struct {
	mu      sync.Mutex
	pending int
	carrier bool
	cancel  context.CancelCauseFunc // of the present phase
}

// send adds a wake. Pending nudges of the same kind are merged.
func (n *nudges) send(bit int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake(bit)
}

func (n *nudges) wake(bit int) {
	n.pending |= bit
	if n.cancel != nil {
		n.cancel(errNudged)
	}
}

// setCarrier reports the state of the carrier.
func (n *nudges) setCarrier(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.carrier != on {
		n.carrier = on
		n.wake(nudgeCarrier)
	}
}

// arm returns a context for a phase that ends at the next wake.
func (n *nudges) arm(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cancel = cancel
	if n.pending != 0 {
		cancel(errNudged)
	}
	return ctx, func() { cancel(nil) }
}

// take returns the nudges since the last call, and the state of the carrier.
func (n *nudges) take() (bits int, carrier bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	bits, n.pending, n.cancel = n.pending, 0, nil
	return bits, n.carrier
}
