// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// A stream is a response of Server-Sent Events (WHATWG HTML, 9.2).
type stream struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	idle *time.Timer // fires when a keepalive is due
}

// begin acquires a place for a stream and starts the response. done releases the place.
// s is nil if there is no place or the client has disconnected. If there is no place,
// begin has sent an error to the client. A browser reconnects one second after its
// stream breaks.
func begin(w http.ResponseWriter, places *semaphore.Weighted) (s *stream, done func()) {
	if !places.TryAcquire(1) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "lklctl web: too many pages or captures are open; close one", http.StatusServiceUnavailable)
		return nil, nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s = &stream{w: w, ctrl: http.NewResponseController(w), idle: time.NewTimer(heartbeat)}
	done = func() {
		s.idle.Stop()
		places.Release(1)
	}
	if s.write("retry: 1000\n\n") != nil {
		done()
		return nil, nil
	}
	return s, done
}

// send writes one event. data must be one line.
func (s *stream) send(event string, data []byte) error {
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, data))
}

// alive writes a comment, which the client ignores. It fails if the connection is dead.
func (s *stream) alive() error { return s.write(":\n\n") }

// write sends text. The client must read it within writeLimit.
func (s *stream) write(text string) error {
	s.idle.Reset(heartbeat)
	if err := s.ctrl.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(s.w, text); err != nil {
		return err
	}
	return s.ctrl.Flush()
}
