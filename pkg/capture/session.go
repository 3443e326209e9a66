// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Handler receives the packets of a Session. Only one goroutine calls it.
type Handler interface {
	// Interface announces an interface before its first packet.
	Interface(*Member) error

	// Packets receives packets in the order of their times. It may keep
	// them.
	Packets([]Packet) error
}

// ErrEnough is returned by a Handler to end the capture without an error.
var ErrEnough = errors.New("enough packets")

// Take describes which packets to capture.
type Take struct {
	Names     []string // names or numbers of interfaces; none, or Any: all, including later ones
	Some      bool     // a stack may lack some of Names
	Snaplen   int      // snap length in bytes; 0: MaxSnaplen
	Filter    string   // filter in libpcap's language
	Direction Direction
	Buffer    int     // bytes in the stack for each interface; 0 or DefaultBuffer: as in Options
	Annotate  bool    // set Packet.Owner and Comment
	Events    bool    // pass the events of a Reporter to an EventHandler
	Keys      []*Keys // pass these TLS secrets to a KeyHandler; packets then wait for them
}

// Every reports whether all interfaces are selected.
func (t *Take) Every() bool { return len(t.Names) == 0 || slices.Contains(t.Names, Any) }

// maxSources is the maximum number of interfaces of a session. Each has a
// socket.
const maxSources = 200

// Session captures on several interfaces at once, of one or more stacks. Create
// it with NewSession, Add each stack, then call Run.
type Session struct {
	take   Take
	news   chan any // added, read or ended
	ahead  *ahead
	stacks []*stack

	mu      sync.Mutex
	members int // number of opened sockets
	active  int // number of goroutines that can send news; only for Run
	report  int // number of those that report events; they do not keep the session alive
	numbers int // number of announced members; only for Run
}

// Member is an interface of a session.
type Member struct {
	Interface
	Number int       // the value of Packet.Interface, counted from 0
	From   time.Time // start of the capture, by this machine's clock

	source Source
	notes  *annotator // annotator of the stack; nil: no annotations
	mu     sync.Mutex
	last   Stats
	closed bool
}

// stack is one of the stacks of a session.
type stack struct {
	Stack
	notes    *annotator
	instance string
	first    []*Member
	known    map[int]bool // interfaces, by number
}

// Messages from the goroutines to Run.
type (
	added struct{ m *Member } // a reader starts
	read  struct {
		m       *Member
		packets []Packet
	}
	happened []Event
	ended    struct { // a goroutine has ended
		err      error // nil: without error
		reporter bool  // it reported events
	}
)

// batchesAhead and bytesAhead are the maximum number of batches, and of bytes
// of packets, that are queued for a slow handler, such as a busy disk. Further
// packets stay in the stack, which drops them when its buffer is full.
const (
	batchesAhead = 4096
	bytesAhead   = 64 << 20
)

// NewSession checks the parameters. A filter that libpcap rejects is a
// *FilterError.
func NewSession(take Take) (*Session, error) {
	if take.Snaplen <= 0 || take.Snaplen > MaxSnaplen {
		take.Snaplen = MaxSnaplen
	}
	return &Session{take: take, news: make(chan any, batchesAhead), ahead: newAhead(bytesAhead)}, nil
}

// Add opens a source on each of the selected interfaces of a stack. From then on,
// the stack stores their packets. instance is the name of the stack. Add must be
// called before Run.
func (s *Session) Add(ctx context.Context, from Stack, instance string) error {
	have, err := from.Interfaces(ctx)
	if err != nil {
		return err
	}
	chosen := have
	if !s.take.Every() {
		if chosen, err = choose(have, s.take.Names, s.take.Some); err != nil {
			return err
		}
	}
	st := &stack{Stack: from, instance: instance, known: map[int]bool{}}
	if s.take.Annotate {
		st.notes = newAnnotator(from)
	}
	for _, i := range chosen {
		m, err := s.open(ctx, st, i)
		if err != nil {
			return err
		}
		st.first = append(st.first, m)
	}
	s.stacks = append(s.stacks, st)
	return nil
}

// open opens the socket of one interface.
func (s *Session) open(ctx context.Context, st *stack, i Interface) (*Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members >= maxSources {
		return nil, fmt.Errorf("more than %d interfaces to capture on; name the interfaces to capture", maxSources)
	}
	i.Description = fmt.Sprintf("instance %s, %s", st.instance, i.Name)
	i.Instance, i.Snaplen, i.Filter = st.instance, s.take.Snaplen, s.take.Filter
	m := &Member{Interface: i, From: time.Now(), notes: st.notes}
	var err error
	m.source, err = st.Open(ctx, Options{Interface: i, Direction: s.take.Direction, Buffer: s.take.Buffer})
	if err != nil {
		return nil, err
	}
	st.known[i.Index] = true
	s.members++
	return m, nil
}
