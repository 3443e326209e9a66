// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// include/uapi/linux/unix_diag.h
const (
	sizeUnixReq = 24
	sizeUnixMsg = 16
	// UDIAG_SHOW_*: the name, the peer, the queues, the memory, the user.
	showUnix         = 0x1 | 0x4 | 0x10 | 0x20 | 0x40
	attrUnixName     = 0
	attrUnixPeer     = 2
	attrUnixQLen     = 4
	attrUnixMemInfo  = 5
	attrUnixShutdown = 6
	attrUnixUID      = 7
)

func listUnix(conn *netlink.Conn) ([]Socket, error) {
	req := make([]byte, sizeUnixReq)
	req[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(req[4:], allStates)
	binary.NativeEndian.PutUint32(req[12:], showUnix)
	msgs, err := dump(conn, req)
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	for _, m := range msgs {
		s, err := decodeUnix(m.Data)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

// decodeUnix decodes struct unix_diag_msg and its attributes.
func decodeUnix(b []byte) (Socket, error) {
	if len(b) < sizeUnixMsg {
		return Socket{}, fmt.Errorf("socket of %d bytes, want %d", len(b), sizeUnixMsg)
	}
	s := Socket{
		Proto: Unix, Family: unix.AF_UNIX, State: State(b[2]), Type: typeName(b[1]),
		Inode:  uint64(binary.NativeEndian.Uint32(b[4:])),
		Cookie: uint64(binary.NativeEndian.Uint32(b[8:])) | uint64(binary.NativeEndian.Uint32(b[12:]))<<32,
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeUnixMsg:])
	if err != nil {
		return Socket{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case attrUnixName:
			// The name is not terminated. A leading zero byte marks an abstract name,
			// which is shown with @.
			name := string(ad.Bytes())
			if strings.HasPrefix(name, "\x00") {
				name = "@" + name[1:]
			}
			s.Name = strings.TrimRight(name, "\x00")
		case attrUnixQLen:
			q := structure(ad.Bytes())
			s.RecvQ, s.SendQ = q.u32(0), q.u32(4)
		case attrUnixPeer:
			s.Peer = Known(uint64(ad.Uint32()))
		case attrUnixMemInfo:
			s.Memory = decodeMemInfo(ad.Bytes())
		case attrUnixShutdown:
			s.Shutdown = shutdownName(ad.Uint8())
		case attrUnixUID:
			s.UID = Known(uint64(ad.Uint32()))
		}
	}
	return s, ad.Err()
}

// include/uapi/linux/packet_diag.h
const (
	sizePacketReq     = 20
	sizePacketMsg     = 16
	showPacket        = 0x1 | 0x10 // PACKET_SHOW_INFO, _MEMINFO
	attrPacketInfo    = 0
	attrPacketUID     = 5
	attrPacketMemInfo = 6
)

func listPacket(conn *netlink.Conn) ([]Socket, error) {
	req := make([]byte, sizePacketReq)
	req[0] = unix.AF_PACKET
	binary.NativeEndian.PutUint32(req[8:], showPacket)
	msgs, err := dump(conn, req)
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	for _, m := range msgs {
		s, err := decodePacket(m.Data)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

// decodePacket decodes struct packet_diag_msg and its attributes.
func decodePacket(b []byte) (Socket, error) {
	if len(b) < sizePacketMsg {
		return Socket{}, fmt.Errorf("socket of %d bytes, want %d", len(b), sizePacketMsg)
	}
	s := Socket{
		Proto: Packet, Family: unix.AF_PACKET, State: Close, Type: typeName(b[1]),
		Name:     fmt.Sprintf("proto %#04x", binary.NativeEndian.Uint16(b[2:])), // ETH_P_*, host order
		Protocol: Known(uint64(binary.NativeEndian.Uint16(b[2:]))),
		Inode:    uint64(binary.NativeEndian.Uint32(b[4:])),
		Cookie:   uint64(binary.NativeEndian.Uint32(b[8:])) | uint64(binary.NativeEndian.Uint32(b[12:]))<<32,
	}
	ad, err := netlink.NewAttributeDecoder(b[sizePacketMsg:])
	if err != nil {
		return Socket{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case attrPacketInfo: // struct packet_diag_info: pdi_index first
			s.IfIndex = int(structure(ad.Bytes()).u32(0).N)
		case attrPacketUID:
			s.UID = Known(uint64(ad.Uint32()))
		case attrPacketMemInfo:
			s.Memory = decodeMemInfo(ad.Bytes())
			s.RecvQ = s.Memory.RmemAlloc
		}
	}
	return s, ad.Err()
}
