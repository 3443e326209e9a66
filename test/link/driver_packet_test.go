// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// This file contains the drivers for packet sockets and tuns.

func init() {
	drivers = append(drivers,
		driver{"raw", nil, layRaw},
		driver{"rawip", nil, layRawIP},
		driver{"fd, a tun", nil, layTunFD},
		driver{"fd, a packet socket", nil, layCookedFD},
	)
}

// layRaw sets up a packet socket on an Ethernet device, with Ethernet and IP addresses
// of its own.
func layRaw(w *wire) {
	w.here.Run(w, "ip", "link", "add", "r0", "type", "veth", "peer", "name", "r1")
	for _, dev := range []string{"r0", "r1"} {
		w.here.Run(w, "ip", "link", "set", dev, "up")
	}
	w.here.Bridge(w, "br0", "v0", "r1")
	w.flag = "raw:r0" + guestKeys
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "r0") }
	w.said = "eth0 has failed: device r0 was deleted on the host"
}

// layRawIP sets up a packet socket on a tun. For IPv6, the link has no network of its
// own: the default route covers all destinations.
func layRawIP(w *wire) {
	w.tuns()
	w.flag = "rawip:t0,ip=" + guestAddr + "/24,ip6=" + guestAddr6 + "/128"
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "t0") }
	w.said = "eth0 has failed: device t0 was deleted on the host"
}

// layCookedFD sets up an inherited packet socket, of the type for devices with a
// link-layer header. This device has no such header, but the socket must still work.
func layCookedFD(w *wire) {
	layRawIP(w)
	var fd int
	w.here.Do(w.T, func() error {
		ifi, err := net.InterfaceByName("t0")
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: ifi.Index})
	})
	w.files = []*os.File{os.NewFile(uintptr(fd), "packet")}
	w.Cleanup(func() { w.files[0].Close() })
	w.flag, w.fixed = "fd:3"+guestKeys, true
}

// tuns creates a tun here, t0. The test forwards its packets to another tun in far.
func (w *wire) tuns() {
	here := kit.OpenTun(w.T, w.here, "t0", unix.IFF_TUN|unix.IFF_NO_PI)
	far := kit.OpenTun(w.T, w.far, "t1", unix.IFF_TUN|unix.IFF_NO_PI)
	w.here.Run(w, "ip", "link", "set", "t0", "up")
	w.route("t1")
	w.Cleanup(kit.CarryFrames(here, far))
}

// layTunFD sets up an inherited tun, which is a device in far.
func layTunFD(w *wire) {
	tun := kit.OpenTun(w.T, w.far, "t1", unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR)
	w.route("t1")
	w.files = []*os.File{tun}
	w.Cleanup(func() { tun.Close() })
	w.flag = "fd:3" + guestKeys
}

// route makes far reach the guest over a device without a link layer.
func (w *wire) route(dev string) {
	up := func() {
		for _, args := range [][]string{
			{"ip", "link", "set", dev, "up"},
			{"ip", "route", "replace", guestAddr, "dev", dev},
			{"ip", "-6", "route", "replace", guestAddr6, "dev", dev},
		} {
			w.far.Run(w, args...)
		}
	}
	up()
	w.cut = func() { w.far.Run(w, "ip", "link", "set", dev, "down") }
	w.mend = up
}
