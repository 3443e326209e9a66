// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/remote/session"
)

// closeLimit is the timeout for closing a session that has ended.
const closeLimit = 3 * time.Second

// Desk contains the local ends of a command on a device.
type Desk struct {
	Start   session.StartMessage
	Stdin   io.Reader        // input of the command, unless it is the terminal; nil: none
	Stdout  io.Writer        // output of the command, unless it is the terminal; nil: none
	Stderr  io.Writer        // standard error of the command, unless it is the terminal; nil: none
	Keys    io.Reader        // input of the terminal; nil: none
	Screen  io.Writer        // output of the terminal
	Signals <-chan os.Signal // signals to forward
	Resized <-chan Size      // changes of the terminal's size
}

// Size is the size of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

// Serve runs a command on the device as if it ran here, and returns how it ended.
// The error is an *Error about the connection or the device's half.
func (r *Ready) Serve(ctx context.Context, d Desk) (exit.End, error) { return r.serve(ctx, d, "run") }

// serve runs a session with one of the device's verbs.
func (r *Ready) serve(ctx context.Context, d Desk, verb ...string) (exit.End, error) {
	text, err := json.Marshal(d.Start)
	if err != nil {
		return exit.End{}, err
	}
	if len(text) > session.MaxFrame {
		return exit.End{}, userError(r.Name(), "the command line and settings require %d bytes, and the limit is %d", len(text), session.MaxFrame)
	}
	var said tail
	stream, err := r.Launch(ctx, &said, append([]string{"device"}, verb...)...)
	if err != nil {
		return exit.End{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := session.New(stream, stream)
	over := make(chan error, 1)
	go func() {
		err := conn.Run(ctx)
		if errors.Is(err, session.ErrSilence) {
			closeSoon(stream) // a silent connection accepts no more data either
		}
		over <- err
	}()
	defer closeSoon(stream)

	if err := conn.Send(session.Start, text); err != nil {
		return exit.End{}, r.gone(err, stream, &said)
	}
	outputs, err := pumpAll(conn, &d)
	if err != nil {
		return exit.End{}, r.gone(err, stream, &said)
	}
	for {
		select {
		case sig := <-d.Signals:
			if s, ok := sig.(syscall.Signal); ok {
				_ = conn.Send(session.Signal, binary.BigEndian.AppendUint32(nil, uint32(s))) // if the connection has failed, over reports it
			}
		case s := <-d.Resized:
			_ = conn.Send(session.Size, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Cols))
		case f, ok := <-conn.Frames():
			if !ok {
				return exit.End{}, r.gone(<-over, stream, &said)
			}
			if f.Kind != session.Exit {
				continue
			}
			end, err := ended(f.Body)
			if err != nil {
				return exit.End{}, broken(r.Name(), "%w", err)
			}
			outputs()
			return end, nil
		case err := <-over:
			if errors.Is(err, session.ErrSilence) || ctx.Err() != nil {
				closeSoon(stream) // otherwise its readers may block forever
			}
			// Process the last frames, which may still be queued.
			for f := range conn.Frames() {
				if f.Kind != session.Exit {
					continue
				}
				if end, err := ended(f.Body); err == nil {
					outputs()
					return end, nil
				}
			}
			return exit.End{}, r.gone(err, stream, &said)
		}
	}
}

// ended parses an ExitMessage, which comes from an untrusted machine. A signal that stops a
// process or is ignored would not end this one.
func ended(body []byte) (exit.End, error) {
	var e session.ExitMessage
	if err := json.Unmarshal(body, &e); err != nil {
		return exit.End{}, fmt.Errorf("reading the exit status: %w", err)
	}
	if e.Error != "" {
		return exit.End{}, errors.New(e.Error)
	}
	end := exit.End{Status: e.Status, Signal: syscall.Signal(e.Signal)}
	if !end.Possible() {
		return exit.End{}, fmt.Errorf("no command ends with status %d and signal %d", e.Status, e.Signal)
	}
	return end, nil
}

// pumpAll starts to copy input and output. The returned function waits until
// all received output is written.
func pumpAll(conn *session.Conn, d *Desk) (func(), error) {
	var wg sync.WaitGroup
	for ch, w := range map[session.Channel]io.Writer{session.Stdout: d.Stdout, session.Stderr: d.Stderr, session.TTYOut: d.Screen} {
		if w == nil {
			continue
		}
		if err := conn.Accept(ch); err != nil {
			return nil, err
		}
		wg.Go(func() {
			if _, err := io.Copy(w, conn.Reader(ch)); err != nil && !errors.Is(err, session.ErrEnded) {
				// The next write of the command then fails, as for a pipe without a
				// reader.
				_ = conn.Close(ch)
				_, _ = io.Copy(io.Discard, conn.Reader(ch))
			}
		})
	}
	for ch, in := range map[session.Channel]io.Reader{session.Stdin: d.Stdin, session.TTYIn: d.Keys} {
		if in != nil {
			go func() { _ = conn.Copy(ch, in) }() // Copy may block forever, so do not wait for it
		}
	}
	return wg.Wait, nil
}

// gone returns an error that explains why a session ended before the command did.
func (r *Ready) gone(err error, stream Stream, said *tail) error {
	if own := new(Error); errors.As(err, &own) {
		return own
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, session.ErrSilence) {
		return broken(r.Name(), "the connection to the device timed out: no data for %v; the run there stops within 10 s", session.Silence)
	}
	if errors.Is(err, session.ErrNoSession) {
		return broken(r.Name(), "%w: the login shell there may print its own text, or the bundle may be of another version of lklrun", err)
	}
	// A message of the command or of the connection may explain the end.
	waited := make(chan error, 1)
	status := 0
	go func() {
		var werr error
		status, werr = stream.Wait()
		waited <- werr
	}()
	select {
	case werr := <-waited:
		if own := new(Error); errors.As(werr, &own) {
			return broken(r.Name(), "the connection to the device was lost: %w; the run there stops within 10 s", own.Err)
		}
		text := strings.TrimPrefix(said.last(), "lklrun: ")
		if status != 0 {
			return broken(r.Name(), "lklrun there exited with status %d%s", status, after(": ", text))
		}
		return broken(r.Name(), "the connection to the device was lost%s; the run there stops within 10 s", after(": ", text))
	case <-time.After(closeLimit):
		return broken(r.Name(), "the connection to the device was lost (%v); the run there stops within 10 s", cmp.Or(err, session.ErrEnded))
	}
}

// closeSoon closes a stream without waiting for a device that does not answer.
func closeSoon(s Stream) {
	done := make(chan struct{})
	go func() { _ = s.Close(); close(done) }() // the result of the session is already known
	select {
	case <-done:
	case <-time.After(closeLimit):
	}
}

// tail keeps the end of a command's standard error.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if most := 4096; len(t.buf) > most {
		t.buf = bytes.Clone(t.buf[len(t.buf)-most:])
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLine(string(t.buf))
}
