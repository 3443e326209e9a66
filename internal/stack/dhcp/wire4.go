// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// wire transports DHCPv4 messages.
type wire interface {
	// send sends a message to a server, or to all.
	send(ctx context.Context, msg []byte) error

	// receive returns the next datagram for a DHCP client, and its sender.
	// For all other datagrams it returns errNotOurs.
	receive(ctx context.Context) ([]byte, net.HardwareAddr, error)

	close()
}

var everybody = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// packetWire is a packet socket. It is used while we have no address, or no
// route that uses it.
type packetWire struct {
	s        *stackconn.Socket
	ifindex  int
	src, dst netip.Addr
	to       net.HardwareAddr
}

func openPacket(ctx context.Context, c *stackconn.Conn, ifindex int) (*packetWire, error) {
	// Without a protocol, the socket receives nothing before its filter is
	// attached.
	s, err := c.Socket(ctx, unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil, err
	}
	w := &packetWire{s: s, ifindex: ifindex, src: netip.IPv4Unspecified(), dst: netip.AddrFrom4([4]byte{255, 255, 255, 255}), to: everybody}
	if err := attach(ctx, s, dhcpFilter); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.Bind(ctx, linkAddr(ifindex, unix.ETH_P_IP, nil)); err != nil {
		s.Close()
		return nil, err
	}
	return w, nil
}

func (w *packetWire) send(ctx context.Context, msg []byte) error {
	_, err := w.s.SendTo(ctx, datagram(w.src, w.dst, msg), 0, linkAddr(w.ifindex, unix.ETH_P_IP, w.to))
	return err
}

func (w *packetWire) receive(ctx context.Context) ([]byte, net.HardwareAddr, error) {
	b := make([]byte, maxDatagram)
	n, from, err := w.s.RecvFrom(ctx, b, unix.MSG_TRUNC)
	if err != nil {
		return nil, nil, err
	}
	if n > len(b) {
		return nil, nil, errNotOurs
	}
	msg, _, err := undatagram(b[:n])
	if err != nil {
		return nil, nil, err
	}
	return msg, senderMAC(from), nil
}

func (w *packetWire) close() { w.s.Close() }

// linkAddr builds a struct sockaddr_ll, include/uapi/linux/if_packet.h.
func linkAddr(ifindex int, proto uint16, mac net.HardwareAddr) []byte {
	b := make([]byte, 20)
	binary.NativeEndian.PutUint16(b, unix.AF_PACKET)
	binary.BigEndian.PutUint16(b[2:], proto)
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	b[11] = uint8(copy(b[12:], mac))
	return b
}

// senderMAC returns the Ethernet address in a struct sockaddr_ll, or nil.
func senderMAC(b []byte) net.HardwareAddr {
	if len(b) < 18 || b[11] != 6 {
		return nil
	}
	return net.HardwareAddr(append([]byte(nil), b[12:18]...))
}

// dhcpFilter accepts unfragmented UDP packets to a DHCP client, for a packet
// socket of type SOCK_DGRAM that receives IPv4. Other traffic must not wake
// this process.
var dhcpFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 9, Size: 1}, // protocol
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protoUDP, SkipTrue: 6},
	bpf.LoadAbsolute{Off: 6, Size: 2}, // fragments
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4},
	bpf.LoadMemShift{Off: 0},          // X = length of the header
	bpf.LoadIndirect{Off: 2, Size: 2}, // destination port
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: clientPort, SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

// attach attaches a filter to a socket in the stack.
func attach(ctx context.Context, s *stackconn.Socket, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	return s.AttachFilter(ctx, raw)
}

// udpWire sends from our address with a UDP socket, to one server or, by
// broadcast, to all. It receives with a packet socket, because refusals are
// broadcast and a socket bound to an address does not get them.
type udpWire struct {
	*packetWire
	s  *stackconn.Socket
	to []byte
}

func openUDP(ctx context.Context, c *stackconn.Conn, link *Link, own, server netip.Addr) (*udpWire, error) {
	p, err := openPacket(ctx, c, link.IfIndex)
	if err != nil {
		return nil, err
	}
	s, err := c.Socket(ctx, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		p.close()
		return nil, err
	}
	w := &udpWire{p, s, inetAddr(server, serverPort)}
	err = errors.Join(
		s.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		s.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		s.Setsockopt(ctx, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, append([]byte(link.Name), 0)),
		s.Bind(ctx, inetAddr(own, clientPort)),
	)
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *udpWire) send(ctx context.Context, msg []byte) error {
	_, err := w.s.SendTo(ctx, msg, 0, w.to)
	return err
}

func (w *udpWire) close() {
	w.s.Close()
	w.packetWire.close()
}

// inetAddr builds a struct sockaddr_in.
func inetAddr(a netip.Addr, port uint16) []byte {
	b := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], port)
	ip := a.As4()
	copy(b[4:], ip[:])
	return b
}
