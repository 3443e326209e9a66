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

// packetCost is the memory used by a kept packet in addition to its data, in
// bytes. All packets of a flow share their owner and comment.
const packetCost = int(unsafe.Sizeof(Packet{}))

// Ring keeps the last packets of a Session in memory. New packets replace the
// oldest ones. It implements Handler. Write may be called concurrently with the
// other methods.
type Ring struct {
	size int

	mu      sync.Mutex
	members []*Member
	batches [][]Packet // non-empty batches as received, the oldest first
	bytes   int        // size of all batches
}

// NewRing returns a Ring for size bytes of packets and their metadata. Because
// packets arrive in batches, a Ring can temporarily exceed this size by one batch
// for each interface.
func NewRing(size int) *Ring { return &Ring{size: size} }

// Interface adds an interface. The interface remains known even if no packet of it
// is kept.
func (r *Ring) Interface(m *Member) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, m)
	return nil
}

// Packets adds packets and removes the oldest ones. It does not keep a packet
// larger than the ring.
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
			r.batches = r.batches[1:] // when append reallocates the slice, it drops the removed batches
		}
	}
	return nil
}

// Write writes the kept packets as a pcapng file, with the interfaces, and the
// stack's counters since the start for each interface. application is the name of
// the writing program. Write returns the number of packets.
func (r *Ring) Write(ctx context.Context, w io.Writer, application string) (int, error) {
	r.mu.Lock()
	// Copy the slices, so that a slow writer does not block new packets.
	// The packets themselves never change.
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
