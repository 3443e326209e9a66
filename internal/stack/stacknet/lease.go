// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Forever is an infinite lifetime.
const Forever = time.Duration(1<<63 - 1)

// Leased is an address with lifetimes.
type Leased struct {
	IfIndex int
	Prefix  netip.Prefix

	// Preferred is the time for which new connections may use the address, Valid the
	// time for which any connection may. The stack removes the address when its valid
	// lifetime ends.
	Preferred, Valid time.Duration
}

// SetLeased adds a leased address to an interface, or renews its lifetimes.
func SetLeased(ctx context.Context, c *stackconn.Conn, a Leased) error {
	return withRoute(ctx, c, func(r *rtnl) error {
		_, err := r.request(unix.RTM_NEWADDR, netlink.Acknowledge|netlink.Create|netlink.Replace, ifaddrmsg(a.IfIndex, a.Prefix), func(ae *netlink.AttributeEncoder) {
			ae.Bytes(unix.IFA_LOCAL, a.Prefix.Addr().AsSlice())
			ae.Bytes(unix.IFA_ADDRESS, a.Prefix.Addr().AsSlice())
			if a.Prefix.Addr().Is4() {
				if b, ok := broadcast(a.Prefix); ok {
					ae.Bytes(unix.IFA_BROADCAST, b.AsSlice())
				}
			}
			// struct ifa_cacheinfo, include/uapi/linux/if_addr.h
			info := binary.NativeEndian.AppendUint32(nil, seconds(a.Preferred))
			info = binary.NativeEndian.AppendUint32(info, seconds(a.Valid))
			ae.Bytes(unix.IFA_CACHEINFO, append(info, make([]byte, 8)...))
		})
		if err != nil {
			return fmt.Errorf("setting the address %v: %w", a.Prefix, err)
		}
		return nil
	})
}

// RemoveAddress removes an address from an interface; it succeeds if there is none.
func RemoveAddress(ctx context.Context, c *stackconn.Conn, ifindex int, p netip.Prefix) error {
	return withRoute(ctx, c, func(r *rtnl) error {
		_, err := r.request(unix.RTM_DELADDR, netlink.Acknowledge, ifaddrmsg(ifindex, p), func(ae *netlink.AttributeEncoder) {
			ae.Bytes(unix.IFA_LOCAL, p.Addr().AsSlice())
			ae.Bytes(unix.IFA_ADDRESS, p.Addr().AsSlice())
		})
		if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("removing the address %v: %w", p, err)
		}
		return nil
	})
}

// ifaddrmsg is struct ifaddrmsg, include/uapi/linux/if_addr.h.
func ifaddrmsg(ifindex int, p netip.Prefix) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1] = family(p.Addr()), uint8(p.Bits())
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	return b
}

// seconds converts a lifetime for struct ifa_cacheinfo: all ones means infinite.
func seconds(d time.Duration) uint32 {
	s := int64((d + time.Second - 1) / time.Second)
	if d == Forever || s >= 1<<32-1 {
		return 1<<32 - 1
	}
	return uint32(max(s, 0))
}

// LeasedRoute is a route in the main table that belongs to a lease (RTPROT_DHCP).
type LeasedRoute struct {
	IfIndex int
	Dst     netip.Prefix // zero bits: default
	GW      netip.Addr   // zero: the destination is on the link
	Src     netip.Addr
	Metric  int
	OnLink  bool // the gateway is on the link although no address implies it
}

// SetLeasedRoute adds a route unless it exists.
func SetLeasedRoute(ctx context.Context, c *stackconn.Conn, e LeasedRoute) error {
	return withRoute(ctx, c, func(r *rtnl) error {
		if err := r.leasedRoute(unix.RTM_NEWROUTE, netlink.Acknowledge|netlink.Create|netlink.Replace, e); err != nil {
			return fmt.Errorf("setting the route to %v: %w", e.Dst, err)
		}
		return nil
	})
}

// RemoveLeasedRoute removes a route; it succeeds if there is none.
func RemoveLeasedRoute(ctx context.Context, c *stackconn.Conn, e LeasedRoute) error {
	return withRoute(ctx, c, func(r *rtnl) error {
		err := r.leasedRoute(unix.RTM_DELROUTE, netlink.Acknowledge, e)
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.ENETDOWN) {
			return fmt.Errorf("removing the route to %v: %w", e.Dst, err)
		}
		return nil
	})
}

func (r *rtnl) leasedRoute(typ netlink.HeaderType, flags netlink.HeaderFlags, e LeasedRoute) error {
	head := make([]byte, unix.SizeofRtMsg) // struct rtmsg, include/uapi/linux/rtnetlink.h
	head[0], head[1] = family(e.Dst.Addr()), uint8(e.Dst.Bits())
	head[4], head[5], head[7] = unix.RT_TABLE_MAIN, unix.RTPROT_DHCP, unix.RTN_UNICAST
	if !e.GW.IsValid() && e.Dst.Addr().Is4() {
		head[6] = unix.RT_SCOPE_LINK
	}
	if e.OnLink {
		binary.NativeEndian.PutUint32(head[8:], unix.RTNH_F_ONLINK)
	}
	_, err := r.request(typ, flags, head, func(ae *netlink.AttributeEncoder) {
		if e.Dst.Bits() > 0 {
			ae.Bytes(unix.RTA_DST, e.Dst.Masked().Addr().AsSlice())
		}
		if e.GW.IsValid() {
			ae.Bytes(unix.RTA_GATEWAY, e.GW.AsSlice())
		}
		if e.Src.IsValid() {
			ae.Bytes(unix.RTA_PREFSRC, e.Src.AsSlice())
		}
		ae.Uint32(unix.RTA_PRIORITY, uint32(e.Metric))
		ae.Uint32(unix.RTA_OIF, uint32(e.IfIndex))
	})
	return err
}

// SetMTU changes the MTU of an interface.
func SetMTU(ctx context.Context, c *stackconn.Conn, ifindex, mtu int) error {
	return withRoute(ctx, c, func(r *rtnl) error {
		_, err := r.request(unix.RTM_NEWLINK, netlink.Acknowledge, ifinfomsg(ifindex, 0, 0), func(ae *netlink.AttributeEncoder) {
			ae.Uint32(unix.IFLA_MTU, uint32(mtu))
		})
		if err != nil {
			return fmt.Errorf("setting the MTU to %d: %w", mtu, err)
		}
		return nil
	})
}

func withRoute(ctx context.Context, c *stackconn.Conn, do func(*rtnl) error) error {
	r, err := openRoute(ctx, c)
	if err != nil {
		return err
	}
	defer r.close()
	return do(r)
}
