// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// include/uapi/linux/netlink_diag.h
const (
	sizeNetlinkReq     = 20
	sizeNetlinkMsg     = 28
	allNetlink         = 255 // NDIAG_PROTO_ALL
	showNetlink        = 0x1 // NDIAG_SHOW_MEMINFO
	attrNetlinkMemInfo = 0
)

// netlinkNames are the names that ss(8) uses for NETLINK_* of
// include/uapi/linux/netlink.h.
var netlinkNames = []string{
	unix.NETLINK_ROUTE: "rtnl", unix.NETLINK_USERSOCK: "usersock", unix.NETLINK_FIREWALL: "fw",
	unix.NETLINK_SOCK_DIAG: "tcpdiag", unix.NETLINK_NFLOG: "nflog", unix.NETLINK_XFRM: "xfrm",
	unix.NETLINK_SELINUX: "selinux", unix.NETLINK_ISCSI: "iscsi", unix.NETLINK_AUDIT: "audit",
	unix.NETLINK_FIB_LOOKUP: "fiblookup", unix.NETLINK_CONNECTOR: "connector", unix.NETLINK_NETFILTER: "nft",
	unix.NETLINK_IP6_FW: "ip6fw", unix.NETLINK_DNRTMSG: "dec-rt", unix.NETLINK_KOBJECT_UEVENT: "uevent",
	unix.NETLINK_GENERIC: "genl", unix.NETLINK_SCSITRANSPORT: "scsi-trans", unix.NETLINK_ECRYPTFS: "ecryptfs",
	unix.NETLINK_RDMA: "rdma", unix.NETLINK_CRYPTO: "crypto",
}

func listNetlink(conn *netlink.Conn) ([]Socket, error) {
	req := make([]byte, sizeNetlinkReq)
	req[0], req[1] = unix.AF_NETLINK, allNetlink
	binary.NativeEndian.PutUint32(req[8:], showNetlink)
	msgs, err := dump(conn, req)
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	// The kernel lists members of multicast groups twice (__netlink_diag_dump).
	seen := map[uint64]bool{}
	for _, m := range msgs {
		s, err := decodeNetlink(m.Data)
		if err != nil {
			return nil, err
		}
		if !seen[s.Cookie] {
			seen[s.Cookie] = true
			sockets = append(sockets, s)
		}
	}
	return sockets, nil
}

// decodeNetlink decodes struct netlink_diag_msg and its attributes.
func decodeNetlink(b []byte) (Socket, error) {
	if len(b) < sizeNetlinkMsg {
		return Socket{}, fmt.Errorf("socket of %d bytes, want %d", len(b), sizeNetlinkMsg)
	}
	m := structure(b)
	s := Socket{
		Proto: Netlink, Family: unix.AF_NETLINK, State: Close, Type: typeName(b[1]),
		Name: fmt.Sprint(b[2]), Protocol: m.u8(2), PortID: m.u32(4),
		Inode:  uint64(binary.NativeEndian.Uint32(b[16:])),
		Cookie: binary.NativeEndian.Uint64(b[20:]),
	}
	if int(b[2]) < len(netlinkNames) && netlinkNames[b[2]] != "" {
		s.Name = netlinkNames[b[2]]
	}
	if to := m.u32(8); to.N != 0 {
		s.Peer = to
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeNetlinkMsg:])
	if err != nil {
		return Socket{}, err
	}
	for ad.Next() {
		if ad.Type() == attrNetlinkMemInfo {
			s.Memory = decodeMemInfo(ad.Bytes())
			s.RecvQ, s.SendQ = s.Memory.RmemAlloc, s.Memory.WmemAlloc
		}
	}
	return s, ad.Err()
}
