// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sizeofNdMsg is the size of struct ndmsg, include/uapi/linux/neighbour.h.
const sizeofNdMsg = 12

// Unanswered returns requests that delete the entries of those neighbours of an interface
// that have not answered so far. For the next packet, the stack then sends a new request
// at once. Otherwise the kernel would first finish its attempts and then report to
// sockets that the host is unreachable.
func (n *Netlink) Unanswered(ifindex int) ([]Request, error) {
	msgs, err := n.r.request(unix.RTM_GETNEIGH, netlink.Dump, make([]byte, sizeofNdMsg), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("listing the stack's neighbours: %w", err)
	}
	var all []Request
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWNEIGH || len(m.Data) < sizeofNdMsg || int(binary.NativeEndian.Uint32(m.Data[4:])) != ifindex {
			continue
		}
		if state := binary.NativeEndian.Uint16(m.Data[8:]); state&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) == 0 {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[sizeofNdMsg:])
		if err != nil {
			return nil, fmt.Errorf("listing the stack's neighbours: %w", err)
		}
		for ad.Next() {
			if ad.Type() != unix.NDA_DST {
				continue
			}
			head := make([]byte, sizeofNdMsg)
			copy(head, m.Data[:8]) // family and interface index
			dst := ad.Bytes()
			q := request(unix.RTM_DELNEIGH, 0, head, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.NDA_DST, dst) })
			q.never = unix.ENOENT
			all = append(all, q)
		}
	}
	return all, nil
}
