// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"sync"
)

// Nudges, bits.
const (
	nudgeCarrier = 1 << iota // it came or went
	nudgeRenew               // somebody wants a fresh lease
	nudgeRelease             // somebody wants it given back
)

// errNudged is why the context of a phase ended.
var errNudged = errors.New("something else is to be done first")

// nudges interrupt a client in whatever it waits for.
type nudges struct {
	mu      sync.Mutex
	pending int
	carrier bool
	cancel  context.CancelCauseFunc // of the phase under way
}

// send adds a nudge; those that are not heeded yet are not counted.
func (n *nudges) send(bit int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nudge(bit)
}

func (n *nudges) nudge(bit int) {
	n.pending |= bit
	if n.cancel != nil {
		n.cancel(errNudged)
	}
}

// setCarrier tells whether there is a carrier.
func (n *nudges) setCarrier(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.carrier != on {
		n.carrier = on
		n.nudge(nudgeCarrier)
	}
}

// arm gives a phase a context that ends with the next nudge.
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

// take returns the nudges since the last time, and whether there is a carrier.
func (n *nudges) take() (bits int, carrier bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	bits, n.pending, n.cancel = n.pending, 0, nil
	return bits, n.carrier
}
