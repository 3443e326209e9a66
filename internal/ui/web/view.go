// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/pkg/capture"
)

// Limits of the packets kept.
const (
	maxPackets = 2000 // number of last packets per view
	snaplen    = 256  // bytes per packet: headers with all their options
	maxViews   = 8    // number of recent views that can be downloaded
)

// A view holds the last packets of the connection or subflow that a user has selected.
// It implements capture.Handler.
type view struct {
	id string

	mu      sync.Mutex
	from    time.Time
	members []member
	packets []capture.Packet // the last one has number seen-1
	seen    uint64
}

// A member is an interface of a capture.
type member struct {
	capture.Interface
	stats func(context.Context) capture.Stats
}

// Interface adds an interface.
func (v *view) Interface(m *capture.Member) error {
	v.add(member{m.Interface, m.Stats})
	return nil
}

func (v *view) add(m member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.members = append(v.members, m)
}

// Packets adds packets, and drops the oldest.
func (v *view) Packets(packets []capture.Packet) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.packets = append(v.packets, packets...)
	v.seen += uint64(len(packets))
	if over := len(v.packets) - maxPackets; over > 0 {
		v.packets = slices.Delete(v.packets, 0, over)
	}
	return nil
}

// after returns the packets after number seen, but at most the newest n. It also
// returns the total number of packets.
func (v *view) after(seen uint64, n int) ([]capture.Packet, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fresh := min(v.seen-seen, uint64(n), uint64(len(v.packets)))
	return slices.Clone(v.packets[len(v.packets)-int(fresh):]), v.seen
}

// known returns the interfaces that have been added so far.
func (v *view) known() []member {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.members)
}

// dropped returns the number of packets that the stack dropped because its buffer
// was full.
func (v *view) dropped(ctx context.Context) (n uint64) {
	for _, m := range v.known() {
		n += m.stats(ctx).Dropped
	}
	return n
}

// write writes the packets as pcapng.
func (v *view) write(w io.Writer) error {
	members := v.known()
	packets, _ := v.after(0, maxPackets)
	file, err := capture.NewPcapng(w, "lklctl web")
	if err != nil {
		return err
	}
	for _, m := range members {
		if _, err := file.AddInterface(m.Interface); err != nil {
			return err
		}
	}
	for i := range packets {
		if packets[i].Interface >= len(members) {
			continue // packet of an interface that was added in the meantime
		}
		if err := file.WritePacket(&packets[i]); err != nil {
			return err
		}
	}
	return file.Close()
}

// views contains the views that can be downloaded.
type views struct {
	mu  sync.Mutex
	all []*view
}

func (s *views) add() *view {
	v := &view{id: rand.Text(), from: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, v)
	if over := len(s.all) - maxViews; over > 0 {
		s.all = slices.Delete(s.all, 0, over)
	}
	return v
}

// find returns nil if there is no such view any more.
func (s *views) find(id string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.all {
		if v.id == id {
			return v
		}
	}
	return nil
}
