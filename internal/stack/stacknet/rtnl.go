// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// rtnl is an rtnetlink connection into the stack.
type rtnl struct {
	conn *netlink.Conn
}

func openRoute(ctx context.Context, c *stackconn.Conn) (*rtnl, error) {
	conn, err := c.Netlink(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &rtnl{conn}, nil
}

func (r *rtnl) close() { r.conn.Close() }

// attributes encodes attributes in the order that fill adds them.
func attributes(fill func(*netlink.AttributeEncoder)) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	return ae.Encode()
}

// request sends one request with a fixed header and attributes.
func (r *rtnl) request(typ netlink.HeaderType, flags netlink.HeaderFlags, head []byte, fill func(*netlink.AttributeEncoder)) ([]netlink.Message, error) {
	attrs, err := attributes(fill)
	if err != nil {
		return nil, err
	}
	msgs, err := r.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | flags},
		Data:   append(head, attrs...),
	})
	return msgs, kernelError(err)
}

// kernelError reduces a netlink error to the stack's answer: the error number, and the message
// of NLMSGERR_ATTR_MSG if there is one.
func kernelError(err error) error {
	var op *netlink.OpError
	if !errors.As(err, &op) || op.Op != "receive" {
		return err
	}
	var no syscall.Errno
	if !errors.As(op.Err, &no) {
		return err
	}
	if op.Message != "" {
		return fmt.Errorf("%s: %w", op.Message, no)
	}
	return no
}

// ifinfomsg is struct ifinfomsg, include/uapi/linux/rtnetlink.h.
func ifinfomsg(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// links lists the stack's interfaces.
func (r *rtnl) links() ([]LinkState, error) {
	msgs, err := r.request(unix.RTM_GETLINK, netlink.Dump, ifinfomsg(0, 0, 0), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("listing the stack's interfaces: %w", err)
	}
	return parseLinks(msgs)
}

// setLink changes MAC and MTU if they differ, and sets the link up.
func setLink(l LinkState, mac net.HardwareAddr, mtu int) (all []Request) {
	macDiffers := len(mac) > 0 && mac.String() != l.MAC.String()
	mtuDiffers := mtu > 0 && mtu != l.MTU
	if l.Up() && !macDiffers && !mtuDiffers {
		return nil
	}
	if macDiffers && l.Up() { // few drivers can change it while the link is up
		all = append(all, request(unix.RTM_NEWLINK, 0, ifinfomsg(l.Index, 0, unix.IFF_UP), func(*netlink.AttributeEncoder) {}))
	}
	return append(all, request(unix.RTM_NEWLINK, 0, ifinfomsg(l.Index, unix.IFF_UP, unix.IFF_UP), func(ae *netlink.AttributeEncoder) {
		if macDiffers {
			ae.Bytes(unix.IFLA_ADDRESS, mac)
		}
		if mtuDiffers {
			ae.Uint32(unix.IFLA_MTU, uint32(mtu))
		}
	}))
}

// Address is an address of one of the stack's interfaces.
type Address struct {
	IfIndex int
	Prefix  netip.Prefix
	Scope   uint8  // unix.RT_SCOPE_*
	Flags   uint32 // unix.IFA_F_*
}

// addresses lists the addresses of all interfaces.
func (r *rtnl) addresses() ([]Address, error) {
	msgs, err := r.request(unix.RTM_GETADDR, netlink.Dump, make([]byte, unix.SizeofIfAddrmsg), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("listing the stack's addresses: %w", err)
	}
	var addrs []Address
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, fmt.Errorf("listing the stack's addresses: %w", err)
		}
		// On a point-to-point link IFA_ADDRESS is the peer's address, and
		// IFA_LOCAL our own.
		var local, addr netip.Addr
		flags := uint32(m.Data[2])
		for ad.Next() {
			switch ad.Type() {
			case ifaFlags:
				flags = ad.Uint32()
			case unix.IFA_LOCAL:
				local, _ = netip.AddrFromSlice(ad.Bytes())
			case unix.IFA_ADDRESS:
				addr, _ = netip.AddrFromSlice(ad.Bytes())
			}
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("listing the stack's addresses: %w", err)
		}
		if !local.IsValid() {
			local = addr
		}
		addrs = append(addrs, Address{
			IfIndex: int(binary.NativeEndian.Uint32(m.Data[4:])),
			Prefix:  netip.PrefixFrom(local, int(m.Data[1])),
			Scope:   m.Data[3],
			Flags:   flags,
		})
	}
	return addrs, nil
}

// ifaFlags is IFA_FLAGS, include/uapi/linux/if_addr.h.
const ifaFlags = 8

// addressRequest returns RTM_NEWADDR or RTM_DELADDR for the address p of interface index.
func addressRequest(typ netlink.HeaderType, flags netlink.HeaderFlags, index int, p netip.Prefix) Request {
	head := make([]byte, unix.SizeofIfAddrmsg)
	head[0] = family(p.Addr())
	head[1] = uint8(p.Bits())
	if p.Addr().IsLoopback() { // the kernel refuses a wider one
		head[3] = unix.RT_SCOPE_HOST
	}
	binary.NativeEndian.PutUint32(head[4:], uint32(index))
	return request(typ, flags, head, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.IFA_LOCAL, p.Addr().AsSlice())
		ae.Bytes(unix.IFA_ADDRESS, p.Addr().AsSlice())
		if p.Addr().Is4() {
			if b, ok := broadcast(p); ok {
				ae.Bytes(unix.IFA_BROADCAST, b.AsSlice())
			}
			return
		}
		// A tentative address is unusable for a second or more (RFC 4862, 5.4),
		// so the first connection would fail. The user is responsible for
		// addresses on the command line.
		ae.Uint32(ifaFlags, unix.IFA_F_NODAD)
	})
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// broadcast returns the last address of an IPv4 network, if it has a broadcast address.
func broadcast(p netip.Prefix) (netip.Addr, bool) {
	if p.Bits() >= 31 { // RFC 3021
		return netip.Addr{}, false
	}
	a := p.Addr().As4()
	v := binary.BigEndian.Uint32(a[:]) | (1<<(32-p.Bits()) - 1)
	binary.BigEndian.PutUint32(a[:], v)
	return netip.AddrFrom4(a), true
}
