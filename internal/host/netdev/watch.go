// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch reports that the host's end of an interface is gone: its device was
// deleted, or the peer of its socket has closed the connection. For a device,
// it also reports changes of the carrier.
type Watch struct {
	gone    chan struct{} // closed when the object is gone
	carrier chan bool     // capacity 1: the latest carrier state, after a change
	done    chan struct{} // closed when the watch has ended
	stop    func()
}

// Gone returns a channel that is closed when the watched object is gone.
func (w *Watch) Gone() <-chan struct{} { return w.gone }

// Carries returns a channel that receives each change of the device's state:
// true if it is up and has carrier, false if not. The initial state is assumed
// to be true. If several changes are not received in time, the channel keeps
// only the last one.
func (w *Watch) Carries() <-chan bool { return w.carrier }

// Close ends the watch.
func (w *Watch) Close() {
	w.stop()
	<-w.done
}

// WatchDevice watches the device with the index ifindex in the current network
// namespace.
func WatchDevice(ifindex int) (*Watch, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		return nil, fmt.Errorf("watching the host's devices: %w", err)
	}
	w := &Watch{gone: make(chan struct{}), carrier: make(chan bool, 1), done: make(chan struct{}), stop: s.Close}
	carries, err := looksUp(ifindex)
	if err != nil { // it was deleted after it was opened
		close(w.gone)
	} else if !carries {
		w.carrier <- false
	}
	go w.device(s, ifindex, carries)
	return w, nil
}

// ReportedWatch returns a watch of an object whose owner reports each change of its
// carrier.
func ReportedWatch() (w *Watch, report func(carries bool)) {
	w = &Watch{gone: make(chan struct{}), carrier: make(chan bool, 1), done: make(chan struct{})}
	w.stop = func() { close(w.done) }
	return w, w.tell
}

const carrying = unix.IFF_UP | unix.IFF_LOWER_UP

// looksUp reports whether the device is up and has carrier. It returns an error
// if the device does not exist.
func looksUp(ifindex int) (bool, error) {
	d, err := netlink.LinkByIndex(ifindex)
	return err == nil && d.Attrs().RawFlags&carrying == carrying, err
}

// tell replaces an unread state by the new one.
func (w *Watch) tell(carries bool) {
	select {
	case <-w.carrier:
	default:
	}
	w.carrier <- carries
}

func (w *Watch) device(s *nl.NetlinkSocket, ifindex int, carries bool) {
	defer close(w.done)
	for {
		msgs, _, err := s.Receive()
		lost := errors.Is(err, unix.ENOBUFS) // some changes were lost because there were too many
		if err != nil && !lost {
			return
		}
		gone, now := false, carries
		for _, m := range msgs {
			if len(m.Data) < unix.SizeofIfInfomsg {
				continue
			}
			if l := nl.DeserializeIfInfomsg(m.Data); l.Family == unix.AF_UNSPEC && int(l.Index) == ifindex {
				gone = gone || m.Header.Type == unix.RTM_DELLINK
				now = l.Flags&carrying == carrying
			}
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

// WatchSocket watches a copy of the socket fd for the close of the other end of
// a connected pair. For datagram sockets the kernel does not report that.
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
			panic(err) // cannot fail for our own eventfd
		}
	}
	go w.socket(dup, wake)
	return w, nil
}

// socket requests no events; the kernel reports errors and hangups anyway. Thus
// frames do not wake this process.
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
