// SPDX-License-Identifier: Apache-2.0

package adbd

import (
	"fmt"
	"io"
	"sync"
)

// stream is the connection of one service: at most one message is in flight in each
// direction, and the next one must wait for the OKAY.
type stream struct {
	t        *transport
	id, peer uint32

	arrived chan []byte   // the received message that was not read yet
	rest    []byte        // rest of the message being read
	okay    chan struct{} // permission to send one
	done    chan struct{} // closed: the stream has ended
	once    sync.Once
}

func newStream(t *transport, id, peer uint32) *stream {
	s := &stream{t: t, id: id, peer: peer, arrived: make(chan []byte, 1), okay: make(chan struct{}, 1), done: make(chan struct{})}
	s.okay <- struct{}{}
	return s
}

func (s *stream) received(data []byte) error {
	select {
	case s.arrived <- data:
		return nil
	default:
		return fmt.Errorf("stream %d: a message before the last one's OKAY", s.id)
	}
}

func (s *stream) acknowledged() {
	select {
	case s.okay <- struct{}{}:
	default: // nothing was in flight: this is the OKAY for our OPEN
	}
}

// gone ends the stream on this side.
func (s *stream) gone() { s.once.Do(func() { close(s.done) }) }

// Read returns received data, including data that arrived before the peer's CLSE.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		select {
		case s.rest = <-s.arrived:
		case <-s.done:
			select { // both may be ready
			case s.rest = <-s.arrived:
			default:
				return 0, io.EOF
			}
		}
		if err := s.t.send(message{cmdOkay, s.id, s.peer, nil}); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write sends p and returns when all messages except the last one are acknowledged.
func (s *stream) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		select {
		case <-s.okay:
		case <-s.done:
			return sent, io.ErrClosedPipe
		}
		n := min(len(p)-sent, s.t.max)
		if err := s.t.send(message{cmdWrite, s.id, s.peer, p[sent : sent+n]}); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// Close ends the stream, once.
func (s *stream) Close() error {
	s.t.forget(s)
	var err error
	s.once.Do(func() {
		close(s.done)
		err = s.t.send(message{cmdClose, s.id, s.peer, nil})
	})
	return err
}
