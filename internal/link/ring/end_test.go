// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// pair returns two ends of the same link. The second one stands for the stack's.
func pair(t *testing.T) (a, b *End) {
	t.Helper()
	a, bell, err := New()
	if err != nil {
		t.Fatal(err)
	}
	b = &End{frames: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{})}
	mem := receiveHello(t, bell)
	defer unix.Close(mem)
	if err := b.open(mem, bell); err != nil {
		t.Fatal(err)
	}
	b.in, b.out = b.out, b.in
	bell.Close()
	atomic.StoreUint32(b.in.asleep, 1)
	b.armed = true
	go b.listen()
	t.Cleanup(func() {
		a.Close()
		b.Close()
		<-a.closed
		<-b.closed
		a.Release()
		b.Release()
	})
	return a, b
}

// receiveHello receives the first message of a bell, and returns the memory.
func receiveHello(t *testing.T, bell *os.File) int {
	t.Helper()
	msg, oob := make([]byte, 8), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := unix.Recvmsg(int(bell.Fd()), msg, oob, 0)
	if err != nil || n != 8 || binary.NativeEndian.Uint32(msg) != magic || binary.NativeEndian.Uint32(msg[4:]) != 0 {
		t.Fatalf("first message: % x, %v", msg[:n], err)
	}
	all, err := unix.ParseSocketControlMessage(oob[:m])
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		t.Fatal(fds, err)
	}
	return fds[0]
}

// receive returns the next frame.
func (e *End) receive() ([]byte, error) {
	var frame []byte
	err := e.Receive(func(size int) []byte {
		frame = make([]byte, size)
		return frame
	})
	return frame, err
}

// Frames of all sizes arrive in order and unchanged, in both directions at once. The rings
// fill up, and both sides sleep.
func TestFrames(t *testing.T) {
	a, b := pair(t)
	const frames = 20000
	failed := make(chan error, 4)
	send := func(e *End, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var header [HeaderSize]byte
		for range frames {
			frame := make([]byte, ethernetSize+r.IntN(9000))
			if r.IntN(50) == 0 {
				frame = make([]byte, 65536)
			}
			for i := range frame {
				frame[i] = byte(i + len(frame))
			}
			cut := r.IntN(len(frame))
			if err := e.Send(&header, frame[:cut], frame[cut:]); err != nil {
				failed <- err
				return
			}
			if r.IntN(4) == 0 {
				e.Flush()
			}
		}
		e.Flush()
		failed <- nil
	}
	receive := func(e *End, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for n := range frames {
			size := ethernetSize + r.IntN(9000)
			if r.IntN(50) == 0 {
				size = 65536
			}
			_, _ = r.IntN(size), r.IntN(4)
			frame, err := e.receive()
			if err != nil {
				failed <- err
				return
			}
			if len(frame) != size {
				t.Errorf("frame %d: %d bytes, want %d", n, len(frame), size)
				failed <- io.ErrUnexpectedEOF
				return
			}
			for i, c := range frame {
				if c != byte(i+size) {
					t.Errorf("frame %d of %d bytes: byte %d is %#x", n, size, i, c)
					failed <- io.ErrUnexpectedEOF
					return
				}
			}
		}
		failed <- nil
	}
	go send(a, 1)
	go send(b, 2)
	go receive(b, 1)
	go receive(a, 2)
	for range 4 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
}

// The frames that were sent before the other end ended arrive. A writer that waits for
// room ends.
func TestEnd(t *testing.T) {
	a, b := pair(t)
	var header [HeaderSize]byte
	sent := 0
	for ; ringSize-(b.out.at-atomic.LoadUint32(b.out.tail)) >= sizeOf(HeaderSize+60000); sent++ {
		if err := b.Send(&header, make([]byte, 60000)); err != nil {
			t.Fatal(err)
		}
	}
	full := make(chan error)
	go func() { full <- b.Send(&header, make([]byte, 60000)) }()
	for atomic.LoadUint32(b.out.full) == 0 { // until it waits
	}
	b.Close()
	if err := <-full; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a full ring of a closed end: %v", err)
	}
	for n := range sent {
		if frame, err := a.receive(); err != nil || len(frame) != 60000 {
			t.Fatalf("frame %d of %d: %d bytes, %v", n, sent, len(frame), err)
		}
	}
	if _, err := a.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v", err)
	}
}

// An end that breaks the rules is dropped, whatever it writes.
func TestHostile(t *testing.T) {
	for name, spoil := range map[string]func(b *End){
		"head beyond the ring": func(b *End) { atomic.StoreUint32(b.out.head, ringSize+record) },
		"head backwards":       func(b *End) { atomic.StoreUint32(b.out.head, ^uint32(record)+1) },
		"half a record":        func(b *End) { atomic.StoreUint32(b.out.head, record/2) },
		"no length":            func(b *End) { atomic.StoreUint32(b.out.head, record) },
		"length below a header": func(b *End) {
			binary.NativeEndian.PutUint32(b.out.data, HeaderSize+ethernetSize-1)
			atomic.StoreUint32(b.out.head, record)
		},
		"length above the record": func(b *End) {
			binary.NativeEndian.PutUint32(b.out.data, 2*record)
			atomic.StoreUint32(b.out.head, record)
		},
		"length above the limit": func(b *End) {
			binary.NativeEndian.PutUint32(b.out.data, frameMax+1)
			atomic.StoreUint32(b.out.head, ringSize)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			spoil(b)
			if frame, err := a.receive(); !errors.Is(err, ErrBroken) {
				t.Errorf("%d bytes, %v", len(frame), err)
			}
		})
	}
	t.Run("tail beyond the head", func(t *testing.T) {
		a, b := pair(t)
		atomic.StoreUint32(b.in.tail, record)
		var header [HeaderSize]byte
		if err := a.Send(&header, make([]byte, 60)); !errors.Is(err, ErrBroken) {
			t.Errorf("%v", err)
		}
	})
}

// An end that cannot be handed over continues, with the frames and rings of the meantime. One
// that can be is described by the first message of the new bell.
func TestHandOver(t *testing.T) {
	a, b := pair(t)
	var header [HeaderSize]byte
	send := func(e *End, n int) {
		if err := e.Send(&header, make([]byte, ethernetSize+n)); err != nil {
			t.Fatal(err)
		}
		e.Flush()
	}
	expect := func(e *End, n int) {
		if got, err := e.receive(); err != nil || len(got) != ethernetSize+n {
			t.Fatalf("%d bytes, %v; expected %d", len(got), err, ethernetSize+n)
		}
	}
	send(b, 1)
	expect(a, 1)
	send(a, 500)
	send(b, 2)
	a.Stop = func(frame []byte) bool { return len(frame) == ethernetSize+2 }
	if _, err := a.receive(); !errors.Is(err, ErrStopped) {
		t.Fatal(err)
	}
	for range 3 {
		if err := a.HandOver(func(*os.File) error { send(b, 3); return io.ErrNoProgress }); !errors.Is(err, io.ErrNoProgress) {
			t.Fatal(err)
		}
	}
	a.Stop = nil
	for _, n := range []int{2, 3, 3, 3} {
		expect(a, n)
	}
	send(b, 4)
	expect(a, 4)
	expect(b, 500)
	err := a.HandOver(func(bell *os.File) error {
		msg, oob := make([]byte, 100), make([]byte, unix.CmsgSpace(8))
		n, m, _, _, err := unix.Recvmsg(int(bell.Fd()), msg, oob, 0)
		if err != nil {
			return err
		}
		var got [4]uint32
		if n != 16 || m != len(oob) {
			t.Errorf("%d bytes, %d of descriptors", n, m)
		}
		for i := range got {
			got[i] = binary.NativeEndian.Uint32(msg[4*i:])
		}
		if want := [4]uint32{magic, 1, b.out.at, b.in.at}; got != want {
			t.Errorf("handover: %v, expected %v", got, want)
		}
		all, err := unix.ParseSocketControlMessage(oob[:m])
		if err != nil {
			return err
		}
		fds, err := unix.ParseUnixRights(&all[0])
		for _, fd := range fds {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
