// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Frames is a descriptor that carries Ethernet frames.
type Frames struct {
	File    *os.File
	Tap     bool // a tap's descriptor, else a socket with a frame a message
	VnetHdr bool // each frame has a virtio_net_hdr of VnetHdrLen before it
}

// CheckFD says whether the inherited descriptor n can carry frames: a tap
// attached without IFF_NO_PI's four bytes, or a connected datagram or
// sequential-packet socket.
func CheckFD(n int) error {
	// What execve(2) left open has not this flag; what this process opened has.
	if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		return notOpen(n)
	}
	_, _, err := lookFD(n)
	return err
}

func notOpen(n int) error {
	return fmt.Errorf("descriptor %d is not open: whoever starts lklrun has to hand it over", n)
}

func lookFD(n int) (tap, vnetHdr bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(n, &st); err != nil {
		return false, false, notOpen(n)
	}
	const want = "expected a SOCK_DGRAM or SOCK_SEQPACKET socket or a tap"
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		req, _ := unix.NewIfreq("")
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.IoctlIfreq(n, unix.TUNGETIFF, req) != nil {
			return false, false, fmt.Errorf("descriptor %d is neither a socket nor a tap; %s", n, want)
		}
		flags := req.Uint16()
		if flags&unix.IFF_TAP == 0 || flags&unix.IFF_NO_PI == 0 {
			return false, false, fmt.Errorf("descriptor %d is a tun device or a tap without IFF_NO_PI; %s", n, want)
		}
		return true, flags&unix.IFF_VNET_HDR != 0, nil
	}
	typ, err := unix.GetsockoptInt(n, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false, false, fmt.Errorf("descriptor %d: %w", n, err)
	}
	switch typ {
	case unix.SOCK_DGRAM, unix.SOCK_SEQPACKET:
	case unix.SOCK_STREAM:
		return false, false, fmt.Errorf("descriptor %d is a stream socket, which does not keep frames apart; %s", n, want)
	default:
		return false, false, fmt.Errorf("descriptor %d is a socket of type %d; %s", n, typ, want)
	}
	if _, err := unix.Getpeername(n); errors.Is(err, unix.ENOTCONN) {
		return false, false, fmt.Errorf("descriptor %d is a socket without peer; connect it, or use one end of a socketpair", n)
	}
	return false, false, nil
}

// OpenFD takes over descriptor n: a copy is returned, and n itself no longer
// reaches the programs that are started.
func OpenFD(n int) (*Frames, error) {
	tap, vnet, err := lookFD(n)
	if err != nil {
		return nil, err
	}
	if vnet {
		if err := unix.IoctlSetPointerInt(n, unix.TUNSETVNETHDRSZ, VnetHdrLen); err != nil {
			return nil, fmt.Errorf("descriptor %d: setting the size of its packet head: %w", n, err)
		}
	}
	dup, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", n, err)
	}
	unix.CloseOnExec(n)
	return &Frames{File: os.NewFile(uintptr(dup), fmt.Sprintf("fd:%d", n)), Tap: tap, VnetHdr: vnet}, nil
}
