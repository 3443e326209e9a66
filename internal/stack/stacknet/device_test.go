// SPDX-License-Identifier: Apache-2.0

package stacknet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

// library boots our own library and then adds links to it. The frames that the stack
// sends over a link can be read from its file.
func library(t *testing.T, links int) (*stackconn.Conn, []*os.File) {
	t.Helper()
	h := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true").Boot(t)
	var far []*os.File
	for range links {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs, ours := os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "far end")
		t.Cleanup(func() { _ = ours.Close() }) // errors at the end do not matter
		if _, _, err := h.Conn.AddLink(limit(t), ctlproto.LinkAdd{Kind: ctlproto.CTL_LINK_FRAME}, theirs); err != nil {
			t.Fatal(err)
		}
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
		far = append(far, ours)
	}
	return h.Conn, far
}

// rootQdisc is the kind of the root queueing discipline of a device.
func rootQdisc(t *testing.T, c *stackconn.Conn, index int) string {
	t.Helper()
	conn, err := c.Netlink(limit(t), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	msgs, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETQDISC, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, 20),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs { // struct tcmsg: ifindex at 4, parent at 12
		if int(binary.NativeEndian.Uint32(m.Data[4:])) != index || binary.NativeEndian.Uint32(m.Data[12:]) != 0xffffffff {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[20:])
		if err != nil {
			t.Fatal(err)
		}
		for ad.Next() {
			if ad.Type() == 1 { // TCA_KIND
				return ad.String()
			}
		}
	}
	return ""
}

// Configure sets a link's group, queueing discipline, neighbours, static routes and VLAN. A packet to an
// address on the link leaves with the VLAN tag and the neighbour's link address, without
// neighbour discovery.
func TestDevice(t *testing.T) {
	c, far := library(t, 2)
	neighbour := net.HardwareAddr{2, 0, 0, 0, 7, 7}
	link := stacknet.Link{
		Name: "eth1", MAC: net.HardwareAddr{2, 0, 0, 0, 1, 1}, MTU: 1400, Group: 7, Qdisc: "fq_codel", VLAN: 5,
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.5.0.2/24")}, GW4: netip.MustParseAddr("10.5.0.1"), Metric: 101,
		Neigh:  []stacknet.Neighbour{{IP: netip.MustParseAddr("10.5.0.1"), MAC: neighbour}},
		Routes: []stacknet.StaticRoute{{To: netip.MustParsePrefix("10.88.0.0/16"), Via: netip.MustParseAddr("10.5.0.9")}},
	}
	for range 2 { // the second time there is nothing to change
		if err := stacknet.ConfigureLinks(limit(t), c, link); err != nil {
			t.Fatal(err)
		}
	}
	states, err := stacknet.Links(limit(t), c)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for _, l := range states {
		index[l.Name] = l.Index
		switch l.Name {
		case "eth0":
			if l.Up() || l.Group != 0 {
				t.Errorf("nobody asked for eth0: %+v", l)
			}
		case "eth1", "eth1.5":
			if !l.Up() || l.Group != 7 || l.MTU != 1400 || l.MAC.String() != link.MAC.String() {
				t.Errorf("%+v", l)
			}
		}
	}
	if got := rootQdisc(t, c, index["eth1"]); got != "fq_codel" {
		t.Errorf("eth1 has the queueing discipline %q", got)
	}
	if gw, oif := way(t, c, "10.77.0.1", "10.5.0.2"); gw != "10.5.0.1" || oif != index["eth1.5"] || oif == 0 {
		t.Errorf("to 10.77.0.1: by %s, interface %d", gw, oif)
	}
	if gw, oif := way(t, c, "10.88.0.1", "10.5.0.2"); gw != "10.5.0.9" || oif != index["eth1.5"] {
		t.Errorf("to 10.88.0.1: by %s, interface %d", gw, oif)
	}

	s, err := c.Socket(limit(t), unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	to := append([]byte{unix.AF_INET, 0, 0x12, 0x34, 10, 77, 0, 1}, make([]byte, 8)...)
	if _, err := s.SendTo(limit(t), []byte("by the gateway"), 0, to); err != nil {
		t.Fatal(err)
	}
	want := bytes.Join([][]byte{neighbour, link.MAC, {0x81, 0, 0, 5, 8, 0}}, nil)
	if err := far[1].SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for {
		n, err := far[1].Read(buf)
		if err != nil {
			t.Fatalf("the datagram never left: %v", err)
		}
		if bytes.Contains(buf[:n], []byte("by the gateway")) {
			if !bytes.HasPrefix(buf[:n], want) {
				t.Errorf("the frame begins with %x, want %x", buf[:18], want)
			}
			break
		}
		if bytes.HasPrefix(buf[:n], []byte{255, 255, 255, 255, 255, 255}) {
			t.Errorf("somebody is asked: %x", buf[:n])
		}
	}
}

func TestDeviceErrors(t *testing.T) {
	c, _ := library(t, 1)
	for want, link := range map[string]stacknet.Link{
		`configuring eth0: the stack has no queueing discipline "nosuch": `:   {Name: "eth0", Qdisc: "nosuch"},
		`configuring eth0: the queueing discipline "tbf" requires parameters`: {Name: "eth0", Qdisc: "tbf"},
		`configuring eth0: creating the device eth0.5000 of VLAN 5000: `:      {Name: "eth0", VLAN: 5000},
		`configuring eth7: the stack has no such interface, it has lo, `:      {Name: "eth7"},
	} {
		err := stacknet.ConfigureLinks(limit(t), c, link)
		var no syscall.Errno
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		} else if link.Name == "eth0" && !errors.As(err, &no) {
			t.Errorf("%v: no error number", err)
		}
	}
}
