// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// HeaderSize is the size of the struct virtio_net_hdr_v1 before each frame.
	HeaderSize = 12

	record       = 64 // alignment of records
	lengthSize   = 4
	ethernetSize = 14
	frameMax     = HeaderSize + 65536 + 64
)

// ErrBroken reports that the other end has broken the rules of the rings.
var ErrBroken = errors.New("the other end of the link wrote an invalid record")

// ErrStopped reports that Receive has left a frame in the ring because of Stop.
var ErrStopped = errors.New("the next frame is not for this end")

// End is an end of a wire with exactly one other end. The other end is not trusted: it may
// write anything into the memory at any time. So each value is read once and checked, the
// own position is private, and a frame is copied before anybody parses it.
//
// One goroutine at a time may call Receive, and one at a time Send and Flush.
type End struct {
	// Stop is called with the copy of each frame; nil: not called. If it returns true, the
	// frame stays in the ring, and Receive returns ErrStopped.
	Stop func(frame []byte) bool

	mem     *os.File
	bell    *net.UnixConn
	raw     bellSocket
	ctls    []byte
	in, out half

	frames chan struct{} // capacity 1: there may be frames
	room   chan struct{} // capacity 1: there may be room
	closed chan struct{} // the other end has closed its bell, or this one has
	armed  bool          // the other end rings for the next frame
	last   *uint32       // head of the ring in when closed was seen; nil: not seen
}

// bellSocket is a net.UnixConn's syscall.RawConn.
type bellSocket interface {
	Control(f func(fd uintptr)) error
}

// half is a ring as one side uses it.
type half struct {
	head, full, tail, asleep *uint32 // the shared state
	data                     []byte  // the ring, mapped twice in a row
	at                       uint32  // own position: head of a writer, tail of a reader
}

// New creates an end. It returns the bell of the other end, which the caller passes on
// and then closes.
func New() (e *End, bell *os.File, err error) {
	mem, fds, err := create()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "bell"), os.NewFile(uintptr(fds[1]), "bell")
	defer ours.Close() // FileConn duplicates it
	e = &End{mem: os.NewFile(uintptr(mem), "wire"), frames: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{})}
	if err = hello(fds[0], mem, 0); err == nil {
		err = e.open(mem, ours)
	}
	if err != nil {
		e.Release()
		theirs.Close()
		return nil, nil, err
	}
	atomic.StoreUint32(e.in.asleep, 1) // the first frame must ring
	e.armed = true
	go e.listen()
	return e, theirs, nil
}

// open maps the memory and opens this end's half of the bell. The other end writes ring 0.
func (e *End) open(mem int, bell *os.File) (err error) {
	if e.ctls, err = unix.Mmap(mem, 0, 2*ctlSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	for side, h := range []*half{&e.in, &e.out} {
		state := func(i int) *uint32 { return (*uint32)(unsafe.Pointer(&e.ctls[side*ctlSize+i])) }
		h.head, h.full, h.tail, h.asleep = state(0), state(4), state(64), state(68)
		if h.data, err = mapTwice(mem, 2*ctlSize+side*ringSize); err != nil {
			return err
		}
	}
	c, err := net.FileConn(bell)
	if err != nil {
		return err
	}
	e.bell = c.(*net.UnixConn)
	e.raw, err = e.bell.SyscallConn()
	return err
}

// mapTwice maps a ring twice in a row, so that a record at its end is contiguous.
func mapTwice(mem, offset int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, 2*ringSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	for i := range 2 {
		_, err = unix.MmapPtr(mem, int64(offset), unsafe.Add(p, i*ringSize), ringSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			_ = unix.MunmapPtr(p, 2*ringSize) // unmaps what has been mapped
			return nil, os.NewSyscallError("mmap", err)
		}
	}
	return unsafe.Slice((*byte)(p), 2*ringSize), nil
}

// listen waits for the bell. One ring may report frames, room, or neither.
func (e *End) listen() {
	defer close(e.closed)
	var b [8]byte
	for {
		if n, err := e.bell.Read(b[:]); err != nil || n == 0 {
			return
		}
		e.wake()
	}
}

// wake wakes Receive and Send.
func (e *End) wake() {
	for _, c := range []chan struct{}{e.frames, e.room} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// ring rings the other end's bell. If the socket is full, the other end has not yet heard
// earlier rings.
func (e *End) ring() {
	_ = e.raw.Control(func(fd uintptr) { // fails if this end is closed
		_ = unix.Send(int(fd), []byte{0}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
}

// Receive waits for a frame and copies it to the slice that room returns for its length.
// The virtio-net header is dropped. After either end was closed, Receive returns the
// remaining frames, and then io.EOF.
func (e *End) Receive(room func(size int) []byte) error {
	for {
		ok, err := e.take(room)
		if ok || err != nil {
			return err
		}
		if e.last != nil {
			return io.EOF
		}
		if !e.armed {
			e.armed = true
			atomic.StoreUint32(e.in.asleep, 1)
			continue // a frame that was written before did not ring
		}
		select {
		case <-e.frames:
			// The other end has cleared asleep, or this was a late ring.
			e.armed = false
		case <-e.closed:
			// The other end could write forever, unless it has ended.
			last := atomic.LoadUint32(e.in.head)
			e.last = &last
		}
	}
}

// take copies the next frame, if there is one.
func (e *End) take(room func(size int) []byte) (bool, error) {
	r := &e.in
	head := atomic.LoadUint32(r.head)
	if e.last != nil {
		head = *e.last
	}
	used := head - r.at
	if used == 0 {
		return false, nil
	}
	if used > ringSize || used%record != 0 {
		return false, ErrBroken
	}
	from := r.data[r.at%ringSize:]
	length := atomic.LoadUint32((*uint32)(unsafe.Pointer(&from[0])))
	if length < HeaderSize+ethernetSize || length > frameMax {
		return false, ErrBroken
	}
	size := sizeOf(int(length))
	if size > used {
		return false, ErrBroken
	}
	frame := room(int(length) - HeaderSize)
	copy(frame, from[lengthSize+HeaderSize:lengthSize+length])
	if e.Stop != nil && e.Stop(frame) {
		return false, ErrStopped
	}
	r.at += size
	atomic.StoreUint32(r.tail, r.at)
	if atomic.LoadUint32(r.full) != 0 && used-size <= ringSize/2 && atomic.SwapUint32(r.full, 0) != 0 {
		e.ring()
	}
	return true, nil
}

// sizeOf returns the size of a record.
func sizeOf(length int) uint32 {
	return uint32((length + lengthSize + record - 1) / record * record)
}

// Send writes a frame with its virtio-net header. It waits for room. The other end learns
// of the frame with Flush.
func (e *End) Send(header *[HeaderSize]byte, frame ...[]byte) error {
	length := HeaderSize
	for _, part := range frame {
		length += len(part)
	}
	if length > frameMax {
		return fmt.Errorf("a frame of %d bytes is too long", length-HeaderSize)
	}
	size, r := sizeOf(length), &e.out
	for {
		fits, err := r.fits(size)
		if err != nil {
			return err
		}
		if fits {
			break
		}
		e.Flush()
		atomic.StoreUint32(r.full, 1)
		if fits, err = r.fits(size); fits || err != nil {
			continue
		}
		select {
		case <-e.room:
		case <-e.closed:
			return net.ErrClosed
		}
	}
	to := r.data[r.at%ringSize:]
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&to[0])), uint32(length))
	to = to[lengthSize:]
	to = to[copy(to, header[:]):]
	for _, part := range frame {
		to = to[copy(to, part):]
	}
	r.at += size
	atomic.StoreUint32(r.head, r.at)
	return nil
}

// fits reports whether a record fits.
func (r *half) fits(size uint32) (bool, error) {
	used := r.at - atomic.LoadUint32(r.tail)
	if used > ringSize {
		return false, ErrBroken
	}
	return ringSize-used >= size, nil
}

// Flush wakes the other end if it sleeps.
func (e *End) Flush() {
	if atomic.LoadUint32(e.out.asleep) != 0 && atomic.SwapUint32(e.out.asleep, 0) != 0 {
		e.ring()
	}
}

// HandOver makes another process the end: to is called with a bell for CTL_LINK_JOIN, whose
// owner continues with the next frame. If it succeeds, this end must only be released. If it
// fails, this end continues. No other method may be running.
func (e *End) HandOver(to func(bell *os.File) error) error {
	e.Flush()
	// From here on, this process must hear no ring that is for the other one.
	if err := e.bell.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	<-e.closed
	err := e.sendState(to)
	if err == nil {
		return nil
	}
	e.closed = make(chan struct{})
	e.wake() // the other end may have rung meanwhile
	err = errors.Join(err, e.bell.SetReadDeadline(time.Time{}))
	go e.listen()
	return err
}

// sendState sends the state of the end, a struct lkl_wire_handover, over a new bell.
func (e *End) sendState(to func(bell *os.File) error) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	bell := os.NewFile(uintptr(fds[1]), "bell")
	defer bell.Close()
	defer unix.Close(fds[0])
	msg := binary.NativeEndian.AppendUint32(nil, magic)
	for _, n := range []uint32{1, e.in.at, e.out.at} { // 1: the side of End
		msg = binary.NativeEndian.AppendUint32(msg, n)
	}
	var serr error
	err = e.raw.Control(func(fd uintptr) {
		serr = os.NewSyscallError("sendmsg", unix.Sendmsg(fds[0], msg, unix.UnixRights(int(e.mem.Fd()), int(fd)), nil, unix.MSG_NOSIGNAL))
	})
	if err = errors.Join(err, serr); err != nil {
		return err
	}
	return to(bell)
}

// Close ends the link.
func (e *End) Close() { e.bell.Close() }

// Release frees the memory. No other method may be called afterwards.
func (e *End) Release() {
	if e.bell != nil {
		e.bell.Close()
	}
	for _, h := range []*half{&e.in, &e.out} {
		if h.data != nil {
			_ = unix.MunmapPtr(unsafe.Pointer(&h.data[0]), 2*ringSize) // maps all of it
		}
		h.data = nil
	}
	if e.ctls != nil {
		_ = unix.Munmap(e.ctls) // maps all of it
		e.ctls = nil
	}
	e.mem.Close() // nil is no problem
}
