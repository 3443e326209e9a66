// SPDX-License-Identifier: Apache-2.0

package adbd

import (
	"bytes"
	"fmt"
	"net"
	"sync"
)

// A Server is the adbd of a device.
type Server struct {
	Banner       string // "device::ro.product.name=…;features=…"
	Shell        Shell
	Unauthorized bool                             // no user has accepted this computer's key
	Log          func(format string, args ...any) // errors of a peer
}

// Serve accepts connections from adb servers until the listener is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			t := &transport{server: s, conn: conn, streams: map[uint32]*stream{}}
			if err := t.serve(); err != nil {
				s.Log("adbd: %v: %v", conn.RemoteAddr(), err)
			}
		}()
	}
}

// transport is the connection of one computer.
type transport struct {
	server *Server
	conn   net.Conn

	writing sync.Mutex // one message at a time
	max     int        // payload size that the peer accepts

	mu      sync.Mutex
	streams map[uint32]*stream // by our id
	last    uint32
}

func (t *transport) send(m message) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	_, err := t.conn.Write(m.bytes())
	return err
}

// serve reads until the connection ends, which ends all streams.
func (t *transport) serve() error {
	defer func() {
		t.conn.Close()
		t.mu.Lock()
		all := t.streams
		t.streams = map[uint32]*stream{}
		t.mu.Unlock()
		for _, s := range all {
			s.gone()
		}
	}()
	connected := false
	for {
		m, err := readMessage(t.conn)
		if err != nil {
			return err
		}
		switch {
		case t.server.Unauthorized && (m.cmd == cmdConnect || m.cmd == cmdAuth):
			// Each signature is from an unknown key. A user would have to accept the
			// public key on the screen, which never happens.
			const publicKey = 3
			if m.cmd == cmdAuth && m.arg0 == publicKey {
				continue
			}
			err = t.send(message{cmdAuth, authToken, 0, bytes.Repeat([]byte{7}, 20)})
		case m.cmd == cmdConnect:
			connected = true
			t.max = int(min(m.arg1, maxPayload))
			err = t.send(message{cmdConnect, version, maxPayload, []byte(t.server.Banner)})
		case !connected:
			return fmt.Errorf("%v before CNXN", m)
		default:
			err = t.handle(m)
		}
		if err != nil {
			return err
		}
	}
}

func (t *transport) handle(m message) error {
	if m.cmd == cmdOpen {
		return t.open(m)
	}
	t.mu.Lock()
	s := t.streams[m.arg1]
	t.mu.Unlock()
	switch {
	case s == nil && m.cmd == cmdWrite: // it was closed meanwhile
		return t.send(message{cmdClose, 0, m.arg0, nil})
	case s == nil:
		return nil
	case m.cmd == cmdWrite:
		return s.received(m.data)
	case m.cmd == cmdOkay:
		s.acknowledged()
	case m.cmd == cmdClose:
		t.forget(s)
		s.gone()
	}
	return nil
}

// open starts the service of a stream.
func (t *transport) open(m message) error {
	name := string(bytes.TrimRight(m.data, "\x00"))
	serve, err := t.server.service(name)
	if err != nil {
		t.server.Log("adbd: service %q: %v", name, err)
		return t.send(message{cmdClose, 0, m.arg0, nil})
	}
	t.mu.Lock()
	t.last++
	s := newStream(t, t.last, m.arg0)
	t.streams[s.id] = s
	t.mu.Unlock()
	if err := t.send(message{cmdOkay, s.id, s.peer, nil}); err != nil {
		return err
	}
	go func() {
		serve(s)
		s.Close()
	}()
	return nil
}

func (t *transport) forget(s *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.streams, s.id)
}
