// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

// End is the host's end of an interface: the descriptor for lklhost, and the
// resources that are released with the interface.
type End struct {
	File    *os.File // closed once lklhost has it
	Kind    uint32   // ctlproto.CTL_LINK_*
	Flags   uint32   // ctlproto.CTL_LINKF_*
	Close   func()   // stops the part that runs in this process; nil: none
	Ifindex int      // of the host's device; 0: none

	// Peers passes the present peers of a wire to the stack, and later ones as
	// they appear, until Close. It is called once the stack has the device;
	// nil: not a wire.
	Peers func(ctx context.Context, to func(ctx context.Context, bell *os.File) error) error

	// PeerFD joins a wire to its only other end, which is in this process. It is
	// closed once lklhost has it; nil: not such a wire.
	PeerFD *os.File

	// Fallback returns a descriptor of kind CTL_LINK_FRAME without flags, for stacks
	// that do not support wires; nil: there is none.
	Fallback func() (*os.File, error)

	// PID returns a process that Close ends, or 0; nil: there is never one.
	PID func() int

	Counts func() map[string]uint64 // counters of a gateway; nil: not a gateway

	TunnelPeers func() []rpc.TunnelPeer // nil: not a tunnel

	// CLAT sets the IPv6 address of a clat and the prefix of the NAT64; an invalid prefix
	// stops the translation. nil: not a clat.
	CLAT func(own netip.Addr, nat64 netip.Prefix)

	Egress func() *egress.Account // what the program asked of a gateway; nil, also as the result: no rules

	EgressRules func(from int) egress.Policy // the rules from an index on; nil: not a gateway

	ChangeEgress func(add, remove []config.Allow) error // changes the rules; nil: not a gateway

	NameProcesses func(egress.Finder) // sets how the log finds processes; nil: not a gateway

	Watch *netdev.Watch // reports the end; nil: watch the device, if there is one
	Gone  string        // message at the end; empty: the device is gone
}

// Passed closes this process's copy of the descriptor once lklhost has it, so
// that no frame wakes this process.
func (e *End) Passed() {
	if e.File != nil {
		e.File.Close()
		e.File = nil
	}
	if e.PeerFD != nil {
		e.PeerFD.Close()
		e.PeerFD = nil
	}
}

// Wire creates the descriptor of a device of kind CTL_LINK_WIRE.
func Wire(name string) (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return os.NewFile(uintptr(fd), "wire "+name), nil
}

// Release releases this process's part of the host's end.
func (e *End) Release() {
	e.Passed()
	if e.Watch != nil {
		e.Watch.Close()
		e.Watch = nil
	}
	if e.Close != nil {
		e.Close()
		e.Close = nil
	}
}

// VnetFlags returns the flags of a link whose frames have, or do not have, a
// virtio_net_hdr.
func VnetFlags(vnetHdr bool) uint32 {
	if vnetHdr {
		return ctlproto.CTL_LINKF_VNET_HDR | ctlproto.CTL_LINKF_OFFLOAD
	}
	return 0
}

// NoOffload reports whether the link uses no offload at all.
func (l *Link) NoOffload() bool {
	mask, isMask := strings.CutPrefix(l.Offload, "0x")
	return l.Offload == "off" || isMask && strings.Trim(mask, "0") == ""
}

// mergedBuffers is the bit of VIRTIO_NET_F_MRG_RXBUF
// (include/uapi/linux/virtio_net.h).
const mergedBuffers = 1 << 15

// offload replaces the type's default offload setting by that of l.
func (e *End) offload(l *Link) error {
	mask, isMask := strings.CutPrefix(l.Offload, "0x")
	switch {
	case l.Offload == "":
		return nil
	case l.NoOffload():
		e.Flags &^= ctlproto.CTL_LINKF_OFFLOAD | ctlproto.CTL_LINKF_BIG
		return nil
	case e.Flags&ctlproto.CTL_LINKF_VNET_HDR == 0:
		return exit.Usagef("--if %s:%s: offload: %s: its descriptor has no virtio-net header (IFF_VNET_HDR); remove offload=",
			l.Type, l.Host(), l.Offload)
	}
	e.Flags |= ctlproto.CTL_LINKF_OFFLOAD
	if !isMask {
		return nil
	}
	n, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		return fmt.Errorf("offload: %w", err)
	}
	// The mask has 15 bits: higher features do not apply to our devices.
	// The bit for merged buffers does not apply either, so here it marks
	// that a mask is present.
	e.Flags |= (uint32(n)&0x7fff | mergedBuffers) << ctlproto.CTL_LINKF_FEATURES_SHIFT
	e.Flags &^= ctlproto.CTL_LINKF_BIG // virtio has no feature bit for it
	return nil
}
