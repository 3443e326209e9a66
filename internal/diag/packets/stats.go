// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/capture"
)

// counted sums the stack's counters. The stack resets its counters each time it
// reports them.
type counted struct {
	mu    sync.Mutex
	stats capture.Stats
}

// refused subtracts packets that a filter outside the stack has rejected.
func (c *counted) refused(n uint64) {
	c.mu.Lock()
	c.stats.Received -= n
	c.mu.Unlock()
}

// Stats returns the counters since Open (PACKET_STATISTICS, packet(7)). After
// Stop and the io.EOF of Read, Received minus Dropped is the number of packets
// that Read has returned.
func (s *source) Stats(ctx context.Context) (capture.Stats, error) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	b := make([]byte, 8) // struct tpacket_stats
	if _, err := s.sock.Getsockopt(ctx, unix.SOL_PACKET, unix.PACKET_STATISTICS, b); err != nil {
		return s.stats.stats, fmt.Errorf("reading the drop counter of %s: %w", s.opt.Interface.Name, err)
	}
	s.stats.stats.Received += uint64(binary.NativeEndian.Uint32(b))
	s.stats.stats.Dropped += uint64(binary.NativeEndian.Uint32(b[4:]))
	return s.stats.stats, nil
}
