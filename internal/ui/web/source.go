// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/diag/packets"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/capture"
)

// Attach connects to the stack of a running instance.
type Attach func(ctx context.Context, name string) (*instance.Info, *stackconn.Conn, error)

// Snapshot is the data sent to the page each second.
type Snapshot struct {
	*live.Snapshot
	Types map[string]string `json:"types,omitempty"` // types of the interfaces that lklrun created, by name
	// Why has the reasons why connections are plain TCP, or why interfaces have no
	// subflow of them. It names connections by their IDs.
	Why []mptcpdiag.Group `json:"why,omitempty"`
}

// whyEvery is the number of snapshots for which the reasons are reused while the
// subflows are the same, because finding the reasons costs more than a snapshot.
const whyEvery = 5

// source queries one instance over a connection of its own.
type source interface {
	Snapshot(ctx context.Context) (any, error) // encoded as JSON
	Close() error
}

type stackSource struct {
	live *live.Collector
	conn *stackconn.Conn
	info *instance.Info

	subflows []string // subflows of all MPTCP connections in the last snapshot
	age      int      // snapshots since the last query for reasons
	why      []mptcpdiag.Group
}

// open connects to an instance.
func (a Attach) open(ctx context.Context, name string) (source, error) {
	info, conn, err := a(ctx, name)
	if err != nil {
		return nil, err
	}
	return &stackSource{live: live.New(conn, info), conn: conn, info: info}, nil
}

// linkSampler is a sampler with a connection of its own.
type linkSampler struct {
	*live.LinkSampler
	conn *stackconn.Conn
}

func (s linkSampler) Close() error { return s.conn.Close() }

// sampler connects to an instance for its interfaces only.
func (a Attach) sampler(ctx context.Context, name string) (sampler, error) {
	_, conn, err := a(ctx, name)
	if err != nil {
		return nil, err
	}
	return linkSampler{live.NewLinkSampler(conn), conn}, nil
}

// Snapshot takes a snapshot of the instance.
func (s *stackSource) Snapshot(ctx context.Context) (any, error) {
	now, err := s.live.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var subflows []string
	for _, c := range now.Connections {
		if c.Proto != string(sockdiag.MPTCP) {
			continue
		}
		subflows = append(subflows, c.ID+c.State)
		for _, f := range c.Subflows {
			subflows = append(subflows, f.ID+f.State)
		}
	}
	slices.Sort(subflows)
	if s.age++; s.age >= whyEvery || !slices.Equal(subflows, s.subflows) {
		if s.why, err = s.missing(ctx); err != nil {
			return nil, err
		}
		s.subflows, s.age = subflows, 0
	}
	types := map[string]string{}
	for _, i := range s.info.Interfaces {
		types[i.Name] = i.Type
	}
	return &Snapshot{now, types, s.why}, nil
}

// missing finds the reasons for missing subflows and fallbacks of the MPTCP connections.
func (s *stackSource) missing(ctx context.Context) ([]mptcpdiag.Group, error) {
	conns, err := sockdiag.Connections(ctx, s.conn)
	if errors.Is(err, sockdiag.ErrUnsupported) {
		return nil, nil // a stack without MPTCP has no reasons
	}
	if err != nil {
		return nil, err
	}
	all, err := mptcpdiag.Explain(ctx, s.conn, conns, s.info.Interfaces)
	if err != nil {
		return nil, fmt.Errorf("finding the reasons for missing subflows: %w", err)
	}
	id := func(n int) string { return strconv.FormatUint(conns[n].Cookie, 16) } // as in live.Connection
	return mptcpdiag.GroupBy(all, id), nil
}

// Close ends the connection.
func (s *stackSource) Close() error { return s.conn.Close() }

// capture passes packets of an instance to h until ctx is done.
func (a Attach) capture(ctx context.Context, name string, take capture.Take, h capture.Handler) error {
	attaching, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	info, conn, err := a(attaching, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := capture.NewSession(take)
	if err != nil {
		return err
	}
	if err := session.Add(attaching, packets.New(conn), info.Name); err != nil {
		return err
	}
	return session.Run(ctx, h)
}
