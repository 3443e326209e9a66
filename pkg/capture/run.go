// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"io"
	"slices"
	"syscall"
	"time"
)

// endLimit is the timeout for the final reads of one interface.
const endLimit = 10 * time.Second

// Run captures until ctx is done, h wants no more packets, or all stacks have
// ended. It then passes on the remaining packets and returns nil. In all other
// cases, it returns an error.
func (s *Session) Run(ctx context.Context, h Handler) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var o order
	if len(s.take.Keys) > 0 {
		o.hold = keyPeriods
	}
	h = &heeded{Handler: h}
	failed := s.begin(running, h)
	tick := time.NewTicker(orderPeriod)
	defer tick.Stop()
	for s.active > 0 {
		var err error
		select {
		case <-tick.C:
			if err = s.keys(h); err == nil {
				err = deliver(h, o.popOrdered())
			}
		case n := <-s.news:
			switch n := n.(type) {
			case added:
				err = s.join(running, h, n.m)
			case read:
				if n.m.notes != nil && failed == nil {
					n.m.notes.annotate(running, n.packets, n.m.LinkType)
				}
				if s.alone() {
					err = deliver(h, n.packets)
				} else {
					o.add(n.packets)
				}
				s.ahead.handled(n.packets)
			case happened:
				if e, ok := h.(EventHandler); ok {
					err = e.Events(n)
				}
			case ended:
				s.active--
				if n.reporter {
					s.report--
				}
				err = n.err
			}
		}
		if failed == nil && err != nil {
			failed = err
		}
		if failed != nil || s.active == s.report {
			stop()
		}
	}
	err := s.keys(h)
	if err == nil {
		err = deliver(h, o.all())
	}
	if failed == nil {
		failed = err
	}
	if errors.Is(failed, ErrEnough) {
		return nil
	}
	return failed
}

// begin starts the readers for the sources opened by Add.
func (s *Session) begin(ctx context.Context, h Handler) (failed error) {
	for _, st := range s.stacks {
		for _, m := range st.first {
			s.active++ // the reader ends immediately if the capture has already failed
			if failed == nil {
				failed = h.Interface(s.number(m))
			}
			go s.read(ctx, m)
		}
		if s.take.Every() {
			s.active++
			go s.watch(ctx, st)
		}
		if r, ok := st.Stack.(Reporter); ok && s.take.Events {
			s.active++
			s.report++
			go func() {
				err := r.Events(ctx, s.take.Names, s.take.Filter, func(all []Event) { s.news <- happened(all) })
				s.news <- ended{err: err, reporter: true}
			}()
		}
	}
	return failed
}

// number assigns the next number to a member.
func (s *Session) number(m *Member) *Member {
	m.Number, s.numbers = s.numbers, s.numbers+1
	return m
}

// join starts to read a member that was added later.
func (s *Session) join(ctx context.Context, h Handler, m *Member) error {
	s.active++
	err := h.Interface(s.number(m))
	go s.read(ctx, m)
	return err
}

// alone reports whether all packets come from one socket, are therefore in order, and wait
// for nothing.
func (s *Session) alone() bool { return s.numbers == 1 && !s.take.Every() && len(s.take.Keys) == 0 }

// keys passes on new TLS secrets.
func (s *Session) keys(h Handler) error {
	to, ok := h.(KeyHandler)
	if !ok {
		return nil
	}
	for _, k := range s.take.Keys {
		if lines := k.more(); len(lines) > 0 {
			if err := to.Keys(lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// deliver passes on packets, if there are any.
func deliver(h Handler, packets []Packet) error {
	if len(packets) == 0 {
		return nil
	}
	return h.Packets(packets)
}

// heeded passes nothing more to a handler after its first error. After an error of
// a stack, it still passes on packets, because the last packets are then important.
type heeded struct {
	Handler
	no bool
}

// Interface passes on an interface.
func (h *heeded) Interface(m *Member) error {
	if h.no {
		return nil
	}
	err := h.Handler.Interface(m)
	h.no = err != nil
	return err
}

// Events passes on events, if the handler accepts them.
func (h *heeded) Events(events []Event) error {
	e, ok := h.Handler.(EventHandler)
	if h.no || !ok {
		return nil
	}
	err := e.Events(events)
	h.no = err != nil
	return err
}

// Keys passes on TLS secrets, if the handler accepts them.
func (h *heeded) Keys(lines []byte) error {
	k, ok := h.Handler.(KeyHandler)
	if h.no || !ok {
		return nil
	}
	err := k.Keys(lines)
	h.no = err != nil
	return err
}

// Packets passes on packets.
func (h *heeded) Packets(packets []Packet) error {
	if h.no {
		return nil
	}
	err := h.Handler.Packets(packets)
	h.no = err != nil
	return err
}

// read reads a member until ctx is done or it has ended, and then its remaining
// packets.
func (s *Session) read(ctx context.Context, m *Member) {
	counting, stop := context.WithCancel(ctx)
	go m.count(counting)
	err := s.readOn(ctx, m)
	stop()
	// After the end of ctx, the remaining packets are still read, within a
	// limit.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		if err = m.source.Stop(last); err == nil {
			err = s.readOn(last, m)
		}
	}
	m.close(last)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	s.news <- ended{err: err}
}

// readOn passes on packets until an error. The error is io.EOF at the end.
func (s *Session) readOn(ctx context.Context, m *Member) error {
	for {
		packets, err := m.source.Read(ctx)
		if err != nil {
			return err
		}
		for i := range packets {
			packets[i].Interface = m.Number
		}
		s.ahead.add(packets)
		s.news <- read{m, packets}
	}
}

// watch opens sources on new interfaces.
func (s *Session) watch(ctx context.Context, st *stack) {
	var failed error
	err := st.Watch(ctx, func(index int, gone bool) error {
		failed = s.linkNews(ctx, st, index, gone)
		return failed
	})
	if ctx.Err() != nil && failed == nil || errors.Is(err, io.EOF) {
		err = nil
	}
	s.news <- ended{err: err}
}

// linkNews opens a source on an interface if it is new.
func (s *Session) linkNews(ctx context.Context, st *stack, index int, gone bool) error {
	if gone {
		delete(st.known, index)
		return nil
	}
	if st.known[index] {
		return nil
	}
	have, err := st.Interfaces(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(have, func(i Interface) bool { return i.Index == index })
	if at < 0 { // the interface has disappeared again
		return nil
	}
	m, err := s.open(ctx, st, have[at])
	if errors.Is(err, syscall.ENODEV) {
		return nil
	}
	if err == nil {
		s.news <- added{m}
	}
	return err
}

// Stats returns the counters of an interface up to now, or up to its end.
func (m *Member) Stats(ctx context.Context) Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		last, err := m.source.Stats(ctx)
		m.last, m.last.Early = last, err != nil
	}
	return m.last
}

// close closes the source after a final query of the counters.
func (m *Member) close(ctx context.Context) {
	m.Stats(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.source.Close()
}

// countPeriod is the interval at which the counters are read. It is therefore their
// maximum age if a stack ends suddenly.
const countPeriod = 100 * time.Millisecond

// count updates the counters until ctx ends.
func (m *Member) count(ctx context.Context) {
	tick := time.NewTicker(countPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// ctx must not cancel this query, because the stack
			// resets the counters that it reports.
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsLimit)
			early := m.Stats(asking).Early
			cancel()
			if early {
				return
			}
		}
	}
}

// order sorts the packets of several sockets, which arrive in batches, by time. Each packet
// waits for one to two periods, and for hold more.
type order struct {
	hold  int
	held  []Packet
	bytes int         // memory of held
	cuts  []time.Time // times of the newest packets at the ends of the last periods
}

const (
	// orderPeriod is longer than the time for which the stack collects packets of a batch.
	orderPeriod = 25 * time.Millisecond

	// keyPeriods is the time for which packets wait for TLS secrets. A program derives them
	// when it has received packets that were encrypted with them.
	keyPeriods = int(2 * time.Second / orderPeriod)

	// maxOrdered is the memory of packets, in bytes, above which hold is ignored.
	maxOrdered = 64 << 20
)

func (o *order) add(packets []Packet) {
	o.held = append(o.held, packets...)
	o.bytes += held(packets)
}

// popOrdered removes and returns the packets that can no longer be preceded by a packet
// that has yet to arrive.
func (o *order) popOrdered() []Packet {
	if len(o.held) == 0 {
		return nil
	}
	o.sort()
	last := len(o.cuts) - 1
	if o.bytes <= maxOrdered {
		last -= o.hold
	}
	n := 0
	if last >= 0 {
		n, _ = slices.BinarySearchFunc(o.held, o.cuts[last], func(p Packet, cut time.Time) int {
			if p.Time.After(cut) {
				return 1
			}
			return -1
		})
		o.cuts = slices.Delete(o.cuts, 0, last+1)
	}
	out := slices.Clone(o.held[:n])
	o.cuts = append(o.cuts, o.held[len(o.held)-1].Time)
	o.held = slices.Delete(o.held, 0, n)
	o.bytes -= held(out)
	return out
}

// all removes and returns the remaining packets.
func (o *order) all() []Packet {
	o.sort()
	return o.held
}

func (o *order) sort() {
	slices.SortStableFunc(o.held, func(a, b Packet) int { return a.Time.Compare(b.Time) })
}
