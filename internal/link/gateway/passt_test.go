// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Invalid frames from passt are handled. Empty frames are dropped, because an
// empty message tells the stack that the link has ended. After an invalid
// length, nothing more is read.
func TestPasstFrames(t *testing.T) {
	socket, passt := net.Pipe()
	link, end, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	stack, err := net.FileConn(end)
	end.Close()
	if err != nil {
		t.Fatal(err)
	}
	p := &Passt{socket: socket, link: link, frames: make(chan []byte, maxQueued)}
	p.copied.Go(func() { p.fromPasst(slog.New(slog.DiscardHandler)) })
	p.copied.Go(p.toStack)
	defer p.copied.Wait()
	defer passt.Close()
	defer stack.Close()
	limit := time.Now().Add(20 * time.Second)
	_ = passt.SetDeadline(limit) // pipes support deadlines
	if err := stack.SetDeadline(limit); err != nil {
		t.Fatal(err)
	}
	var stream []byte
	frames := [][]byte{{}, []byte("first"), {}, {}, bytes.Repeat([]byte("x"), maxFrame), {}, []byte("last")}
	for _, f := range frames {
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(f))), f...)
	}
	stream = binary.BigEndian.AppendUint32(stream, maxFrame+1)
	sent := make(chan error, 1)
	go func() {
		_, err := passt.Write(stream)
		sent <- err
	}()
	buf := make([]byte, maxFrame+1)
	for _, f := range frames {
		if len(f) == 0 {
			continue
		}
		if n, err := stack.Read(buf); err != nil || !bytes.Equal(buf[:n], f) {
			t.Fatalf("a frame of %d bytes: %d have come, %v", len(f), n, err)
		}
	}
	if n, err := stack.Read(buf); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("after the length that cannot be: %d bytes, %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if why := p.Gone(); !strings.Contains(why, "passt sent a frame of 65537 bytes") {
		t.Errorf("the reason told: %s", why)
	}
}

// A stream's frames come out unchanged, whatever is between them. No frame has
// a length above the maximum.
func FuzzPasstFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 3})
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for {
			b, err := nextFrame(r)
			if err != nil {
				return
			}
			at := len(stream) - r.Len()
			if len(b) == 0 || len(b) > maxFrame || !bytes.Equal(b, stream[at-len(b):at]) {
				t.Fatalf("%x: frame %x", stream, b)
			}
		}
	})
}
