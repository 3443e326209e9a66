// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// RouteType asks the host's kernel for the type of the route (RTN_UNICAST, ...) that a
// socket of user uid takes to a destination. protocol is "tcp", "udp" or "", and the ports may be 0.
// from is the source, if it is known already. The type is RTN_UNSPEC if there is no route.
func RouteType(protocol string, uid int, from, to netip.AddrPort) (kind uint8, err error) {
	source := from.Addr().Unmap()
	for {
		route, prefsrc, err := getRoute(protocol, uid, netip.AddrPortFrom(source, from.Port()), to)
		switch {
		case errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH):
			return unix.RTN_UNSPEC, nil
		case err != nil:
			return 0, fmt.Errorf("looking up the route to %s: %w", to.Addr(), err)
		case source.IsValid() || !prefsrc.IsValid() || route != unix.RTN_UNICAST:
			return route, nil
		}
		source = prefsrc // connect(2) looks the route up again with the source that it has chosen
	}
}

// getRoute sends one RTM_GETROUTE. It does not bind the socket, which Android forbids to apps.
func getRoute(protocol string, uid int, from, to netip.AddrPort) (kind uint8, prefsrc netip.Addr, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, prefsrc, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return 0, prefsrc, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Sendto(fd, routeRequest(protocol, uid, from, to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, prefsrc, os.NewSyscallError("sendto", err)
	}
	b := make([]byte, 1<<16)
	n, peer, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return 0, prefsrc, os.NewSyscallError("recvfrom", err)
	}
	if k, ok := peer.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
		return 0, prefsrc, errors.New("the answer is not the kernel's")
	}
	msgs, err := syscall.ParseNetlinkMessage(b[:n])
	if err != nil || len(msgs) == 0 {
		return 0, prefsrc, fmt.Errorf("malformed answer: %w", err)
	}
	switch m := msgs[0]; {
	case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
		return 0, prefsrc, unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
	case m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg:
		return 0, prefsrc, fmt.Errorf("unexpected answer of type %d", m.Header.Type)
	default:
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		for _, a := range attrs {
			if a.Attr.Type == unix.RTA_PREFSRC {
				prefsrc, _ = netip.AddrFromSlice(a.Value)
			}
		}
		return nl.DeserializeRtMsg(m.Data).Type, prefsrc, err
	}
}

func routeRequest(protocol string, uid int, from, to netip.AddrPort) []byte {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	msg := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET6, Dst_len: uint8(to.Addr().BitLen())}}
	if to.Addr().Is4() {
		msg.Family = unix.AF_INET
	}
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.RTA_DST, to.Addr().AsSlice()))
	if from.Addr().IsValid() {
		msg.Src_len = msg.Dst_len
		req.AddData(nl.NewRtAttr(unix.RTA_SRC, from.Addr().AsSlice()))
	}
	req.AddData(nl.NewRtAttr(unix.RTA_UID, binary.NativeEndian.AppendUint32(nil, uint32(uid))))
	if number := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[protocol]; number != 0 {
		req.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{number}))
		req.AddData(nl.NewRtAttr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, to.Port())))
		if from.Port() != 0 {
			req.AddData(nl.NewRtAttr(unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, from.Port())))
		}
	}
	return req.Serialize()
}
