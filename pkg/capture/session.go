// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/stackconn"
)

// Handler is given what a Session captures, by one goroutine.
type Handler interface {
	// Interface tells of an interface before its first packet.
	Interface(*Member) error

	// Packets are packets in the order of their times; they may be kept.
	Packets([]Packet) error
}

// ErrEnough is what a Handler returns to end the capture without an error.
var ErrEnough = errors.New("enough packets")

// Take says what is to be captured.
type Take struct {
	Names     []string // of interfaces, or their numbers; none, or Any: all, those that come later too
	Snaplen   int      // bytes; 0: MaxSnaplen
	Filter    string   // in libpcap's language
	Direction Direction
	Buffer    int  // bytes in the stack for each interface; 0 or DefaultBuffer: as in Options
	Annotate  bool // say of packets whose they are: Packet.Owner and Comment
}

// Every says whether all interfaces are meant.
func (t *Take) Every() bool { return len(t.Names) == 0 || slices.Contains(t.Names, Any) }

// maxSources bounds the interfaces of a session, each of which has a socket.
const maxSources = 200

// Session captures on several interfaces, of one stack or several, at once. Make it
// with NewSession, Add each stack, then Run.
type Session struct {
	take   Take
	news   chan any // added, read or ended
	ahead  *ahead
	stacks []*stack

	mu      sync.Mutex
	members int // sockets that were opened
	active  int // goroutines that may tell news; Run's alone
	numbers int // members that were told of; Run's alone
}

// Member is an interface of a session.
type Member struct {
	Interface
	Number int       // what Packet.Interface holds, counted from 0
	From   time.Time // when it began, by this machine's clock

	source *Source
	notes  *Annotator // of its stack; nil: none are wanted
	mu     sync.Mutex
	last   Stats
	closed bool
}

// stack is one of the stacks.
type stack struct {
	conn     *stackconn.Conn
	notes    *Annotator
	instance string
	first    []*Member
	known    map[int]bool // interfaces, by number
}

// What the goroutines tell Run.
type (
	added struct{ m *Member } // a reader begins
	read  struct {
		m       *Member
		packets []Packet
	}
	ended struct{ err error } // a goroutine; nil: as it should
)

// batchesAhead and bytesAhead are how many batches, and bytes of packets, may lie
// between the stacks and a slow handler, such as a disk that writes back; then
// packets stay in the stack, and at last are dropped there.
const (
	batchesAhead = 4096
	bytesAhead   = 64 << 20
)

// NewSession checks what is to be captured; a filter that libpcap refuses is a
// *FilterError.
func NewSession(take Take) (*Session, error) {
	if take.Snaplen <= 0 || take.Snaplen > MaxSnaplen {
		take.Snaplen = MaxSnaplen
	}
	return &Session{take: take, news: make(chan any, batchesAhead), ahead: newAhead(bytesAhead)}, nil
}

// Add opens a packet socket on each of the chosen interfaces of a stack; their
// packets are kept from then on. It is for the time before Run.
func (s *Session) Add(ctx context.Context, conn *stackconn.Conn, instance string) error {
	have, err := Interfaces(ctx, conn)
	if err != nil {
		return err
	}
	chosen := have
	if !s.take.Every() {
		if chosen, err = choose(have, s.take.Names); err != nil {
			return err
		}
	}
	st := &stack{conn: conn, instance: instance, known: map[int]bool{}}
	if s.take.Annotate {
		st.notes = NewAnnotator(conn)
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
		return nil, fmt.Errorf("more than %d interfaces to capture on: name those that matter", maxSources)
	}
	i.Description = fmt.Sprintf("instance %s, %s", st.instance, i.Name)
	i.Instance, i.Snaplen, i.Filter = st.instance, s.take.Snaplen, s.take.Filter
	m := &Member{Interface: i, From: time.Now(), notes: st.notes}
	var err error
	m.source, err = Open(ctx, st.conn, Options{Interface: i, Direction: s.take.Direction, Buffer: s.take.Buffer})
	if err != nil {
		return nil, err
	}
	st.known[i.Index] = true
	s.members++
	return m, nil
}
