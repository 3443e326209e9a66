// SPDX-License-Identifier: Apache-2.0

package capture

import "sync"

// ahead limits the bytes of packets that were read and not handled yet.
type ahead struct {
	mu    sync.Mutex
	fewer sync.Cond // signalled when the number shrinks
	most  int
	held  int
}

func newAhead(most int) *ahead {
	a := &ahead{most: most}
	a.fewer.L = &a.mu
	return a
}

// add waits until there is room for packets. It accepts a batch larger than the
// limit when there are no other packets.
func (a *ahead) add(packets []Packet) {
	n := held(packets)
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.held > 0 && a.held+n > a.most {
		a.fewer.Wait()
	}
	a.held += n
}

// handled subtracts packets that have been handled.
func (a *ahead) handled(packets []Packet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= held(packets)
	a.fewer.Broadcast()
}

// held returns the memory that packets use.
func held(packets []Packet) (n int) {
	for i := range packets {
		n += packetCost + len(packets[i].Data)
	}
	return n
}
