// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// FDKind is the kind of a descriptor that carries frames or packets.
type FDKind int

// The kinds of descriptors.
const (
	FDSocket FDKind = iota // one frame per message
	FDTap
	FDTun
	FDPacket // AF_PACKET, Ethernet frames
	FDCooked // AF_PACKET on a device without link layer
)

// RawIP reports whether the descriptor carries IP packets, without link layer.
func (k FDKind) RawIP() bool { return k == FDTun || k == FDCooked }

// Frames is a descriptor that carries Ethernet frames or IP packets.
type Frames struct {
	File    *os.File
	Kind    FDKind
	VnetHdr bool // a virtio_net_hdr precedes each frame

	Name    string // of the device
	Ifindex int    // its index, if it is in the current network namespace
}

// CheckFD checks that the inherited descriptor n can carry frames, and returns
// its kind. It can be
//
//   - a tap or tun that is attached with IFF_NO_PI, that is, without four
//     extra bytes before each frame;
//   - a packet socket bound to a device;
//   - another connected datagram or sequential-packet socket.
func CheckFD(n int) (FDKind, error) {
	// Inherited descriptors do not have the flag FD_CLOEXEC. Descriptors
	// that this process opened have it.
	if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		return 0, notOpen(n)
	}
	kind, _, err := lookFD(n, n)
	return kind, err
}

// CheckPassed is like CheckFD, for a descriptor that another process passed.
// The argument called is its number in that process.
func CheckPassed(file *os.File, called int) (FDKind, error) {
	var kind FDKind
	err := control(file, func(fd int) (err error) {
		kind, _, err = lookFD(fd, called)
		return err
	})
	return kind, err
}

// control calls f with file's descriptor, and leaves it non-blocking.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = f(int(fd)) })
	return errors.Join(err, ferr)
}

func notOpen(n int) error {
	return fmt.Errorf("descriptor %d is not open; the process that starts lklrun must pass it on", n)
}

func lookFD(n, called int) (kind FDKind, vnetHdr bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(n, &st); err != nil {
		return 0, false, notOpen(called)
	}
	const want = "expected a SOCK_DGRAM or SOCK_SEQPACKET socket, a packet socket, a tap or a tun"
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		req, _ := unix.NewIfreq("")
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.IoctlIfreq(n, unix.TUNGETIFF, req) != nil {
			return 0, false, fmt.Errorf("descriptor %d is neither a socket nor a tap; %s", called, want)
		}
		flags := req.Uint16()
		if flags&unix.IFF_NO_PI == 0 {
			return 0, false, fmt.Errorf("descriptor %d is a tap or tun without IFF_NO_PI; %s", called, want)
		}
		kind := FDTap
		if flags&unix.IFF_TUN != 0 {
			kind = FDTun
		}
		return kind, flags&unix.IFF_VNET_HDR != 0, nil
	}
	typ, err := unix.GetsockoptInt(n, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return 0, false, fmt.Errorf("descriptor %d: %w", called, err)
	}
	if family, err := unix.GetsockoptInt(n, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && family == unix.AF_PACKET {
		return lookPacketFD(n, called, typ)
	}
	switch typ {
	case unix.SOCK_DGRAM, unix.SOCK_SEQPACKET:
	case unix.SOCK_STREAM:
		return 0, false, fmt.Errorf("descriptor %d is a stream socket, which does not preserve frame boundaries; %s", called, want)
	default:
		return 0, false, fmt.Errorf("descriptor %d is a socket of type %d; %s", called, typ, want)
	}
	if _, err := unix.Getpeername(n); errors.Is(err, unix.ENOTCONN) {
		return 0, false, fmt.Errorf("descriptor %d is an unconnected socket; connect it, or use one end of a socketpair", called)
	}
	return FDSocket, false, nil
}

// lookPacketFD inspects a packet socket.
func lookPacketFD(n, called, typ int) (kind FDKind, vnetHdr bool, err error) {
	sa, err := unix.Getsockname(n)
	if err != nil {
		return 0, false, fmt.Errorf("descriptor %d: %w", called, err)
	}
	ll, ok := sa.(*unix.SockaddrLinklayer)
	if !ok || ll.Ifindex <= 0 {
		return 0, false, fmt.Errorf("descriptor %d is a packet socket that is not bound to a device; bind it", called)
	}
	vnet, err := unix.GetsockoptInt(n, unix.SOL_PACKET, unix.PACKET_VNET_HDR)
	vnetHdr = err == nil && vnet != 0
	switch {
	case typ == unix.SOCK_RAW && ll.Hatype == unix.ARPHRD_ETHER:
		return FDPacket, vnetHdr, nil
	case typ == unix.SOCK_RAW && noHead(ll.Hatype), typ == unix.SOCK_DGRAM && withoutLinkLayer(ll.Hatype):
		return FDCooked, vnetHdr, nil
	}
	return 0, false, fmt.Errorf("descriptor %d is a packet socket of type %d on a device of type %d; expected SOCK_RAW on an Ethernet device, or SOCK_DGRAM on a device without link layer", called, typ, ll.Hatype)
}

// OpenFD takes over descriptor n. It returns a copy, and sets close-on-exec on
// n, so that child programs do not inherit it.
func OpenFD(n int) (*Frames, error) {
	f, err := copyFD(n, n)
	if err == nil {
		unix.CloseOnExec(n)
	}
	return f, err
}

// OpenPassed returns a copy of a descriptor that another process passed. The
// argument called is its number in that process.
func OpenPassed(file *os.File, called int) (*Frames, error) {
	var f *Frames
	err := control(file, func(fd int) (err error) {
		f, err = copyFD(fd, called)
		return err
	})
	return f, err
}

func copyFD(n, called int) (*Frames, error) {
	kind, vnet, err := lookFD(n, called)
	if err != nil {
		return nil, err
	}
	if vnet && (kind == FDTap || kind == FDTun) {
		if err := unix.IoctlSetPointerInt(n, unix.TUNSETVNETHDRSZ, VnetHdrLen); err != nil {
			return nil, fmt.Errorf("descriptor %d: setting the size of its virtio-net header: %w", called, err)
		}
	}
	dup, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", called, err)
	}
	f := &Frames{File: os.NewFile(uintptr(dup), fmt.Sprintf("fd:%d", called)), Kind: kind, VnetHdr: vnet}
	if kind != FDSocket {
		f.Name, f.Ifindex = deviceOf(dup, kind)
	}
	return f, nil
}

// deviceOf finds the device of a tap, tun or packet socket. The index is 0 if
// the device is in another network namespace.
func deviceOf(fd int, kind FDKind) (name string, ifindex int) {
	ask := uint(unix.SIOCGSKNS)
	if kind == FDTap || kind == FDTun {
		ask = unix.TUNGETDEVNETNS
		if req, _ := unix.NewIfreq(""); unix.IoctlIfreq(fd, unix.TUNGETIFF, req) == nil {
			name = req.Name()
		}
	}
	ns, err := unix.IoctlRetInt(fd, ask)
	if err != nil {
		return name, 0 // the kernel is older than Linux 5.2, or denies the query
	}
	defer unix.Close(ns)
	if id, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", ns)); err != nil || id != netnsID() {
		return name, 0
	}
	var ifi *net.Interface
	if sa, nerr := unix.Getsockname(fd); nerr != nil {
		ifi, err = net.InterfaceByName(name)
	} else if ll, ok := sa.(*unix.SockaddrLinklayer); ok {
		ifi, err = net.InterfaceByIndex(ll.Ifindex)
	}
	if err != nil || ifi == nil {
		return name, 0
	}
	return ifi.Name, ifi.Index
}
