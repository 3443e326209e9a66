// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// A stack host on another machine may have another architecture. Calls are sent with that
// architecture's numbers and flags, and memory has its layout. Both machines are
// little-endian, and netlink messages are the same everywhere.

// calls are the numbers of the calls that this package makes in stacks, from
// arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl and
// arch/arm/tools/syscall.tbl.
var calls = []struct{ amd64, arm64, arm uint32 }{
	{0, 63, 3},      // read
	{1, 64, 4},      // write
	{3, 57, 6},      // close
	{16, 29, 54},    // ioctl
	{39, 172, 20},   // getpid
	{41, 198, 281},  // socket
	{42, 203, 283},  // connect
	{44, 206, 290},  // sendto
	{45, 207, 292},  // recvfrom
	{46, 211, 296},  // sendmsg
	{47, 212, 297},  // recvmsg
	{48, 210, 293},  // shutdown
	{49, 200, 282},  // bind
	{50, 201, 284},  // listen
	{51, 204, 286},  // getsockname
	{52, 205, 287},  // getpeername
	{54, 208, 294},  // setsockopt
	{55, 209, 295},  // getsockopt
	{165, 40, 21},   // mount
	{217, 61, 217},  // getdents64
	{257, 56, 322},  // openat
	{258, 34, 323},  // mkdirat
	{259, 33, 324},  // mknodat
	{288, 242, 366}, // accept4
	{299, 243, 365}, // recvmmsg, without a timeout
	{332, 291, 397}, // statx
}

// openFlags are the flags of open(2) that differ: x86 uses the numbers of
// include/uapi/asm-generic/fcntl.h, both ARMs those of arch/arm64's fcntl.h.
var openFlags = []struct{ x86, arm int }{
	{0x04000, 0x10000}, // O_DIRECT
	{0x08000, 0x20000}, // O_LARGEFILE
	{0x10000, 0x04000}, // O_DIRECTORY
	{0x20000, 0x08000}, // O_NOFOLLOW
}

func number(at int, arch string) (uint32, bool) {
	switch arch {
	case "amd64":
		return calls[at].amd64, true
	case "arm64":
		return calls[at].arm64, true
	case "arm":
		return calls[at].arm, true
	}
	return 0, false
}

// translate changes a call's number, and the flags in its arguments, from one
// architecture to another.
func translate(nr uint32, args *[6]uint64, from, to string) (uint32, error) {
	for at := range calls {
		if own, ok := number(at, from); !ok || own != nr {
			continue
		}
		other, ok := number(at, to)
		if !ok {
			break
		}
		if openat, _ := number(at, "amd64"); openat == 257 && (from == "amd64") != (to == "amd64") {
			args[2] = swapped(args[2], from == "amd64")
		}
		return other, nil
	}
	return 0, fmt.Errorf("a stack of the architecture %q does not support this request from %s", to, from)
}

// swapped moves each flag of open(2) to its bit in the other architecture.
func swapped(flags uint64, fromX86 bool) uint64 {
	was, is := uint64(0), uint64(0)
	for _, f := range openFlags {
		a, b := uint64(f.x86), uint64(f.arm)
		if !fromX86 {
			a, b = b, a
		}
		was |= a
		if flags&a != 0 {
			is |= b
		}
	}
	return flags&^was | is
}

// arch is the stack host's architecture. Earlier versions of the stack host do not report
// it, and run only on this machine.
func (c *Conn) arch() string {
	if a := c.hello.Arch; a != "" {
		return a
	}
	return runtime.GOARCH
}

// WordSize is the size in bytes of an address, a long and a size_t in the memory of the
// stack's calls.
func (c *Conn) WordSize() int {
	if c.arch() == "arm" {
		return 4
	}
	return 8
}

// Timestamp is the socket option, and the type of the control message, for timestamps as
// a struct of two 64-bit numbers. The option SO_TIMESTAMPNS uses longs.
func (c *Conn) Timestamp() int {
	if c.WordSize() == 8 {
		return unix.SO_TIMESTAMPNS
	}
	return unix.SO_TIMESTAMPNS_NEW
}
