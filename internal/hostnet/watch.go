// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Watch waits for the end of the host's end of an interface: of a device that
// somebody deletes, of a socket that its peer closes. Of a device it tells
// before that, too, whether it carries anything.
type Watch struct {
	gone chan struct{} // closed when it is gone
	news chan bool     // of one: whether it carries, when that has changed
	done chan struct{} // closed when nobody watches any more
	stop func()
}

// Gone is closed when what is watched is gone.
func (w *Watch) Gone() <-chan struct{} { return w.gone }

// Carries tells each time when the device has begun to carry, or has ceased to:
// it is up and has carrier, or not. It is taken for one that carries at first.
// Of changes that nobody has taken yet the last one is kept.
func (w *Watch) Carries() <-chan bool { return w.news }

// Close ends the watch.
func (w *Watch) Close() {
	w.stop()
	<-w.done
}

// WatchDevice watches the device with the index ifindex in the current network
// namespace.
func WatchDevice(ifindex int) (*Watch, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("watching the host's devices: %w", err)
	}
	if err := c.JoinGroup(unix.RTNLGRP_LINK); err != nil {
		c.Close()
		return nil, fmt.Errorf("watching the host's devices: %w", err)
	}
	w := &Watch{gone: make(chan struct{}), news: make(chan bool, 1), done: make(chan struct{}), stop: func() { c.Close() }}
	carries, err := looksUp(ifindex)
	if err != nil { // since it was opened
		close(w.gone)
	} else if !carries {
		w.news <- false
	}
	go w.device(c, ifindex, carries)
	return w, nil
}

const carrying = unix.IFF_UP | unix.IFF_LOWER_UP

// looksUp looks whether the device carries. The error is that it is not there.
func looksUp(ifindex int) (bool, error) {
	if _, err := net.InterfaceByIndex(ifindex); err != nil {
		return false, err
	}
	body, err := ifinfomsg(ifindex, 0, 0, nil)
	if err != nil {
		return false, err
	}
	msgs, err := rtnl(context.Background(), unix.RTM_GETLINK, 0, body)
	if err != nil {
		return false, err
	}
	for _, m := range msgs {
		if len(m.Data) >= unix.SizeofIfInfomsg {
			return binary.NativeEndian.Uint32(m.Data[8:])&carrying == carrying, nil
		}
	}
	return true, nil
}

// tell puts what is new in the place of what was.
func (w *Watch) tell(carries bool) {
	select {
	case <-w.news:
	default:
	}
	w.news <- carries
}

func (w *Watch) device(c *netlink.Conn, ifindex int, carries bool) {
	defer close(w.done)
	for {
		msgs, err := c.Receive()
		lost := errors.Is(err, unix.ENOBUFS) // so many changes that some were not told
		if err != nil && !lost {
			return
		}
		gone, now := false, carries
		for _, m := range msgs {
			if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] != unix.AF_UNSPEC ||
				int(int32(binary.NativeEndian.Uint32(m.Data[4:]))) != ifindex {
				continue
			}
			gone = gone || m.Header.Type == unix.RTM_DELLINK
			now = binary.NativeEndian.Uint32(m.Data[8:])&carrying == carrying
		}
		if lost {
			now, err = looksUp(ifindex)
			gone = err != nil
		}
		if now != carries && !gone {
			carries = now
			w.tell(carries)
		}
		if gone {
			select {
			case <-w.gone:
			default:
				close(w.gone)
			}
		}
	}
}

// WatchSocket watches the socket fd, of which it makes a copy: the other end of
// a connected pair is closed. Of datagram sockets the kernel does not tell.
func WatchSocket(fd *os.File) (*Watch, error) {
	raw, err := fd.SyscallConn()
	if err != nil {
		return nil, err
	}
	dup := -1
	var derr error
	if err := raw.Control(func(n uintptr) { dup, derr = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, fmt.Errorf("watching a socket: %w", derr)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(dup)
		return nil, fmt.Errorf("watching a socket: %w", err)
	}
	w := &Watch{gone: make(chan struct{}), done: make(chan struct{})}
	w.stop = func() {
		if _, err := unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			panic(err) // an eventfd of our own
		}
	}
	go w.socket(dup, wake)
	return w, nil
}

// socket asks for no event but those that need not be asked for, so that frames
// wake nobody.
func (w *Watch) socket(fd, wake int) {
	defer close(w.done)
	defer unix.Close(fd)
	defer unix.Close(wake)
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}, {Fd: int32(fd)}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents != 0 {
			return
		}
		if len(fds) > 1 && fds[1].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			close(w.gone)
			fds = fds[:1]
		}
	}
}
