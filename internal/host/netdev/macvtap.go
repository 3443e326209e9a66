// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addrGenModeNone is IN6_ADDR_GEN_MODE_NONE (linux/if_link.h): IPv6 assigns no
// address to the device when it comes up.
const addrGenModeNone = 1

var macvlanModes = map[string]netlink.MacvlanMode{
	"private": netlink.MACVLAN_MODE_PRIVATE, "vepa": netlink.MACVLAN_MODE_VEPA, "": netlink.MACVLAN_MODE_BRIDGE,
	"bridge": netlink.MACVLAN_MODE_BRIDGE, "passthru": netlink.MACVLAN_MODE_PASSTHRU,
}

// MacvtapState describes a macvtap, or the device to create one on, without
// opening either.
type MacvtapState struct {
	Exists   bool   // the named device is a macvtap
	Name     string // name of the macvtap, or of the device to create one on
	Ifindex  int
	MAC      net.HardwareAddr // of the macvtap, if it exists
	MTU      int
	Up       bool
	Wireless bool
}

// CheckMacvtap resolves the DEVICE of macvtap:DEVICE: a device to create a
// macvtap on, the name of a macvtap, or the path of its character device. It
// returns an error if no macvtap is available.
func CheckMacvtap(name string) (MacvtapState, error) {
	var st MacvtapState
	if strings.HasPrefix(name, "/") {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "tap"))
		if err != nil || n <= 0 {
			return st, fmt.Errorf("%s is not the path of a macvtap; expected /dev/tapN, where N is the device's index", name)
		}
		ifi, err := net.InterfaceByIndex(n)
		if err != nil {
			return st, fmt.Errorf("%s: no device has the index %d; `ip -d link show type macvtap` lists the macvtaps", name, n)
		}
		name = ifi.Name
	}
	l, err := lookDevice(name)
	if err != nil {
		return st, err
	}
	d := l.Attrs()
	st = MacvtapState{Name: name, Ifindex: d.Index, MTU: d.MTU, Up: d.Flags&net.FlagUp != 0, Exists: l.Type() == "macvtap"}
	if st.Exists {
		st.MAC = d.HardwareAddr
		right := canOpen(tapPath(d.Index))
		if right != nil && !errors.As(right, new(*RightsError)) {
			return st, right
		}
		if who := holder(func(target, _ string) bool { return target == tapPath(d.Index) }); who != "" {
			return st, fmt.Errorf("macvtap %s is in use by %s", name, who)
		}
		return st, right
	}
	switch {
	case d.Flags&net.FlagLoopback != 0 || d.EncapType != "ether":
		return st, fmt.Errorf("%s is not an Ethernet device, which a macvtap requires; use --if rawip:%[1]s or --if user", name)
	case d.MasterIndex != 0 && kind(d.MasterIndex) != "vrf":
		return st, fmt.Errorf("%s belongs to a bridge, bond or similar device, which receives all its frames; use that device instead, or tap:NAME,bridge=BRIDGE", name)
	}
	if _, err := os.Stat("/sys/class/net/" + name + "/phy80211"); err == nil {
		st.Wireless = true
	}
	if !Capable(unix.CAP_NET_ADMIN) {
		return st, rightsErrorf("creating a macvtap on %s requires CAP_NET_ADMIN; run lklrun as root, or use --if user", name)
	}
	return st, nil
}

// kind returns the kind of a device: "macvtap", "tun", "bridge" ... It returns
// "" if the device is gone.
func kind(ifindex int) string {
	d, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	return d.Type()
}

// tapPath returns the character device of the macvtap with that index
// (drivers/net/macvtap.c).
func tapPath(ifindex int) string { return fmt.Sprintf("/dev/tap%d", ifindex) }

func canOpen(path string) error {
	err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s does not exist although its macvtap does, because this /dev belongs to a container; create and open the macvtap outside, and pass the descriptor with --if fd:N", path)
	case err != nil:
		return rightsErrorf("%s: uid %d has no permission to open it; run `chown %d %[1]s` as root", path, os.Geteuid(), os.Geteuid())
	}
	return nil
}

// ClosedError reports that a macvtap can be created but not opened. Opening it
// needs permission for its character device in the file system, which
// CAP_NET_ADMIN does not grant.
type ClosedError struct{ Path string }

// Error names the device.
func (e *ClosedError) Error() string {
	return fmt.Sprintf("%s: uid %d has no permission to open it; add a udev rule for macvtaps that grants it", e.Path, os.Geteuid())
}

// NewMacvtap describes a macvtap to create.
type NewMacvtap struct {
	MAC  net.HardwareAddr
	MTU  int
	Mode string // "bridge", "private", "vepa", "passthru"; empty: bridge
}

// Macvtap is an open macvtap.
type Macvtap struct {
	Name    string
	Ifindex int
	File    *os.File
}

// OpenMacvtap opens the macvtap that st describes. If st describes a device
// without macvtap, it creates one there with the properties in make. It passes
// the undo to journal before it creates the macvtap.
func OpenMacvtap(st MacvtapState, make NewMacvtap, journal func(Undo) error) (*Macvtap, error) {
	m := &Macvtap{Name: st.Name, Ifindex: st.Ifindex}
	if !st.Exists {
		// As for taps, we choose the index, so that the undo can name
		// it.
		m.Ifindex = 1<<24 + rand.IntN(1<<24)
		m.Name = fmt.Sprintf("lkl%x", m.Ifindex)
		if err := m.create(st, make, journal); err != nil {
			return nil, fmt.Errorf("creating a macvtap on %s: %w", st.Name, err)
		}
	}
	path := tapPath(m.Ifindex)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.EACCES) && !st.Exists {
			return nil, errors.Join(&ClosedError{path}, netlink.LinkDel(device(m.Ifindex)))
		}
		if why := canOpen(path); why != nil {
			return nil, why
		}
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if err := m.prepare(fd); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	m.File = os.NewFile(uintptr(fd), path)
	return m, nil
}

func (m *Macvtap) create(st MacvtapState, make NewMacvtap, journal func(Undo) error) error {
	if err := journal(Undo{Op: OpDeleteLink, Name: m.Name, Ifindex: m.Ifindex, Netns: netnsID()}); err != nil {
		return err
	}
	d := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: macvlanModes[make.Mode]}}
	d.Name, d.Index, d.ParentIndex, d.HardwareAddr, d.MTU = m.Name, m.Ifindex, st.Ifindex, make.MAC, make.MTU
	err := netlink.LinkAdd(d)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("the host's kernel does not support macvtaps; run `modprobe macvtap`, or use --if tap or --if user")
	case errors.Is(err, unix.EBUSY):
		return errors.New("a macvtap in mode passthru already uses the device")
	case errors.Is(err, unix.EINVAL):
		return errors.New("mode passthru requires the device for itself, and another macvtap or macvlan uses it (`ip -d link` shows it); delete that one, or choose mode=bridge for all")
	case err != nil:
		return err
	}
	// The host must not send with the stack's Ethernet address.
	if err := netlink.LinkSetIP6AddrGenMode(d, addrGenModeNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("disabling the host's IPv6 on it: %w", err)
	}
	// The underlying device does not learn which multicast groups the stack
	// joins, so the macvtap accepts all.
	if err := netlink.LinkSetAllmulticastOn(d); err != nil {
		return err
	}
	err = netlink.LinkSetUp(d)
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("another device there has the Ethernet address %v; choose one with mac=", make.MAC)
	}
	return err
}

func (m *Macvtap) prepare(fd int) error {
	req, err := unix.NewIfreq(m.Name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("it does not support virtio-net headers: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, VnetHdrLen); err != nil {
		return fmt.Errorf("setting the size of its virtio-net header: %w", err)
	}
	return nil
}
