// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func FuzzLink(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(ifinfomsg(2, unix.IFF_UP, 0), 8, 0, 4, 0, 1, 0, 0, 0)) // with an MTU
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLink(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: b})
		if _, ok := l.Counter("rx_bytes"); ok && len(b) < 24 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}
