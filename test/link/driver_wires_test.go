// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// The lay functions set up the devices between the stack and v0.

// guestKeys are the keys that configure an interface's addresses on the wire.
const guestKeys = ",ip=" + guestAddr + "/24,ip6=" + guestAddr6 + "/64"

// layTap sets up an existing tap, bridged to the wire.
func layTap(w *wire) {
	w.here.Tap(w, "tap0")
	w.here.Bridge(w, "br0", "v0", "tap0")
	w.flag = "tap:tap0" + guestKeys
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "tap0") }
	w.said = "eth0 has failed: tap tap0 was deleted on the host"
}

// layUser sets up the user-mode gateway, which reaches far as the host does.
func layUser(w *wire) {
	w.here.Addr(w, "v0", hereAddr+"/24", hereAddr6+"/64")
	w.here.Run(w, "ip", "-6", "route", "add", "default", "via", farAddr6)
	w.flag, w.mtu, w.fixed = "user", 65520, true
	w.pinged, w.near = []string{"192.168.127.1", "fd6c:6b6c:7275:6e00::1"}, "192.168.127.1"
	w.guests = []string{hereAddr, hereAddr6}
	for _, a := range []string{"0.0.0.0", "[::]"} {
		for _, proto := range []string{"", "/udp"} {
			w.more = append(w.more, "--publish", fmt.Sprintf("%s:%d:%d%s", a, guestPort, guestPort, proto))
		}
	}
}

// laySocket sets up an inherited socket, whose other end the test bridges to the wire.
func laySocket(w *wire) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		w.Fatal(err)
	}
	ours := os.NewFile(uintptr(p[0]), "socket")
	w.files = []*os.File{os.NewFile(uintptr(p[1]), "socket")}
	tap := kit.OpenTun(w.T, w.here, "relay0", unix.IFF_TAP|unix.IFF_NO_PI)
	w.here.Run(w, "ip", "link", "set", "relay0", "up")
	w.here.Bridge(w, "br0", "v0", "relay0")
	stop := kit.CarryFrames(ours, tap)
	w.Cleanup(func() { stop(); w.files[0].Close() })
	w.flag, w.fixed = "fd:3"+guestKeys, true
	w.remove, w.said = stop, "the other end of descriptor 3 is closed"
}

// layTapFD sets up an inherited tap, with the virtio-net headers that offloads need.
func layTapFD(w *wire) {
	tap := kit.OpenTun(w.T, w.here, "tap0", unix.IFF_TAP|unix.IFF_NO_PI|unix.IFF_VNET_HDR)
	w.here.Run(w, "ip", "link", "set", "tap0", "up")
	w.here.Bridge(w, "br0", "v0", "tap0")
	w.files = []*os.File{tap}
	w.Cleanup(func() { tap.Close() })
	w.flag = "fd:3" + guestKeys
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "tap0") }
	w.said = "eth0 has failed: tap tap0 was deleted on the host"
}

// layBridged sets up an existing tap that is in no bridge.
func layBridged(w *wire) {
	w.here.Tap(w, "tap0")
	w.here.Bridge(w, "br0", "v0")
	w.flag = "tap:tap0,bridge=br0" + guestKeys
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "tap0") }
	w.said = "eth0 has failed: tap tap0 was deleted on the host"
}

// layNAT sets up a tap with a network of its own, for which the host forwards packets.
// Other machines see the host's address. They reach the stack's services through the
// administrator's redirects from that address.
func layNAT(w *wire) {
	w.here.Addr(w, "v0", hereAddr+"/24", hereAddr6+"/64")
	w.here.Run(w, "ip", "-6", "route", "add", "default", "via", farAddr6)
	w.here.Run(w, "nft", fmt.Sprintf(`add table inet admin
add chain inet admin incoming { type nat hook prerouting priority dstnat; }
add rule inet admin incoming ip daddr %[1]s meta l4proto { tcp, udp } th dport %[3]d dnat ip to 10.91.0.10
add rule inet admin incoming ip6 daddr %[2]s meta l4proto { tcp, udp } th dport %[3]d dnat ip6 to fd91::10`, hereAddr, hereAddr6, guestPort))
	w.flag = "tap:new0,nat,ip=10.91.0.10/24,ip6=fd91::10/64"
	w.near, w.guests = "10.91.0.1", []string{hereAddr, hereAddr6}
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "new0") }
	w.said, w.made = "eth0 has failed: tap new0 was deleted on the host", true
}

// layMacvtap sets up a macvtap that lklrun creates on the wire's device.
func layMacvtap(w *wire) {
	w.flag = "macvtap:v0" + guestKeys
	w.remove = func() {
		w.here.Run(w, "sh", "-c", "ip -o link show type macvtap | sed 's/^[^ ]* \\([^@]*\\)@.*/\\1/' | xargs ip link del")
	}
	w.said, w.made = "eth0 has failed: macvtap lkl", true
}

// layOldMacvtap sets up an existing macvtap, with an index that is unused in all other
// namespaces.
func layOldMacvtap(w *wire) {
	index := 1<<25 + rand.IntN(1<<25)
	w.here.Run(w, "ip", "link", "add", "mv0", "index", fmt.Sprint(index), "link", "v0", "type", "macvtap", "mode", "bridge")
	w.here.Run(w, "ip", "link", "set", "mv0", "addrgenmode", "none")
	w.here.Run(w, "ip", "link", "set", "mv0", "up", "allmulticast", "on")
	w.flag = fmt.Sprintf("macvtap:/dev/tap%d", index) + guestKeys
	w.remove = func() { w.here.Run(w, "ip", "link", "del", "mv0") }
	w.said = "eth0 has failed: macvtap mv0 was deleted on the host"
}
