// SPDX-License-Identifier: Apache-2.0

package stacknet_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

// TestLibrary configures two links of our own library, twice, and asks the stack for
// routes each time.
func TestLibrary(t *testing.T) {
	h := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true")
	c, ctx := h.Conn, limit(t)
	for range 2 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs, far := os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "far end")
		t.Cleanup(func() { _ = far.Close() }) // errors at the end do not matter
		if _, _, err := c.AddLink(ctx, ctlproto.LinkAdd{Kind: ctlproto.CTL_LINK_FRAME}, theirs); err != nil {
			t.Fatal(err)
		}
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	h.Boot(t)
	// First set the link up with another MAC: the MAC cannot change while the link is
	// up.
	if err := stacknet.Configure(ctx, c, stacknet.Config{Links: []stacknet.Link{{Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 9, 9}}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stacknet.Configure(ctx, c, twoLinks()); err != nil {
			t.Fatal(err)
		}
	}

	links, err := stacknet.Links(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for _, l := range links {
		index[l.Name] = l.Index
		if l.Name == "eth0" && (l.MTU != 1400 || l.MAC.String() != "02:00:00:00:01:01" || !l.Up()) {
			t.Errorf("eth0: %+v", l)
		}
	}
	addrs, err := stacknet.Addresses(ctx, c)
	if err != nil || !slices.ContainsFunc(addrs, func(a stacknet.Address) bool {
		return a.IfIndex == index["eth0"] && a.Prefix == netip.MustParsePrefix("fd01::2/64") && a.Flags&unix.IFA_F_NODAD != 0
	}) {
		t.Errorf("addresses: %v, %v", addrs, err)
	}
	for _, tc := range []struct{ dst, src, gw, dev string }{
		{"10.77.0.1", "", "10.1.0.1", "eth0"}, // the first link's default route
		{"10.77.0.1", "10.1.0.2", "10.1.0.1", "eth0"},
		{"10.1.0.7", "10.1.0.2", "", "eth0"},
		{"fd77::1", "", "fd01::1", "eth0"},
		{"fd77::1", "fd01::2", "fd01::1", "eth0"},
		{"fd01::7", "fd01::2", "", "eth0"},
	} {
		gw, oif := way(t, c, tc.dst, tc.src)
		if gw != tc.gw || oif != index[tc.dev] {
			t.Errorf("to %s from %q: by %q, interface %d; want %q, %d", tc.dst, tc.src, gw, oif, tc.gw, index[tc.dev])
		}
	}
	// The address is usable at once, without duplicate address detection.
	if inet6, err := c.ReadFile(ctx, "/proc/net/if_inet6"); err != nil || !strings.Contains(string(inet6), "fd010000000000000000000000000002") {
		t.Errorf("/proc/net/if_inet6: %s, %v", inet6, err)
	} else {
		for line := range strings.Lines(string(inet6)) {
			if f := strings.Fields(line); strings.HasPrefix(f[0], "fd01") && f[4] != "82" { // IFA_F_PERMANENT | IFA_F_NODAD
				t.Errorf("flags of the address: %s", line)
			}
		}
	}
}

// way asks the stack for the route to dst from src, as `ip route get` does.
func way(t *testing.T, c *stackconn.Conn, dst, src string) (gw string, oif int) {
	t.Helper()
	conn, err := c.Netlink(limit(t), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	to := netip.MustParseAddr(dst)
	head := make([]byte, unix.SizeofRtMsg)
	head[0], head[1] = unix.AF_INET, uint8(to.BitLen())
	if to.Is6() {
		head[0] = unix.AF_INET6
	}
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.RTA_DST, to.AsSlice())
	if src != "" {
		from := netip.MustParseAddr(src)
		head[2] = uint8(from.BitLen())
		ae.Bytes(unix.RTA_SRC, from.AsSlice())
	}
	attrs, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request},
		Data:   append(head, attrs...),
	})
	if err != nil || len(msgs) != 1 {
		t.Fatalf("route to %s from %q: %v, %v", dst, src, msgs, err)
	}
	ad, err := netlink.NewAttributeDecoder(msgs[0].Data[unix.SizeofRtMsg:])
	if err != nil {
		t.Fatal(err)
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.RTA_GATEWAY:
			a, _ := netip.AddrFromSlice(ad.Bytes())
			gw = a.String()
		case unix.RTA_OIF:
			oif = int(binary.NativeEndian.Uint32(ad.Bytes()))
		}
	}
	return gw, oif
}
