// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// The in-kernel path manager's interface, include/uapi/linux/mptcp_pm.h and
// include/uapi/linux/mptcp.h.
const (
	pmName    = "mptcp_pm"
	pmEvents  = "mptcp_pm_events"
	pmVersion = 1

	pmCmdAddAddr   = 1
	pmCmdDelAddr   = 2
	pmCmdGetAddr   = 3
	pmCmdFlush     = 4
	pmCmdSetLimits = 5
	pmCmdGetLimits = 6
	pmCmdSetFlags  = 7

	pmAttrAddr        = 1
	pmAttrRcvAddAddrs = 2
	pmAttrSubflows    = 3

	pmAddrFamily = 1
	pmAddrID     = 2
	pmAddrAddr4  = 3
	pmAddrAddr6  = 4
	pmAddrPort   = 5
	pmAddrFlags  = 6
	pmAddrIfIdx  = 7
)

// JoinFile accepts commands to try an endpoint again on one connection
// (third_party/lkl/arch/lkl/drivers/proc_mptcp_join.c, which explains the errors).
// Foreign libraries do not have it. Without it, every method would also close subflows of
// other connections.
const JoinFile = "/proc/net/mptcp_join"

// ErrNoPathManager is wrapped if a stack has no MPTCP.
var ErrNoPathManager = errors.New("this stack has no MPTCP path manager (generic netlink family mptcp_pm)")

// Flags of an endpoint, include/uapi/linux/mptcp.h (MPTCP_PM_ADDR_FLAG_*).
const (
	EndpointSignal   = 1 << 0
	EndpointSubflow  = 1 << 1
	EndpointBackup   = 1 << 2
	EndpointFullmesh = 1 << 3
	EndpointImplicit = 1 << 4
)

// Endpoint is an address of the in-kernel path manager.
type Endpoint struct {
	ID      int // 0: the stack's choice
	Addr    netip.Addr
	Port    int
	Ifindex int
	Flags   uint32
}

// path connects to the path manager.
func (n *Netlink) path() error {
	if n.g != nil {
		return nil
	}
	nl, pm, err := openPathManager(n.ctx, n.c)
	if err != nil {
		return err
	}
	n.g, n.pm = nl, pm.ID
	return nil
}

func openPathManager(ctx context.Context, c *stackconn.Conn) (*netlink.Conn, genetlink.Family, error) {
	nl, err := c.Netlink(ctx, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, genetlink.Family{}, err
	}
	pm, err := genetlink.NewConn(nl).GetFamily(pmName)
	if err != nil {
		nl.Close()
		if errors.Is(err, os.ErrNotExist) {
			return nil, pm, ErrNoPathManager
		}
		return nil, pm, fmt.Errorf("looking for the MPTCP path manager: %w", kernelError(err))
	}
	return nl, pm, nil
}

// ListenMPTCP opens a connection that receives the path manager's events (enum
// mptcp_event_type) until ctx is done. The caller closes it.
func ListenMPTCP(ctx context.Context, c *stackconn.Conn) (*netlink.Conn, error) {
	nl, pm, err := openPathManager(ctx, c)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	for _, g := range pm.Groups {
		if g.Name == pmEvents {
			return c.Netlink(ctx, unix.NETLINK_GENERIC, g.ID)
		}
	}
	return nil, fmt.Errorf("this stack does not report MPTCP events (multicast group %s)", pmEvents)
}

// Endpoints lists the MPTCP endpoints.
func (n *Netlink) Endpoints() ([]Endpoint, error) {
	if err := n.path(); err != nil {
		return nil, err
	}
	msgs, err := n.g.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(n.pm), Flags: netlink.Request | netlink.Dump},
		Data:   pmHeader(pmCmdGetAddr),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the MPTCP endpoints: %w", kernelError(err))
	}
	var all []Endpoint
	for _, m := range msgs {
		if len(m.Data) < unix.GENL_HDRLEN {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[unix.GENL_HDRLEN:])
		if err != nil {
			return nil, fmt.Errorf("listing the MPTCP endpoints: %w", err)
		}
		for ad.Next() {
			if ad.Type() != pmAttrAddr {
				continue
			}
			var e Endpoint
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				e = parseEndpoint(ad)
				return ad.Err()
			})
			all = append(all, e)
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("listing the MPTCP endpoints: %w", err)
		}
	}
	return all, nil
}

func parseEndpoint(ad *netlink.AttributeDecoder) (e Endpoint) {
	for ad.Next() {
		switch ad.Type() {
		case pmAddrID:
			e.ID = int(ad.Uint8())
		case pmAddrAddr4, pmAddrAddr6:
			e.Addr, _ = netip.AddrFromSlice(ad.Bytes())
		case pmAddrPort:
			e.Port = int(ad.Uint16())
		case pmAddrFlags:
			e.Flags = ad.Uint32()
		case pmAddrIfIdx:
			e.Ifindex = int(int32(ad.Uint32()))
		}
	}
	return e
}

// AddEndpoint adds an MPTCP endpoint.
func AddEndpoint(e Endpoint) Request { return e.request(pmCmdAddAddr) }

// DelEndpoint removes the endpoint with this ID. The stack closes its subflows in all
// connections, and informs the peers through the other subflows.
func DelEndpoint(e Endpoint) Request {
	q := e.request(pmCmdDelAddr)
	q.never = syscall.EINVAL // "address not found"
	return q
}

// FlushEndpoints removes all endpoints.
func FlushEndpoints() Request {
	q := request(0, 0, pmHeader(pmCmdFlush), func(*netlink.AttributeEncoder) {})
	q.pm = true
	return q
}

// ChangeEndpoint sets the flags of the endpoint with this ID. The stack can change
// EndpointBackup and EndpointFullmesh of an existing endpoint.
func ChangeEndpoint(e Endpoint) Request { return e.request(pmCmdSetFlags) }

func (e Endpoint) request(cmd uint8) Request {
	q := request(0, 0, pmHeader(cmd), func(ae *netlink.AttributeEncoder) {
		ae.Nested(pmAttrAddr, func(ae *netlink.AttributeEncoder) error {
			ae.Uint16(pmAddrFamily, uint16(family(e.Addr)))
			if e.Addr.Is4() {
				ae.Bytes(pmAddrAddr4, e.Addr.AsSlice())
			} else {
				ae.Bytes(pmAddrAddr6, e.Addr.AsSlice())
			}
			if e.ID != 0 {
				ae.Uint8(pmAddrID, uint8(e.ID))
			}
			if e.Port != 0 {
				ae.Uint16(pmAddrPort, uint16(e.Port))
			}
			ae.Uint32(pmAddrFlags, e.Flags)
			ae.Uint32(pmAddrIfIdx, uint32(e.Ifindex))
			return nil
		})
	})
	q.pm = true
	return q
}

// SetLimits sets the path manager's limits.
func SetLimits(m MPTCPLimits) Request {
	q := request(0, 0, pmHeader(pmCmdSetLimits), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(pmAttrRcvAddAddrs, uint32(m.AddAddrAccepted))
		ae.Uint32(pmAttrSubflows, uint32(m.Subflows))
	})
	q.pm = true
	return q
}

// Limits returns the path manager's limits.
func (n *Netlink) Limits() (MPTCPLimits, error) {
	var m MPTCPLimits
	if err := n.path(); err != nil {
		return m, err
	}
	msgs, err := n.g.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(n.pm), Flags: netlink.Request},
		Data:   pmHeader(pmCmdGetLimits),
	})
	if err != nil {
		return m, fmt.Errorf("reading the MPTCP limits: %w", kernelError(err))
	}
	for _, msg := range msgs {
		if len(msg.Data) < unix.GENL_HDRLEN {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(msg.Data[unix.GENL_HDRLEN:])
		if err != nil {
			return m, fmt.Errorf("reading the MPTCP limits: %w", err)
		}
		for ad.Next() {
			switch ad.Type() {
			case pmAttrRcvAddAddrs:
				m.AddAddrAccepted = int(ad.Uint32())
			case pmAttrSubflows:
				m.Subflows = int(ad.Uint32())
			}
		}
		if err := ad.Err(); err != nil {
			return m, fmt.Errorf("reading the MPTCP limits: %w", err)
		}
	}
	return m, nil
}

// pmHeader is struct genlmsghdr, include/uapi/linux/genetlink.h.
func pmHeader(cmd uint8) []byte { return []byte{cmd, pmVersion, 0, 0} }
