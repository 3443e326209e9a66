// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Timing of heartbeats. Each side sends one every Beat. If it receives nothing for
// Silence, it assumes that the other side is gone.
const (
	Beat    = 2 * time.Second
	Silence = 6 * time.Second
)

// Window is the maximum number of unread bytes of a channel, including bytes in
// transit.
const Window = 256 << 10

// ErrSilence reports that the other side was silent for too long.
var ErrSilence = fmt.Errorf("no data for %v", Silence)

// ErrEnded reports that the session has ended.
var ErrEnded = errors.New("the session has ended")

// Conn is one side of a session.
type Conn struct {
	r      io.Reader
	frames chan Frame // frames other than data and credit

	writing sync.Mutex
	w       io.Writer
	out     []byte

	mu    sync.Mutex
	cond  sync.Cond
	err   error // reason why the session ended
	heard time.Time
	chans [nChannels]channel
}

// channel is the state of a channel on one side. A side uses either the fields for
// sending or those for receiving.
type channel struct {
	// For sending.
	credit int
	// For receiving.
	queue []byte
	given int // granted credit that the sender has not used yet
	owed  int // bytes read since credit was last granted
	ended bool
}

// New returns one side of a session. Each direction uses a stream of its own. Run
// starts the session.
func New(r io.Reader, w io.Writer) *Conn {
	c := &Conn{r: bufio.NewReaderSize(r, MaxFrame+headSize), w: w, frames: make(chan Frame, 64)}
	c.cond.L = &c.mu
	return c
}

// Run reads frames until the stream ends, the other side is silent, or ctx is done.
// It returns the reason for the end; io.EOF means that the stream ended between two
// frames. Frames other than data and credit are sent to Frames, which is closed at
// the end. Run does not wait for a blocked read, so the caller must close the
// stream.
func (c *Conn) Run(ctx context.Context) error {
	c.mu.Lock()
	c.heard = time.Now()
	c.mu.Unlock()
	read := make(chan error, 1)
	go func() { read <- c.readAll() }()
	go c.sendHeartbeats(ctx)
	tick := time.NewTicker(Silence / 12)
	defer tick.Stop()
	for {
		var err error
		select {
		case err = <-read:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-tick.C:
			c.mu.Lock()
			silent := time.Since(c.heard)
			c.mu.Unlock()
			if silent < Silence {
				continue
			}
			err = ErrSilence
		}
		c.fail(err)
		return err
	}
}

// Frames returns the channel of all frames other than data, credit and
// heartbeats, in order. It is closed when nothing more is read.
func (c *Conn) Frames() <-chan Frame { return c.frames }

// sendHeartbeats sends heartbeats.
func (c *Conn) sendHeartbeats(ctx context.Context) {
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	for {
		if err := c.Send(Heartbeat, nil); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// fail ends all waiting calls.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		if err == nil || errors.Is(err, io.EOF) {
			err = ErrEnded
		}
		c.err = err
	}
	c.cond.Broadcast()
}

func (c *Conn) readAll() error {
	defer close(c.frames)
	buf := make([]byte, MaxFrame)
	for {
		f, err := ReadFrame(c.r, buf)
		if err != nil {
			return err
		}
		if err := c.take(f); err != nil {
			return err
		}
	}
}

// take processes a received frame. It blocks only if nothing reads Frames. Data
// never blocks it, because the granted credit limits the data of each channel.
func (c *Conn) take(f Frame) error {
	c.mu.Lock()
	c.heard = time.Now()
	over := c.err
	c.mu.Unlock()
	if over != nil {
		return over
	}
	var ch Channel
	switch f.Kind {
	case Heartbeat:
		return nil
	case Data, End, Credit:
		if len(f.Body) == 0 || f.Body[0] >= byte(nChannels) {
			return errors.New("a session frame has no channel")
		}
		ch = Channel(f.Body[0])
	default:
		f.Body = append([]byte(nil), f.Body...)
		select {
		case c.frames <- f:
			return nil
		case <-time.After(Silence): // Frames has no reader
			return ErrEnded
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.cond.Broadcast()
	s, body := &c.chans[ch], f.Body[1:]
	switch f.Kind {
	case Data:
		if len(body) > s.given || s.ended {
			return fmt.Errorf("channel %d: %d bytes received, but only %d requested", ch, len(body), s.given)
		}
		s.given -= len(body)
		s.queue = append(s.queue, body...)
	case End:
		s.ended = true
	case Credit:
		if len(body) != 4 {
			return errors.New("truncated credit frame")
		}
		n := binary.BigEndian.Uint32(body)
		if n > Window || s.credit+int(n) > Window {
			return fmt.Errorf("channel %d: credit for more than %d bytes", ch, Window)
		}
		s.credit += int(n)
	}
	return nil
}

// Send sends a frame that is not data. An error means that the connection has
// failed.
func (c *Conn) Send(k Kind, body []byte) error {
	if len(body) > MaxFrame {
		return fmt.Errorf("%d bytes exceed the limit of a session frame", len(body))
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = AppendFrame(c.out[:0], Frame{k, body})
	_, err := c.w.Write(c.out)
	if err != nil {
		c.fail(err)
	}
	return err
}

// SendJSON sends a frame with v as JSON.
func (c *Conn) SendJSON(k Kind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Send(k, body)
}

// Accept grants the other side the first credit for a channel. The caller must call
// it once, before Read.
func (c *Conn) Accept(ch Channel) error {
	c.mu.Lock()
	c.chans[ch].given = Window
	c.mu.Unlock()
	return c.sendCredit(ch, Window)
}

func (c *Conn) sendCredit(ch Channel, n int) error {
	return c.Send(Credit, binary.BigEndian.AppendUint32([]byte{byte(ch)}, uint32(n)))
}

// Read reads data from a channel. It returns io.EOF at the end.
func (c *Conn) Read(ch Channel, p []byte) (int, error) {
	c.mu.Lock()
	s := &c.chans[ch]
	for len(s.queue) == 0 && !s.ended && c.err == nil {
		c.cond.Wait()
	}
	if len(s.queue) == 0 {
		err := c.err
		c.mu.Unlock()
		if s.ended {
			err = io.EOF
		}
		return 0, err
	}
	n := copy(p, s.queue)
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	s.owed += n
	give := 0
	if s.owed >= Window/4 && !s.ended && c.err == nil {
		give, s.owed = s.owed, 0
		s.given += give
	}
	c.mu.Unlock()
	if give > 0 {
		_ = c.sendCredit(ch, give) // if the connection has failed, the next Read reports it
	}
	return n, nil
}

// Room waits until the other side accepts data on a channel. It returns the number
// of bytes that Write can send without blocking. This allows the caller to read a
// source only when the other side accepts its data. If the other side has closed
// the channel because nothing reads it any more, the error is io.ErrClosedPipe.
func (c *Conn) Room(ch Channel) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.chans[ch]
	for s.credit == 0 && !s.ended && c.err == nil {
		c.cond.Wait()
	}
	if s.ended && c.err == nil {
		return 0, io.ErrClosedPipe
	}
	return s.credit, c.err
}

// Write sends bytes on a channel as fast as the other side accepts them.
func (c *Conn) Write(ch Channel, p []byte) (int, error) {
	done := 0
	for done < len(p) {
		room, err := c.Room(ch)
		if err != nil {
			return done, err
		}
		n := min(room, len(p)-done, MaxFrame-1)
		c.mu.Lock()
		c.chans[ch].credit -= n
		c.mu.Unlock()
		if err := c.sendData(ch, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (c *Conn) sendData(ch Channel, p []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = append(c.out[:0], byte(Data))
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(p)+1))
	c.out = append(append(c.out, byte(ch)), p...)
	_, err := c.w.Write(c.out)
	if err != nil {
		c.fail(err)
	}
	return err
}

// Close sends the end of a channel. For a channel that this side reads, it tells
// the other side that nothing reads the channel any more.
func (c *Conn) Close(ch Channel) error { return c.Send(End, []byte{byte(ch)}) }

// Copy sends the data of r on a channel, and then the end of the channel. It reads
// from r only as much as the other side accepts. It returns an error of r or of the
// connection.
func (c *Conn) Copy(ch Channel, r io.Reader) error {
	buf := make([]byte, MaxFrame-1)
	for {
		room, err := c.Room(ch)
		if err != nil {
			return err
		}
		n, rerr := r.Read(buf[:min(room, len(buf))])
		if n > 0 {
			if _, err := c.Write(ch, buf[:n]); err != nil {
				return err
			}
		}
		if rerr != nil {
			if err := c.Close(ch); err != nil {
				return err
			}
			if errors.Is(rerr, io.EOF) {
				return nil
			}
			return rerr
		}
	}
}

// Reader returns a channel as an io.Reader.
func (c *Conn) Reader(ch Channel) io.Reader { return reader{c, ch} }

type reader struct {
	c  *Conn
	ch Channel
}

func (r reader) Read(p []byte) (int, error) { return r.c.Read(r.ch, p) }
