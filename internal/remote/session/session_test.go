// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// limit is the timeout of operations that are fast unless the machine is busy.
const limit = 20 * time.Second

// pair returns both sides of a session over an unbuffered pipe.
func pair(t *testing.T) (desk, device *Conn, cut func(), ends [2]chan error) {
	t.Helper()
	a, b := net.Pipe()
	cut = func() { a.Close(); b.Close() }
	t.Cleanup(cut)
	desk, device = New(a, a), New(b, b)
	for n, c := range []*Conn{desk, device} {
		ends[n] = make(chan error, 1)
		go func() { ends[n] <- c.Run(t.Context()) }()
	}
	return desk, device, cut, ends
}

// wait waits for a value from another goroutine.
func wait[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatalf("%s: nothing came", what)
		}
		return v
	case <-time.After(limit):
		t.Fatalf("%s: nothing came for %v", what, limit)
	}
	panic("unreachable")
}

// All bytes arrive in order, in both directions at once, even with slow
// readers. Other frames pass at the same time.
func TestTransfer(t *testing.T) {
	desk, device, _, _ := pair(t)
	text := make([]byte, 3*Window+4711)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(text)
	var wg sync.WaitGroup
	check := func(name string, c *Conn, ch Channel, slow bool) {
		defer wg.Done()
		h := sha256.New()
		r := c.Reader(ch)
		if slow {
			r = iotest.HalfReader(r)
		}
		n, err := io.Copy(h, r)
		if want := sha256.Sum256(text); err != nil || n != int64(len(text)) || !bytes.Equal(h.Sum(nil), want[:]) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	for _, a := range []struct {
		c  *Conn
		ch Channel
	}{{device, Stdin}, {desk, Stdout}, {desk, Stderr}} {
		if err := a.c.Accept(a.ch); err != nil {
			t.Fatal(err)
		}
	}
	wg.Add(3)
	go check("stdin", device, Stdin, true)
	go check("stdout", desk, Stdout, false)
	go check("stderr", desk, Stderr, true)
	for ch, c := range map[Channel]*Conn{Stdin: desk, Stdout: device, Stderr: device} {
		go func() {
			if err := c.Copy(ch, bytes.NewReader(text)); err != nil {
				t.Errorf("sending on %d: %v", ch, err)
			}
		}()
	}
	want := StartMessage{Args: []string{"--if", "user", "--", "true"}, TTY: true, Rows: 24}
	if err := desk.SendJSON(Start, want); err != nil {
		t.Fatal(err)
	}
	if f := wait(t, "the frame", device.Frames()); f.Kind != Start || !bytes.Contains(f.Body, []byte(`"rows":24`)) {
		t.Errorf("frame %d: %s", f.Kind, f.Body)
	}
	wg.Wait()
}

// counting counts the bytes read from it.
type counting struct{ n int }

func (c *counting) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// Copy reads its input only when the other side accepts data, and only as much as
// the other side accepts.
func TestCredit(t *testing.T) {
	desk, device, cut, _ := pair(t)
	in := &counting{}
	done := make(chan error, 1)
	go func() { done <- desk.Copy(Stdin, in) }()
	// A frame in the meantime shows that the session works.
	if err := desk.Send(Signal, nil); err != nil {
		t.Fatal(err)
	}
	wait(t, "the frame", device.Frames())
	select {
	case err := <-done:
		t.Fatalf("it has ended: %v", err)
	default:
	}
	if err := device.Accept(Stdin); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if _, err := io.ReadFull(device.Reader(Stdin), buf); err != nil {
		t.Fatal(err)
	}
	// The sender fills the window and then stops.
	deadline := time.Now().Add(limit)
	defer time.AfterFunc(limit, device.cond.Broadcast).Stop()
	device.mu.Lock()
	for len(device.chans[Stdin].queue) != Window-len(buf) && time.Now().Before(deadline) {
		device.cond.Wait()
	}
	n := len(device.chans[Stdin].queue)
	device.mu.Unlock()
	if n != Window-len(buf) {
		t.Fatalf("%d bytes wait to be read", n)
	}
	cut()
	if err := wait(t, "the end", done); err == nil {
		t.Error("no error when the way is gone")
	}
	if in.n != Window {
		t.Errorf("%d bytes were read of the input, %d were asked for", in.n, Window)
	}
}

// If a side stops reading, it reports this to the sender.
func TestNobodyReads(t *testing.T) {
	desk, device, _, _ := pair(t)
	if err := desk.Accept(Stdout); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- device.Copy(Stdout, &counting{}) }()
	if _, err := io.ReadFull(desk.Reader(Stdout), make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := desk.Close(Stdout); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, "the end", done); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want %v", err, io.ErrClosedPipe)
	}
}

// A silent side counts as gone after Silence, unless it sends heartbeats.
func TestSilence(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	go func() { _, _ = io.Copy(io.Discard, b) }()
	began := time.Now()
	err := New(a, a).Run(t.Context())
	if took := time.Since(began); !errors.Is(err, ErrSilence) || took < Silence || took > 2*Silence {
		t.Errorf("%v after %v", err, took)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	_, _, cut, ends := pair(t)
	select {
	case err := <-ends[0]:
		t.Fatalf("over: %v", err)
	case <-time.After(Silence + Silence/2):
	}
	cut()
	if err := wait(t, "the end", ends[1]); err == nil {
		t.Error("no error when the way is gone")
	}
}

// The end of a context ends all waiting calls.
func TestContext(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	c := New(a, a)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	read := make(chan error, 1)
	go func() { _, err := c.Read(Stdout, make([]byte, 1)); read <- err }()
	cancel()
	if err := wait(t, "Run", over); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if err := wait(t, "Read", read); err == nil {
		t.Error("Read: no error")
	}
}

// Invalid data ends the session with a reason, and without using much memory.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"a shell's words":  {[]byte("sh: lklrun: not found\n"), "not a session frame (kind 115, 1748639852 bytes)"},
		"too long":         {[]byte{byte(Data), 0, 1, 0, 1}, "not a session frame (kind 2, 65537 bytes)"},
		"no channel":       {AppendFrame(nil, Frame{Data, []byte{9, 1}}), "a session frame has no channel"},
		"not asked for":    {AppendFrame(nil, Frame{Data, []byte{0, 1}}), "channel 0: 1 bytes received, but only 0 requested"},
		"much credit":      {AppendFrame(nil, Frame{Credit, []byte{0, 255, 0, 0, 0}}), "channel 0: credit for more than 262144 bytes"},
		"half a credit":    {AppendFrame(nil, Frame{Credit, []byte{0, 255}}), "truncated credit frame"},
		"cut in the head":  {[]byte{byte(Data), 0}, io.ErrUnexpectedEOF.Error()},
		"cut in the body":  {[]byte{byte(Data), 0, 0, 0, 9, 1}, io.ErrUnexpectedEOF.Error()},
		"cut between them": {AppendFrame(nil, Frame{Heartbeat, nil}), io.EOF.Error()},
	} {
		c2 := New(bytes.NewReader(c.bytes), io.Discard)
		if err := c2.Run(t.Context()); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// Any input is either rejected or parsed to a frame that encodes to the same
// bytes.
func FuzzFrames(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, Frame{Data, []byte{1, 2, 3}}), Frame{Credit, []byte{0, 0, 0, 1, 0}}))
	f.Add([]byte{byte(Exit), 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		buf := make([]byte, MaxFrame)
		var again []byte
		for {
			before := len(b) - r.Len()
			frame, err := ReadFrame(r, buf)
			if err != nil {
				again = append(again, b[before:]...)
				break
			}
			again = AppendFrame(again, frame)
		}
		if !bytes.Equal(b, again) {
			t.Errorf("%x was read as %x", b, again)
		}
		c := New(bytes.NewReader(b), io.Discard)
		_ = c.Accept(Stdin)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		go func() {
			for range c.Frames() {
			}
		}()
		if err := c.Run(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", err)
		}
		if n := len(c.chans[Stdin].queue); n > Window {
			t.Errorf("%d bytes are kept", n)
		}
	})
}
