// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// forwarded is an instance of the device that is shown on this machine.
type forwarded struct {
	f    *Forwarder
	name string
	pid  int
	l    *net.UnixListener // nil: the leftover of a killed run
}

// listen starts to accept connections.
func (o *forwarded) listen(path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // the folder is removed anyway, and a new socket of that name may exist
	o.l = l
	o.f.busy.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			o.f.busy.Go(func() {
				defer c.Close()
				o.f.carry(c, o.name)
			})
		}
	})
	return nil
}

func (o *forwarded) close() {
	if o.l != nil {
		o.l.Close()
	}
}

// carry forwards one connection to the device until either side ends it.
func (f *Forwarder) carry(c *net.UnixConn, name string) {
	select {
	case f.room <- struct{}{}:
		defer func() { <-f.room }()
	case <-f.ctx.Done():
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var said words
	f.mu.Lock()
	with := f.pid
	f.mu.Unlock()
	s, err := f.ready.Launch(ctx, &said, "device", "connect", "--with", strconv.Itoa(with), name)
	if err != nil {
		f.lost(err)
		return
	}
	end := sync.OnceFunc(func() {
		s.Close()
		c.Close()
	})
	stop := context.AfterFunc(ctx, end)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(s, c) // the other direction reports an error
		_ = s.CloseWrite()
	}()
	err = pass(c, s)
	var gone *remote.Error
	if errors.As(err, &gone) {
		f.lost(gone)
	}
	end()
	<-done
}

// lost records that the connection to the device has failed. Errors that the
// device reports about one instance do not count.
func (f *Forwarder) lost(err error) {
	var gone *remote.Error
	if errors.As(err, &gone) && f.ctx.Err() == nil {
		f.fail(err)
	}
}

// pass copies the stack host's output to a client. It clears the pid in the
// greeting, because it is not a pid of this machine.
func pass(to io.Writer, from io.Reader) error {
	for greeted := false; !greeted; {
		head := make([]byte, ctlproto.CTL_HDR_SIZE)
		if _, err := io.ReadFull(from, head); err != nil {
			return err
		}
		size := binary.LittleEndian.Uint32(head)
		if size < ctlproto.CTL_HDR_SIZE || size > ctlproto.CTL_FRAME_MAX {
			return fmt.Errorf("%w: a frame of %d bytes", ctlproto.ErrMalformed, size)
		}
		frame := append(head, make([]byte, size-ctlproto.CTL_HDR_SIZE)...)
		body := frame[ctlproto.CTL_HDR_SIZE:]
		if _, err := io.ReadFull(from, body); err != nil {
			return err
		}
		const hostPID = 8 // offset in struct ctl_hello_rep, csrc/shared/ctl_proto.h
		if binary.LittleEndian.Uint16(head[4:]) == ctlproto.CTL_HELLO|ctlproto.CTL_REPLY {
			greeted = true
			if len(body) >= hostPID+4 {
				clear(body[hostPID : hostPID+4])
			}
		}
		if _, err := to.Write(frame); err != nil {
			return err
		}
	}
	_, err := io.Copy(to, from)
	return err
}

// words keeps the beginning of a command's standard error.
type words struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 4096
	w.text.Write(p[:min(len(p), max(most-w.text.Len(), 0))])
	return len(p), nil
}

// line returns the last line.
func (w *words) line() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(w.text.String()), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "lklrun: ")
}
