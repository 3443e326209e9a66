// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// ErrUnsupported means that the stack's kernel cannot list sockets of a kind.
var ErrUnsupported = errors.New("this stack does not support listing these sockets")

// include/uapi/linux/inet_diag.h
const (
	sockDiagByFamily = 20 // include/uapi/linux/sock_diag.h

	sizeInetReq = 56 // struct inet_diag_req_v2
	sizeInetMsg = 72 // struct inet_diag_msg

	reqProtocol = 3 // INET_DIAG_REQ_PROTOCOL

	// INET_DIAG_*
	attrInfo      = 2
	attrVegas     = 3
	attrCong      = 4
	attrTOS       = 5
	attrTClass    = 6
	attrSKMemInfo = 7
	attrShutdown  = 8
	attrDCTCP     = 9
	attrV6Only    = 11
	attrMark      = 15
	attrBBR       = 16
	attrULPInfo   = 19
	attrCgroup    = 21

	// asked is idiag_ext. The bit for Vegas requests the values of any congestion
	// control.
	asked = 1<<(attrInfo-1) | 1<<(attrVegas-1) | 1<<(attrCong-1) | 1<<(attrTOS-1) |
		1<<(attrTClass-1) | 1<<(attrSKMemInfo-1) | 1<<(attrShutdown-1)

	ulpName  = 1
	ulpMPTCP = 3

	ipprotoMPTCP = 262 // does not fit in sdiag_protocol: see request
	maxProtocol  = 255
	allStates    = 1<<32 - 1
)

// protocols are the IP protocols of the socket kinds that inet_diag lists.
var protocols = map[Proto]uint32{
	TCP: unix.IPPROTO_TCP, UDP: unix.IPPROTO_UDP, UDPLite: unix.IPPROTO_UDPLITE, Raw: unix.IPPROTO_RAW, MPTCP: ipprotoMPTCP,
}

// Dialer opens sock_diag connections; stackconn.Conn is one.
type Dialer interface {
	Netlink(ctx context.Context, family int, groups ...uint32) (*netlink.Conn, error)
}

var _ Dialer = (*stackconn.Conn)(nil)

// List lists the stack's sockets of one kind, IPv4 before IPv6, in the kernel's order.
func List(ctx context.Context, d Dialer, proto Proto) ([]Socket, error) {
	conn, err := d.Netlink(ctx, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var all []Socket
	switch proto {
	case Unix:
		all, err = listUnix(conn)
	case Packet:
		all, err = listPacket(conn)
	case Netlink:
		all, err = listNetlink(conn)
	default:
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			var some []Socket
			some, err = listInet(conn, proto, family, allStates)
			// A stack may have no IPv6.
			if family == unix.AF_INET6 && errors.Is(err, ErrUnsupported) {
				err = nil
			}
			if err != nil {
				break
			}
			all = append(all, some...)
		}
		if err == nil && protocols[proto] > maxProtocol && !knowsProtocols(conn) {
			err = ErrUnsupported
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s sockets: %w", proto, err)
	}
	return all, nil
}

// Listeners lists the TCP sockets that listen, IPv4 before IPv6. The cost does not depend on
// the number of connections.
func Listeners(ctx context.Context, d Dialer) ([]Socket, error) {
	conn, err := d.Netlink(ctx, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var all []Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		some, err := listInet(conn, TCP, family, 1<<Listen)
		if family == unix.AF_INET6 && errors.Is(err, ErrUnsupported) {
			break // a stack may have no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listing the listening sockets: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// dump makes one request and returns the messages of all datagrams.
func dump(conn *netlink.Conn, data []byte) ([]netlink.Message, error) {
	msgs, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump},
		Data:   data,
	})
	var no syscall.Errno
	if errors.As(err, &no) {
		// ENOENT: no handler for the protocol (inet_diag_lock_handler); EINVAL:
		// none for the family (sock_diag_rcv_msg), or an old kernel's mask.
		if no == syscall.ENOENT || no == syscall.EINVAL || no == syscall.EAFNOSUPPORT || no == syscall.EPROTONOSUPPORT {
			return nil, ErrUnsupported
		}
		return nil, no
	}
	return msgs, err
}

// knowsProtocols reports whether the kernel supports INET_DIAG_REQ_PROTOCOL. It requests
// a protocol that no kernel has. Kernels before Linux 5.9 ignore the attribute and list
// raw sockets instead of returning an error.
func knowsProtocols(conn *netlink.Conn) bool {
	const none = 0xffff
	_, err := dumpInet(conn, none, unix.AF_INET, allStates)
	return err != nil
}

// listInet lists the sockets of one family whose state is in a mask.
func listInet(conn *netlink.Conn, proto Proto, family uint8, states uint32) ([]Socket, error) {
	protocol, ok := protocols[proto]
	if !ok {
		return nil, fmt.Errorf("%q is not a kind of socket", proto)
	}
	msgs, err := dumpInet(conn, protocol, family, states)
	if err != nil {
		return nil, err
	}
	sockets := make([]Socket, 0, len(msgs))
	for _, m := range msgs {
		s, err := decodeInet(proto, m.Data)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, s)
	}
	return sockets, nil
}

// dumpInet makes one request for the sockets of an IP protocol and a family.
func dumpInet(conn *netlink.Conn, protocol uint32, family uint8, states uint32) ([]netlink.Message, error) {
	req := make([]byte, sizeInetReq)
	req[0] = family
	req[1] = uint8(min(protocol, maxProtocol))
	req[2] = asked
	binary.NativeEndian.PutUint32(req[4:], states)
	ae := netlink.NewAttributeEncoder()
	if protocol > maxProtocol {
		ae.Uint32(reqProtocol, protocol)
	}
	b, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	return dump(conn, append(req, b...))
}

// decodeInet decodes struct inet_diag_msg and its attributes.
func decodeInet(proto Proto, b []byte) (Socket, error) {
	if len(b) < sizeInetMsg {
		return Socket{}, fmt.Errorf("socket of %d bytes, want %d", len(b), sizeInetMsg)
	}
	s := Socket{
		Proto: proto, Family: int(b[0]), State: State(b[1]),
		// struct inet_diag_sockid begins at 4, its addresses at 8 and 24.
		Local:   netip.AddrPortFrom(address(b[0], b[8:24]), binary.BigEndian.Uint16(b[4:])),
		Remote:  netip.AddrPortFrom(address(b[0], b[24:40]), binary.BigEndian.Uint16(b[6:])),
		IfIndex: int(binary.NativeEndian.Uint32(b[40:])),
		Cookie:  uint64(binary.NativeEndian.Uint32(b[44:])) | uint64(binary.NativeEndian.Uint32(b[48:]))<<32,
		RecvQ:   Known(uint64(binary.NativeEndian.Uint32(b[56:]))),
		SendQ:   Known(uint64(binary.NativeEndian.Uint32(b[60:]))),
		UID:     Known(uint64(binary.NativeEndian.Uint32(b[64:]))),
		Inode:   uint64(binary.NativeEndian.Uint32(b[68:])),
		Timer:   decodeTimer(b[2], b[3], binary.NativeEndian.Uint32(b[52:])),
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeInetMsg:])
	if err != nil {
		return Socket{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case attrInfo:
			switch proto {
			case TCP:
				s.TCP = decodeTCPInfo(ad.Bytes())
			case MPTCP:
				s.MPTCP = decodeMPTCPInfo(ad.Bytes())
			}
		case attrCong:
			s.Congestion = ad.String()
		case attrVegas:
			s.Vegas = decodeVegas(ad.Bytes())
		case attrDCTCP:
			s.DCTCP = decodeDCTCP(ad.Bytes())
		case attrBBR:
			s.BBR = decodeBBR(ad.Bytes())
		case attrSKMemInfo:
			s.Memory = decodeMemInfo(ad.Bytes())
		case attrTOS:
			s.TOS = Known(uint64(ad.Uint8()))
		case attrTClass:
			s.TClass = Known(uint64(ad.Uint8()))
		case attrShutdown:
			s.Shutdown = shutdownName(ad.Uint8())
		case attrMark:
			s.Mark = Known(uint64(ad.Uint32()))
		case attrCgroup:
			s.CgroupID = Known(ad.Uint64())
		case attrV6Only:
			s.V6Only = ad.Uint8() != 0
		case attrULPInfo:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				var err error
				s.Subflow, err = decodeULP(ad)
				return err
			})
		}
	}
	if s.TCP != nil && s.State == Listen {
		s.TCP.forListener()
	}
	return s, ad.Err()
}

// decodeULP decodes INET_ULP_INFO_*; the result is nil for protocols other than MPTCP.
func decodeULP(ad *netlink.AttributeDecoder) (*Subflow, error) {
	var f *Subflow
	for ad.Next() {
		switch ad.Type() {
		case ulpName:
			if ad.String() == "mptcp" && f == nil {
				f = &Subflow{} // a listener has no attributes
			}
		case ulpMPTCP:
			f = &Subflow{}
			ad.Nested(f.decode)
		}
	}
	return f, ad.Err()
}

func (f *Subflow) decode(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case 1: // MPTCP_SUBFLOW_ATTR_TOKEN_REM
			f.RemoteToken = Known(uint64(ad.Uint32()))
		case 2: // TOKEN_LOC
			f.Token = Known(uint64(ad.Uint32()))
		case 4: // MAP_SEQ
			f.MapSeq = Known(ad.Uint64())
		case 7: // MAP_DATALEN
			f.MapDataLen = Known(uint64(ad.Uint16()))
		case 8: // FLAGS
			f.Flags = SubflowFlags(ad.Uint32())
		case 9: // ID_REM
			f.RemoteID = Known(uint64(ad.Uint8()))
		case 10: // ID_LOC
			f.ID = Known(uint64(ad.Uint8()))
		}
	}
	return ad.Err()
}

// address decodes the first bytes of a be32[4] by family.
func address(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b[:16]))
}

// Sort orders sockets for people: by kind, listeners first, then by address.
func Sort(sockets []Socket) {
	rank := func(s Socket) int {
		if s.State == Listen {
			return 0
		}
		return 1
	}
	order := []Proto{TCP, MPTCP, UDP, UDPLite, Raw, ICMP, Packet, Netlink, Unix}
	sort.SliceStable(sockets, func(i, k int) bool {
		a, b := sockets[i], sockets[k]
		return cmp.Or(
			slices.Index(order, a.Proto)-slices.Index(order, b.Proto),
			rank(a)-rank(b),
			a.Local.Compare(b.Local),
			a.Remote.Compare(b.Remote),
		) < 0
	})
}
