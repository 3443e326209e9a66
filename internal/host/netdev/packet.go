// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// packetRoom is the receive buffer of a packet socket, in bytes of the host's
// memory.
const packetRoom = 4 << 20

// arphrdRawIP is ARPHRD_RAWIP (linux/if_arp.h), the type of cellular modems.
const arphrdRawIP = 519

// PacketSocket is an open packet socket on a device of the host.
type PacketSocket struct {
	File    *os.File
	Ifindex int  // of that device
	VnetHdr bool // a virtio_net_hdr precedes each frame
}

// PacketOptions are the options of OpenPacket.
type PacketOptions struct {
	Device      string
	RawIP       bool // IP packets of a device without link layer; else Ethernet frames
	Promiscuous bool // also receive frames to other Ethernet addresses than the device's
	Filter      []bpf.RawInstruction
}

// CheckPacket checks that the device called name can carry a stack's frames or,
// with rawIP, IP packets. Its error includes the remedy. It opens nothing.
func CheckPacket(name string, rawIP bool) (DeviceState, error) {
	d, err := LookDevice(name)
	if err != nil {
		return d, err
	}
	switch {
	case d.Type == unix.ARPHRD_LOOPBACK:
		return d, fmt.Errorf("%s is the host's loopback device, which returns no packets to the stack; the stack has its own loopback", name)
	case rawIP && d.Type == unix.ARPHRD_ETHER:
		return d, fmt.Errorf("%s is an Ethernet device; use raw:%[1]s", name)
	case !rawIP && withoutLinkLayer(d.Type):
		return d, fmt.Errorf("%s has no link layer; use rawip:%[1]s", name)
	case !rawIP && d.Type != unix.ARPHRD_ETHER, rawIP && !withoutLinkLayer(d.Type):
		return d, fmt.Errorf("%s is neither an Ethernet device nor a device without link layer (its type is %d, see linux/if_arp.h)", name, d.Type)
	}
	return d, CheckPacketRight()
}

// WantsRawIP reports whether the device called name has no link layer. The
// result is false for a device with Ethernet addresses, and an error for any
// other device.
func WantsRawIP(name string) (bool, error) {
	d, err := LookDevice(name)
	if err != nil || withoutLinkLayer(d.Type) {
		return err == nil, err
	}
	if _, err = CheckPacket(name, false); errors.As(err, new(*RightsError)) {
		err = nil // this is about the device alone
	}
	return false, err
}

// CheckPacketRight returns an error if this process may not open packet
// sockets.
func CheckPacketRight() error {
	if Capable(unix.CAP_NET_RAW) {
		return nil
	}
	return rightsErrorf("packet sockets require CAP_NET_RAW, which uid %d lacks; run lklrun as root, run `setcap cap_net_raw+ep` on its file, or use --if user", os.Geteuid())
}

// withoutLinkLayer reports whether packets of a device with this ARPHRD_* type
// begin with their IP headers, as in packet sockets of type SOCK_DGRAM.
func withoutLinkLayer(typ uint16) bool {
	switch typ {
	case unix.ARPHRD_NONE, arphrdRawIP, // tun, wireguard, modems
		unix.ARPHRD_PPP, unix.ARPHRD_SLIP, unix.ARPHRD_CSLIP,
		unix.ARPHRD_VOID, // venet
		unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6, unix.ARPHRD_SIT, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE:
		return true
	}
	return false
}

// noHead reports whether such a device also has no header of its own. Then
// SOCK_RAW and SOCK_DGRAM sockets send the same packets. Only SOCK_RAW supports
// a virtio_net_hdr.
func noHead(typ uint16) bool { return typ == unix.ARPHRD_NONE || typ == arphrdRawIP }

// OpenPacket opens a packet socket on a device. It makes no lasting change on
// the host: changes to the device end with the socket.
func OpenPacket(o PacketOptions) (*PacketSocket, error) {
	d, err := CheckPacket(o.Device, o.RawIP)
	if err != nil {
		return nil, err
	}
	typ := unix.SOCK_RAW
	if o.RawIP && !noHead(d.Type) {
		typ = unix.SOCK_DGRAM
	}
	// With protocol 0, the socket receives nothing before it is bound.
	fd, err := unix.Socket(unix.AF_PACKET, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("this process has no permission to open a packet socket on %s; run lklrun as root, or use --if user", o.Device)
	} else if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	p := &PacketSocket{Ifindex: d.Ifindex, VnetHdr: typ == unix.SOCK_RAW && setVnetHdr(fd)}
	if err := bindPacket(fd, d.Ifindex, o); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", o.Device, err)
	}
	p.File = os.NewFile(uintptr(fd), "packet:"+o.Device)
	return p, nil
}

func bindPacket(fd, ifindex int, o PacketOptions) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, packetRoom) != nil {
		// fails without CAP_NET_ADMIN; the host's default limit applies
		// then
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, packetRoom)
	}
	// On kernels before Linux 4.20, lklhost ignores the host's own packets.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if len(o.Filter) > 0 {
		prog := unix.SockFprog{Len: uint16(len(o.Filter)), Filter: sockFilter(o.Filter)}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
			return fmt.Errorf("attaching the filter to its packet socket: %w", err)
		}
	}
	if o.Promiscuous {
		m := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}
		if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return fmt.Errorf("subscribing to the frames of another Ethernet address: %w", err)
		}
	}
	// A socket bound to all protocols receives a packet before the host's
	// own rules see it.
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifindex}); err != nil {
		return fmt.Errorf("binding a packet socket: %w", err)
	}
	return nil
}

// setVnetHdr enables a virtio_net_hdr of VnetHdrLen bytes before each frame.
// Older kernels support only a header of 10 bytes.
func setVnetHdr(fd int) bool {
	return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR_SZ, VnetHdrLen) == nil ||
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1) == nil
}

// OwnFilter returns a filter that accepts frames to mac or to a group address.
func OwnFilter(mac [6]byte) ([]bpf.RawInstruction, error) {
	first := uint32(mac[0])<<24 | uint32(mac[1])<<16 | uint32(mac[2])<<8 | uint32(mac[3])
	return bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 1, SkipTrue: 4},
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: first, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(mac[4])<<8 | uint32(mac[5]), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 18}, // more bytes than any frame has
		bpf.RetConstant{Val: 0},
	})
}

func sockFilter(raw []bpf.RawInstruction) *unix.SockFilter {
	prog := make([]unix.SockFilter, len(raw))
	for n, i := range raw {
		prog[n] = unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K}
	}
	return &prog[0]
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }
