// SPDX-License-Identifier: Apache-2.0

package mptcpevent

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// historyMost limits the events in a History; one takes about 200 bytes.
const historyMost = 4096

// History records joins, announcements and the end of subflows, because the stack itself
// does not keep the reason why a subflow ended. Connections without a second subflow cost
// nothing: the stack filters their events out.
type History struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	since  time.Time
	gap    bool
	events []Event // the oldest first
}

// Past is the History of some connections.
type Past struct {
	Since  time.Time `json:"since"`         // when it began to listen
	Gap    bool      `json:"gap,omitempty"` // it has missed or forgotten events
	Events []Event   `json:"events"`        // the oldest first
}

// notable accepts the events that a History keeps. The command follows struct nlmsghdr
// (16 bytes). Every connection causes an event ESTABLISHED. It is of interest only if the
// peer has set a flag; then the third attribute contains the flags. The attributes before
// it, token and server_side, have 8 bytes each (mptcp_event_created() of
// net/mptcp/pm_kernel.c of 6.12.117). All stacks are little endian.
var notable = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 16, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 2, SkipFalse: 4}, // ESTABLISHED
	bpf.LoadExtension{Num: bpf.ExtLen},
	bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 40, SkipTrue: 4},
	bpf.LoadAbsolute{Off: 38, Size: 1}, // the attribute's type
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: attrFlags, SkipTrue: 1, SkipFalse: 2},
	bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 6, SkipTrue: 1}, // CREATED, CLOSED
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

// Record starts a History, which continues until Stop or the end of the connection to the
// stack. The error wraps stacknet.ErrNoPathManager if the stack has no MPTCP.
func Record(ctx context.Context, conn *stackconn.Conn) (*History, error) {
	program, err := bpf.Assemble(notable)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w, err := Open(life, conn)
	if err == nil {
		if err = w.nl.SetBPF(program); err != nil {
			w.Close()
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	h := &History{cancel: cancel, ended: make(chan struct{}), since: time.Now()}
	go func() {
		defer close(h.ended)
		defer w.Close()
		_ = w.Run(h.add) // Run ends after Stop or with the stack
		h.add(Event{Kind: Lost})
	}()
	return h, nil
}

// Stop ends the recording.
func (h *History) Stop() {
	h.cancel()
	<-h.ended
}

func (h *History) add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Kind == Lost {
		h.gap = true
		return
	}
	if len(h.events) == historyMost {
		h.gap = true
		h.events = slices.Delete(h.events, 0, historyMost/8)
	}
	h.events = append(h.events, e)
}

// Events returns the recorded events of the connections with these tokens.
func (h *History) Events(tokens []Token) Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[Token]bool{}
	for _, t := range tokens {
		wanted[t] = true
	}
	p := Past{Since: h.since, Gap: h.gap, Events: []Event{}}
	for _, e := range h.events {
		if wanted[e.Token] {
			p.Events = append(p.Events, e)
		}
	}
	return p
}
