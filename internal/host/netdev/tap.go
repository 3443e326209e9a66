// SPDX-License-Identifier: Apache-2.0

// Package netdev creates and opens the host's ends of the stack's interfaces:
// tap devices and frame sockets. Each lasting change to the host has an Undo
// that another process can carry out.
package netdev

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// VnetHdrLen is the size of struct virtio_net_hdr_mrg_rxbuf
// (linux/virtio_net.h), which precedes each frame of a tap.
const VnetHdrLen = 12

const tunDevice = "/dev/net/tun"

// Tap is an open tap device of the current network namespace.
type Tap struct {
	Name    string
	File    *os.File
	Ifindex int
	Created bool // created by us: it disappears when its last descriptor is closed
	Queue   bool // one of several queues; other processes can have the others
	Up      bool // the host's side was up before, or we set it up
	VnetHdr bool // a virtio_net_hdr of VnetHdrLen bytes precedes each frame
}

// TapOptions are the options for opening a tap.
type TapOptions struct {
	MTU   int  // of a device that we create, in bytes; 0: its default
	Queue bool // open one of several queues; other processes can have the others
	Plain bool // no offload: neither checksums nor segmentation
}

// TapState describes a tap without opening it.
type TapState struct {
	Exists bool
	Up     bool
	InUse  bool   // it has carrier: a process has it open, or had it open a moment ago
	Kind   string // of an existing device that is not a tap; "": it is a tap
}

// LookTap inspects the device called name in the current network namespace.
func LookTap(name string) (TapState, error) {
	d, err := find(name)
	if errors.Is(err, errNoDevice) {
		return TapState{}, nil
	}
	if err != nil {
		return TapState{}, fmt.Errorf("looking for device %s: %w", name, err)
	}
	// A tap has carrier as long as a process has it open. The flag lags by
	// up to a second (net/core/link_watch.c).
	flags := d.Attrs().Flags
	st := TapState{Exists: true, Up: flags&net.FlagUp != 0, InUse: flags&net.FlagRunning != 0}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return st, fmt.Errorf("inspecting device %s: %w", name, err)
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil { // a tap supports this ioctl
		st.Kind = "a different kind of device"
		return st, nil
	}
	// drivers/net/tun.c: the driver is "tun" for both kinds; bus_info
	// distinguishes them.
	driver := unix.ByteSliceToString(info.Driver[:])
	bus := unix.ByteSliceToString(info.Bus_info[:])
	if driver != "tun" {
		st.Kind = "a " + driver + " device"
	} else if bus != "tap" {
		st.Kind = "a " + bus + " device"
	}
	return st, nil
}

// CheckTap checks that the tap called name, or a queue of it, is available,
// without attaching to it. Its error includes the remedy.
func CheckTap(name string, queue bool) (TapState, error) {
	right := CheckTun()
	if right != nil && !errors.As(right, new(*RightsError)) {
		return TapState{}, right
	}
	st, err := LookTap(name)
	if err != nil {
		return st, err
	}
	if st.Kind != "" {
		return st, fmt.Errorf("%s is not a tap but %s; choose another name", name, st.Kind)
	}
	if st.InUse && !queue {
		if who := tapHolder(name); who != "" {
			return st, &InUseError{name, who}
		}
	}
	if !st.Exists && !Capable(unix.CAP_NET_ADMIN) {
		right = cmp.Or(right, noRight(name))
	}
	return st, right
}

func noRight(name string) error {
	user := fmt.Sprintf("uid %d", os.Geteuid())
	return rightsErrorf("tap %s does not exist and %s may not create it; as root, run `ip tuntap add %s mode tap user %d` and `ip link set %s up`, or use --if user",
		name, user, name, os.Geteuid(), name)
}

// InUseError reports that another process has the tap open.
type InUseError struct {
	Name string
	Who  string // COMMAND (pid N); empty: not among the processes we may inspect
}

// ExitStatus is Usage: another name helps.
func (e *InUseError) ExitStatus() int { return exit.Usage }

// Error names the tap and its holder.
func (e *InUseError) Error() string {
	who := e.Who
	if who == "" {
		who = "another process"
	}
	return fmt.Sprintf("tap %s is in use by %s", e.Name, who)
}

// Capable reports whether this process has a capability, unix.CAP_*.
func Capable(capability int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return os.Geteuid() == 0
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

// CheckTun returns an error if no tap can be opened at all.
func CheckTun() error {
	fd, err := openTun()
	if err != nil {
		return err
	}
	unix.Close(fd)
	return nil
}

func openTun() (int, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return -1, fmt.Errorf("%s does not exist: taps require the host's tun driver; run `modprobe tun` (in a container, pass the device in), or use --if user", tunDevice)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, rightsErrorf("%s: uid %d has no permission to open it; use --if user, or as root, run `setfacl -m u:%[2]d:rw %[1]s`", tunDevice, os.Geteuid())
	case err != nil:
		return -1, fmt.Errorf("opening %s: %w", tunDevice, err)
	}
	return fd, nil
}

// OpenTap attaches to the tap called name, or creates it if it does not exist.
//
// OpenTap sets the MTU of a new device and sets the device up. It passes the
// undo to journal before it creates the device. An existing device is not
// changed, except that a plain one may get a kernel thread, which has an undo
// too (threaded.go). A device with several queues has no undo: it exists as
// long as any process has a queue of it.
func OpenTap(name string, o TapOptions, journal func(Undo) error) (*Tap, error) {
	st, err := LookTap(name)
	if err != nil {
		return nil, err
	}
	t := &Tap{Name: name, Created: !st.Exists, Queue: o.Queue, Up: st.Up}
	// All queues of a device have the same format, and other processes can
	// have some of them.
	t.VnetHdr = !o.Plain || o.Queue
	if t.Created && !t.Queue {
		// We choose the index, so that the undo can name the device
		// before it exists. The kernel itself assigns small indices.
		t.Ifindex = 1<<24 + rand.IntN(1<<24)
		if err := journal(Undo{Op: OpDeleteLink, Name: t.Name, Ifindex: t.Ifindex, Netns: netnsID()}); err != nil {
			return nil, err
		}
	}
	fd, err := t.attach(journal)
	if err != nil {
		return nil, err
	}
	if err := t.setUp(fd, o.MTU); err != nil {
		unix.Close(fd)
		return nil, err
	}
	t.File = os.NewFile(uintptr(fd), tunDevice)
	return t, nil
}

// attach opens the device, with a kernel thread on the host if one is useful
// and available.
func (t *Tap) attach(journal func(Undo) error) (fd int, err error) {
	if !t.VnetHdr {
		fd, err := t.attachThreaded(journal)
		if !errors.Is(err, errNoThread) {
			return fd, err
		}
	}
	return t.attachAs(0)
}

// attachAs attaches with additional flags of TUNSETIFF.
func (t *Tap) attachAs(flags uint16) (fd int, err error) {
	if fd, err = openTun(); err != nil {
		return -1, err
	}
	if t.Created && !t.Queue {
		if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, t.Ifindex); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("tap %s: setting its index: %w", t.Name, err)
		}
	}
	if err := t.setIff(fd, flags); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (t *Tap) setUp(fd, mtu int) error {
	if t.VnetHdr {
		if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, VnetHdrLen); err != nil {
			return fmt.Errorf("tap %s: setting the size of its virtio-net header: %w", t.Name, err)
		}
	}
	if t.Ifindex == 0 {
		ifi, err := net.InterfaceByName(t.Name)
		if err != nil {
			return fmt.Errorf("tap %s: reading its index: %w", t.Name, err)
		}
		t.Ifindex = ifi.Index
	}
	if !t.Created {
		return nil
	}
	if mtu != 0 {
		if err := netlink.LinkSetMTU(device(t.Ifindex), mtu); err != nil {
			return fmt.Errorf("setting mtu %d on %s: %w", mtu, t.Name, err)
		}
	}
	if err := netlink.LinkSetUp(device(t.Ifindex)); err != nil {
		return fmt.Errorf("setting %s up: %w", t.Name, err)
	}
	t.Up = true
	return nil
}

func (t *Tap) setIff(fd int, flags uint16) error {
	req, err := unix.NewIfreq(t.Name)
	if err != nil {
		return fmt.Errorf("tap %s: %w", t.Name, err)
	}
	flags |= unix.IFF_TAP | unix.IFF_NO_PI
	if t.VnetHdr {
		flags |= unix.IFF_VNET_HDR
	}
	if t.Queue {
		flags |= unix.IFF_MULTI_QUEUE
	}
	req.SetUint16(flags)
	switch err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); {
	case errors.Is(err, unix.EBUSY):
		return &InUseError{t.Name, tapHolder(t.Name)}
	case errors.Is(err, unix.EINVAL) && t.Queue:
		return fmt.Errorf("%s cannot be shared: it is not a tap, or a tap without multi_queue", t.Name)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s cannot be used as a tap: it is not a tap, or a tap with different flags; if it has multi_queue, add multiqueue", t.Name)
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("all queues of tap %s are in use", t.Name)
	case errors.Is(err, unix.EPERM) && t.Created:
		return noRight(t.Name)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("tap %s belongs to another user; as root, run `ip tuntap add %s mode tap user %d`", t.Name, t.Name, os.Geteuid())
	case err != nil:
		return fmt.Errorf("attaching to tap %s: %w", t.Name, err)
	}
	return nil
}

// tapHolder names the process that has the tap called name open. tun.c shows
// the device in fdinfo as "iff:\tNAME".
func tapHolder(name string) string {
	return holder(func(target, fdinfo string) bool {
		if !strings.HasPrefix(target, tunDevice) {
			return false
		}
		info, err := os.ReadFile(fdinfo)
		return err == nil && strings.Contains(string(info), "iff:\t"+name+"\n")
	})
}

// holder names a process that has a descriptor for which opens returns true. It
// searches those processes of this network namespace whose descriptors we may
// read. The arguments of opens are the target of the descriptor's link and the
// path of its fdinfo. The result is "" if there is no such process.
func holder(opens func(target, fdinfo string) bool) string {
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // a constant pattern is always valid
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil {
			continue // it was closed
		}
		words := strings.Split(fd, "/") // "", proc, PID, fd, N
		dir := "/proc/" + words[2]
		if opens(to, dir+"/fdinfo/"+words[4]) && sameNetns(words[2]) {
			comm, _ := os.ReadFile(dir + "/comm")
			return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), words[2])
		}
	}
	return ""
}

// sameNetns returns false for a process known to be in another network
// namespace. A device of that name there is a different one.
func sameNetns(pid string) bool {
	other, err := os.Readlink("/proc/" + pid + "/ns/net")
	return err != nil || other == netnsID()
}

// netnsID identifies the network namespace of this thread.
func netnsID() string {
	id, _ := os.Readlink("/proc/thread-self/ns/net")
	return id
}
