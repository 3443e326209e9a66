// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// headerSize is the size of the struct virtio_net_hdr before each packet on the
// link to the stack.
const headerSize = 10

// WireGuard splits and joins packets with these functions, but only for a tun
// device of the host.

//go:linkname handleVirtioRead golang.zx2c4.com/wireguard/tun.handleVirtioRead
func handleVirtioRead(in []byte, bufs [][]byte, sizes []int, offset int) (int, error)

//go:linkname handleGRO golang.zx2c4.com/wireguard/tun.handleGRO
func handleGRO(bufs [][]byte, offset int, tcp, udp unsafe.Pointer, joinUDP bool, groups *[]int) error

//go:linkname newTCPTable golang.zx2c4.com/wireguard/tun.newTCPGROTable
func newTCPTable() unsafe.Pointer

//go:linkname newUDPTable golang.zx2c4.com/wireguard/tun.newUDPGROTable
func newUDPTable() unsafe.Pointer

//go:linkname resetTCPTable golang.zx2c4.com/wireguard/tun.(*tcpGROTable).reset
func resetTCPTable(tcp unsafe.Pointer)

// segments returns the number of packets in a message of the stack; 0: the message
// is invalid. WireGuard trusts the header, which the host's kernel writes to it.
// Here a program may have written it: with the engine preload, it has the link.
func segments(message []byte) int {
	const ip4, ip6, tcp, udp = 20, 40, 20, 8
	if len(message) < headerSize+ip4 {
		return 0
	}
	h, packet := message[:headerSize], message[headerSize:]
	le := binary.NativeEndian
	flags, kind, size := h[0], h[1], int(le.Uint16(h[4:]))
	start, offset := int(le.Uint16(h[6:])), int(le.Uint16(h[8:]))
	least, gso := ip4, byte(unix.VIRTIO_NET_HDR_GSO_TCPV4)
	switch packet[0] >> 4 {
	case 4:
	case 6:
		least, gso = ip6, unix.VIRTIO_NET_HDR_GSO_TCPV6
	default:
		return 0
	}
	if len(packet) < least {
		return 0
	}
	if flags&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 {
		if kind != unix.VIRTIO_NET_HDR_GSO_NONE {
			return 0
		}
		return 1
	}
	if start < least || start+offset+2 > len(packet) {
		return 0
	}
	header := udp
	switch kind {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
		return 1
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
	case gso:
		if header = tcp; start+tcp <= len(packet) {
			header = int(packet[start+12]>>4) * 4
		}
		if header < tcp {
			return 0
		}
	default:
		return 0
	}
	data := len(packet) - start - header
	if size == 0 || data <= 0 || offset+2 > header {
		return 0
	}
	return (data + size - 1) / size
}
