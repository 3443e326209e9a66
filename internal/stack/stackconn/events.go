// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"fmt"
	"sync"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// eventBacklog bounds the events kept for a slow reader. The end of the target and the
// end of the kernel are always kept, because each event occurs only once.
const eventBacklog = 1024

const unlosable = ctlproto.CTL_EV_EXIT | ctlproto.CTL_EV_PANIC

// subscriber is one reader of events.
type subscriber struct {
	mask uint32
	out  chan ctlproto.Event

	mu      sync.Mutex
	backlog []ctlproto.Event
	lost    int
	closed  bool
	wake    chan struct{} // buffered, for one element: something changed
}

// Events subscribes to the kinds of events in mask (ctlproto.CTL_EV_*). The channel is
// closed when ctx is done or the connection has ended, after all events that have arrived
// by then. A reader that is far too slow loses events; a CTL_EV_WARN event says how many.
func (c *Conn) Events(ctx context.Context, mask uint32) (<-chan ctlproto.Event, error) {
	s := &subscriber{mask: mask, out: make(chan ctlproto.Event), wake: make(chan struct{}, 1)}
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return nil, gone(err)
	}
	// Register first: events that follow the reply must find the subscriber.
	c.subs[s] = struct{}{}
	all := c.mask | mask
	more := all != c.mask
	c.mask = all
	c.mu.Unlock()
	go s.run(ctx, func() {
		c.mu.Lock()
		delete(c.subs, s)
		c.mu.Unlock()
	})
	// A connection has one subscription, which covers the kinds of all readers.
	if more {
		if _, err := c.request(ctx, ctlproto.CTL_EVENTS, ctlproto.Events{Mask: all}.Append(nil)); err != nil {
			s.close()
			return nil, fmt.Errorf("subscribing to events: %w", err)
		}
	}
	return s.out, nil
}

// publish passes an event to the subscribers of its kind.
func (c *Conn) publish(f ctlproto.Frame) error {
	var e ctlproto.Event
	if err := e.Unmarshal(f.Body); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.subs) == 0 && e.Kind == ctlproto.CTL_EV_WARN {
		c.words = e.Text
	}
	for s := range c.subs {
		if s.mask&e.Kind != 0 {
			s.put(e)
		}
	}
	return nil
}

func (s *subscriber) put(e ctlproto.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.backlog) >= eventBacklog && e.Kind&unlosable == 0 {
		s.lost++
		return
	}
	s.backlog = append(s.backlog, e)
	s.signal()
}

// close lets run end once the backlog has been read.
func (s *subscriber) close() {
	s.mu.Lock()
	s.closed = true
	s.signal()
	s.mu.Unlock()
}

func (s *subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next removes and returns the oldest event; ok is false when there is none.
func (s *subscriber) next() (e ctlproto.Event, ok, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.backlog) > 0:
		e, s.backlog = s.backlog[0], s.backlog[1:]
		return e, true, s.closed
	case s.lost > 0:
		e = ctlproto.Event{Kind: ctlproto.CTL_EV_WARN, Text: fmt.Sprintf("%d events were lost here, because they arrived faster than they were read", s.lost)}
		s.lost = 0
		return e, true, s.closed
	}
	return e, false, s.closed
}

func (s *subscriber) run(ctx context.Context, leave func()) {
	defer close(s.out)
	defer leave()
	for {
		e, ok, closed := s.next()
		if !ok {
			if closed {
				return
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case s.out <- e:
		case <-ctx.Done():
			return
		}
	}
}
