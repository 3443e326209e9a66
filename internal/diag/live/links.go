// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// LinkSampler samples only the interfaces of one instance, which costs less than a
// Snapshot. It is not safe for concurrent use.
type LinkSampler struct {
	conn *stackconn.Conn
	last map[int]amount // byte counts of the last sample, by interface index
	at   time.Time
}

// NewLinkSampler makes a LinkSampler that uses conn. The caller still has to close conn.
func NewLinkSampler(conn *stackconn.Conn) *LinkSampler { return &LinkSampler{conn: conn} }

// Sample returns the interfaces, ordered by index. Rates cover the time since the last
// successful Sample.
func (s *LinkSampler) Sample(ctx context.Context) ([]Link, error) {
	n, err := stacknet.Open(ctx, s.conn)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	at := time.Now()
	links, err := n.Links()
	if err != nil {
		return nil, err
	}
	addrs, err := n.Addresses()
	if err != nil {
		return nil, err
	}
	var took time.Duration
	if s.last != nil {
		took = at.Sub(s.at)
	}
	all := newLinks(links, addrs, s.last, took)
	s.at, s.last = at, map[int]amount{}
	for _, l := range links {
		s.last[l.Index] = bytesOfLink(l)
	}
	return all, nil
}
