// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// packetCost is what a kept packet takes in memory beside its data, in bytes. Owner
// and comment are shared by all packets of a flow.
const packetCost = int(unsafe.Sizeof(Packet{}))

// Ring keeps the last packets of a Session in memory: each new one takes the place
// of the oldest. It implements Handler, and can be written beside that.
type Ring struct {
	size int

	mu      sync.Mutex
	members []*Member
	batches [][]Packet // as they came, none empty: the oldest first
	bytes   int        // what they take
}

// NewRing makes one for size bytes of packets with what is known of them. As
// packets come in batches, it may have a batch of each interface more in memory.
func NewRing(size int) *Ring { return &Ring{size: size} }

// Interface takes an interface, which stays known when its packets have gone.
func (r *Ring) Interface(m *Member) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, m)
	return nil
}

// Packets takes packets, and lets go of the oldest. One that is larger than the
// ring is not kept.
func (r *Ring) Packets(packets []Packet) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += held(packets)
	r.batches = append(r.batches, packets)
	for r.bytes > r.size {
		first := r.batches[0]
		r.bytes -= packetCost + len(first[0].Data)
		if r.batches[0] = first[1:]; len(first) == 1 {
			r.batches[0] = nil
			r.batches = r.batches[1:] // append moves the rest when there is no room behind it
		}
	}
	return nil
}

// Write writes the packets that are kept as a pcapng file, with the interfaces, what
// the stack has counted of each since the beginning, and application as who writes
// it. It returns how many packets these are.
func (r *Ring) Write(ctx context.Context, w io.Writer, application string) (int, error) {
	r.mu.Lock()
	// A copy: a slow reader holds up no packets. Nothing of a packet changes.
	members, packets := slices.Clone(r.members), slices.Concat(r.batches...)
	r.mu.Unlock()
	p, err := NewPcapng(w, application)
	if err != nil {
		return 0, err
	}
	for _, m := range members {
		if _, err := p.AddInterface(m.Interface); err != nil {
			return 0, err
		}
	}
	for i := range packets {
		if err := p.WritePacket(&packets[i]); err != nil {
			return i, err
		}
	}
	now := time.Now()
	for i, m := range members {
		if err := p.WriteStats(i, m.From, now, m.Stats(ctx)); err != nil {
			return len(packets), err
		}
	}
	return len(packets), p.Close()
}
