// SPDX-License-Identifier: Apache-2.0

// Package ring creates the memory that two ends of a wire share, and is such an end for
// this process. third_party/lkl/lib/wire.c is the other one, and describes the rings.
package ring

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Layout of the memory and the first message of a bell, see
// third_party/lkl/include/lkl.h.
const (
	magic    = 0x31726977
	ctlSize  = 65536   // for the state of each ring
	ringSize = 2 << 20 // of each ring
	memSize  = 2 * (ctlSize + ringSize)
)

// Bell creates the memory of two stacks and their bell, a socket pair. Each half contains
// a message with the descriptor of the memory.
func Bell() (one, other *os.File, err error) {
	mem, fds, err := create()
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(mem)
	one, other = os.NewFile(uintptr(fds[0]), "bell"), os.NewFile(uintptr(fds[1]), "bell")
	for side, from := range fds { // what one half sends, the other one receives
		if err := hello(from, mem, side); err != nil {
			one.Close()
			other.Close()
			return nil, nil, err
		}
	}
	return one, other, nil
}

// create creates the memory and the two sockets of a bell.
func create() (mem int, fds [2]int, err error) {
	if mem, err = memory(); err != nil {
		return -1, fds, err
	}
	if fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		unix.Close(mem)
		return -1, fds, os.NewSyscallError("socketpair", err)
	}
	return mem, fds, nil
}

// memory creates the memory. It cannot shrink, so an access never raises SIGBUS.
func memory() (fd int, err error) {
	mem, err := unix.MemfdCreate("lklrun-wire", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if err = os.NewSyscallError("ftruncate", unix.Ftruncate(mem, memSize)); err == nil {
		_, err = unix.FcntlInt(uintptr(mem), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
		err = os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
	}
	if err != nil {
		unix.Close(mem)
		return -1, err
	}
	return mem, nil
}

// hello tells the other half of a bell which ring it writes.
func hello(from, mem, side int) error {
	msg := binary.NativeEndian.AppendUint32(nil, magic)
	msg = binary.NativeEndian.AppendUint32(msg, uint32(side))
	return os.NewSyscallError("sendmsg", unix.Sendmsg(from, msg, unix.UnixRights(mem), nil, unix.MSG_NOSIGNAL))
}
