// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// counted adds up what the stack counts, which it forgets when it has told it.
type counted struct {
	mu    sync.Mutex
	stats Stats
}

// refused takes away what a filter outside the stack has refused.
func (c *counted) refused(n uint64) {
	c.mu.Lock()
	c.stats.Received -= n
	c.mu.Unlock()
}

// Stats returns the counts since Open (PACKET_STATISTICS, packet(7)). After Stop
// and once Read has said io.EOF, Received less Dropped is what Read returned.
func (s *Source) Stats(ctx context.Context) (Stats, error) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	b := make([]byte, 8) // struct tpacket_stats
	if _, err := s.sock.Getsockopt(ctx, unix.SOL_PACKET, unix.PACKET_STATISTICS, b); err != nil {
		return s.stats.stats, fmt.Errorf("asking what was dropped on %s: %w", s.opt.Interface.Name, err)
	}
	s.stats.stats.Received += uint64(binary.NativeEndian.Uint32(b))
	s.stats.stats.Dropped += uint64(binary.NativeEndian.Uint32(b[4:]))
	return s.stats.stats, nil
}
