// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// listener keeps the MPTCP events that arrive while a script runs.
type listener struct {
	mu   sync.Mutex
	all  []mptcpevent.Event
	lost int
}

func (l *listener) tell(e mptcpevent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == mptcpevent.Lost || len(l.all) == mostEvents {
		l.lost++
		return
	}
	l.all = append(l.all, e)
}

// listen starts to listen. The returned function stops and adds the events to the
// timeline. A stack without MPTCP has no events.
func (w *watcher) listen(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := mptcpevent.Open(ctx, w.conn)
	if err != nil {
		cancel()
		if errors.Is(err, stacknet.ErrNoPathManager) {
			return func() {}, nil
		}
		return nil, err
	}
	l, done := &listener{}, make(chan struct{})
	go func() {
		defer close(done)
		_ = events.Run(l.tell) // ends with the script, or with the connection, which the script notices
	}()
	return func() {
		cancel()
		<-done
		events.Close()
		w.heard(l)
	}, nil
}

// heard adds events to the timeline.
func (w *watcher) heard(l *listener) {
	address := func(a netip.AddrPort) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	w.t.Lost = l.lost
	for _, e := range l.all {
		reason := e.ResetWords()
		if reason == "" && e.Errno != 0 {
			reason = e.Errno.Error()
		}
		token := ""
		if e.Token != 0 {
			token = e.Token.String()
		}
		w.t.Events = append(w.t.Events, Event{
			At: e.Time.Sub(w.began).Seconds(), Kind: string(e.Kind), Token: token, Iface: w.ifaces[e.Local.Addr().Unmap()],
			Local: address(e.Local), Remote: address(e.Remote), Reason: reason,
		})
	}
}

// Words describes an event in a line: what happened, on which interface, with which peer,
// and why.
func (e Event) Words() string {
	text := e.Kind
	if e.Iface != "" {
		text += " " + e.Iface
	}
	if e.Remote != "" {
		text += " " + e.Remote
	}
	if e.Reason != "" {
		text += fmt.Sprintf(" (%s)", e.Reason)
	}
	return text
}
