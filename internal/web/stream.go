// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"time"
)

// A stream is an answer that goes on: Server-Sent Events (WHATWG HTML, 9.2).
type stream struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	idle *time.Timer // fires when the other side should be shown that we are here
}

// newStream begins an answer. A browser whose stream has broken off asks again
// after a second.
func newStream(w http.ResponseWriter) (*stream, error) {
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{w: w, ctrl: http.NewResponseController(w), idle: time.NewTimer(heartbeat)}
	return s, s.write("retry: 1000\n\n")
}

// send writes one event; data is one line.
func (s *stream) send(event string, data []byte) error {
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, data))
}

// alive writes what the other side ignores: on a connection that it has given up
// this fails.
func (s *stream) alive() error { return s.write(":\n\n") }

// write gives the other side writeLimit to take it.
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
