// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/link/user/gateway"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/config"
)

// Facts are the properties of the host that a plan needs.
type Facts struct {
	Command        []string // the command to execute instead of the run's; nil: the run's
	Engine         string   // the engine for the sockets, one of config's constants
	EngineNotes    []string // messages to the user about the choice of the engine
	RunRoot        string
	Machine        string // identifies this machine
	Resolv         string // content of /etc/resolv.conf
	ResolvUpstream string // content of systemd-resolved's resolv.conf
	Addrs          []netip.Prefix
	IPv6           bool                        // the host has an IPv6 default route
	Kernel6        bool                        // the host's kernel supports IPv6, with or without a route
	Taps           map[string]hostnet.TapState // the taps that the run names
	User           *runas.User                 // the user that the target runs as; nil: this process's
	Macvtaps       map[string]hostnet.MacvtapState
	Devices        map[string]hostnet.DeviceState
	FDs            map[int]hostnet.FDKind
	Bridges        map[string]int    // the MTUs of bridges by name
	Routed         []netip.Prefix    // networks that the host has routes to, if the run needs them
	Sockets        []sockdiag.Socket // the host's sockets at the ports of the run's servers
	NoGuard        error             // why addresses cannot be shared with the host
}

func newFacts() Facts {
	return Facts{
		RunRoot: instance.Root(), Taps: map[string]hostnet.TapState{}, Macvtaps: map[string]hostnet.MacvtapState{},
		Devices: map[string]hostnet.DeviceState{}, FDs: map[int]hostnet.FDKind{}, Bridges: map[string]int{},
	}
}

// Look gathers the facts for a run. It is also the preflight check: it returns
// an error, with the remedy, for each condition that would make the run fail
// later. It changes nothing.
func Look(run config.Run, s *stack.Stack) (Facts, error) {
	f := newFacts()
	if err := s.CheckLibrary(); err != nil {
		return f, err
	}
	if err := f.lookUser(run.User); err != nil {
		return f, err
	}
	if err := f.lookInterfaces(run.Interfaces, s); err != nil {
		return f, err
	}
	if err := f.lookGuard(run); err != nil {
		return f, err
	}
	if err := gateway.CheckPublish(run.Publish); err != nil {
		return f, err
	}
	if err := checkCaptures(run.Captures); err != nil {
		return f, err
	}
	if err := f.lookEngine(run, s); err != nil {
		return f, err
	}
	f.lookMachine()
	f.Resolv = readText("/etc/resolv.conf")
	f.ResolvUpstream = readText("/run/systemd/resolve/resolv.conf")
	return f, nil
}

// LookMore gathers the facts for an additional interface of a run in progress.
// passed is the descriptor that was passed for TypeFD.
func LookMore(i config.Interface, passed *os.File) (Facts, error) {
	f := newFacts()
	f.lookMachine()
	if i.Type == config.TypeFD {
		kind, err := hostnet.CheckPassed(passed, i.FD)
		if err != nil {
			return f, fmt.Errorf("--if %q: %w", i.String(), err)
		}
		f.FDs[i.FD] = kind
		return f, nil
	}
	return f, f.lookInterfaces([]config.Interface{i}, nil)
}

func (f *Facts) lookMachine() {
	if f.Machine = strings.TrimSpace(readText("/etc/machine-id")); f.Machine == "" {
		f.Machine, _ = os.Hostname() // an empty name works as well
	}
}

// lookInterfaces inspects the devices below the interfaces. If there are no
// interfaces, it adds one of type user, unless s is the host's own stack.
func (f *Facts) lookInterfaces(ifs []config.Interface, s *stack.Stack) error {
	user := len(ifs) == 0 && s.ABI != stack.ABIHost
	for _, i := range ifs {
		switch i.Type {
		case config.TypeUser:
			user = true
		case config.TypeTap:
			if err := f.lookTap(&i); err != nil {
				return fmt.Errorf("--if %q: %w", i.String(), err)
			}
		case config.TypeMacvtap:
			ctx, cancel := lookLimit()
			st, err := hostnet.CheckMacvtap(ctx, i.Device)
			cancel()
			if err != nil {
				return fmt.Errorf("--if %q: %w", i.String(), err)
			}
			f.Macvtaps[i.Device] = st
		case config.TypeFD:
			kind, err := hostnet.CheckFD(i.FD)
			if err != nil {
				return fmt.Errorf("--if %q: %w", i.String(), err)
			}
			f.FDs[i.FD] = kind
		case config.TypeRaw, config.TypeRawIP:
			d, err := hostnet.CheckPacket(i.Device, i.Type == config.TypeRawIP)
			if err != nil {
				return fmt.Errorf("--if %q: %w", i.String(), err)
			}
			f.Devices[i.Device] = d
		}
	}
	if !user {
		return nil
	}
	if !gateway.Available {
		return gateway.ErrLeftOut
	}
	f.Kernel6 = kernelIPv6()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // only a warning depends on them
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			f.Addrs = append(f.Addrs, p)
		}
	}
	return nil
}

// lookLimit bounds the queries to the host's kernel about one subject.
func lookLimit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// routeIPv6 reports whether the host has a route to the IPv6 internet
// (2000::/3). It connects a datagram socket, which looks up a route and sends
// nothing.
func routeIPv6() bool {
	c, err := net.DialUDP("udp6", nil, &net.UDPAddr{IP: net.ParseIP("2000::1"), Port: 9})
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// kernelIPv6 reports whether the host's kernel supports IPv6.
func kernelIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// CheckNotification returns an error if the host's kernel lacks seccomp user
// notification, or a part of it that the engine uses.
func CheckNotification() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("asking for the kernel's release: %w", err)
	}
	if release := unix.ByteSliceToString(u.Release[:]); olderThan(release, 5, 14) { // SECCOMP_ADDFD_FLAG_SEND
		return fmt.Errorf("this kernel is Linux %s; the engine supervise needs 5.14 or later", release)
	}
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action); err != nil {
		return fmt.Errorf("this kernel offers no seccomp user notification (%w), which the engine supervise needs: Linux 5.14 or later with CONFIG_SECCOMP_FILTER", err)
	}
	return nil
}

// CheckFilter returns an error if the host's kernel has no seccomp filters at
// all. The engine preload then runs without one.
func CheckFilter() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action); err != nil {
		return fmt.Errorf("this kernel has no seccomp filters (%w): with the engine preload an empty network namespace alone keeps off the host's network what the library does not see", err)
	}
	return nil
}

// fuseDevice is the device through which lklhost serves the stack's files
// (csrc/view).
const fuseDevice = "/dev/fuse"

// CheckFuse explains why the target cannot see the stack's files: /proc/net,
// /proc/sys/net and /sys/class/net.
func CheckFuse() error {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s does not exist: `modprobe fuse` as root; in a container, pass the device in", fuseDevice)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s may not be opened by uid %d: `chmod 666 %[1]s` as root; in a container, pass the device in", fuseDevice, os.Geteuid())
	case err != nil:
		return fmt.Errorf("opening %s: %w", fuseDevice, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("looking at %s: %w", fuseDevice, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(10, 229) { // Documentation/admin-guide/devices.txt
		return fmt.Errorf("%s is another device: `mknod -m 666 %[1]s c 10 229` as root makes it", fuseDevice)
	}
	return nil
}

// olderThan compares a kernel release with a version. It returns false for a
// release without a number.
func olderThan(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
}

// NeedsUserNamespaces reports whether a run must create the target's network
// namespace inside a user namespace. Processes without CAP_SYS_ADMIN must. The
// target then has no_new_privs.
func NeedsUserNamespaces() bool { return !hostnet.Capable(unix.CAP_SYS_ADMIN) }

// CheckUserNamespaces names the host's setting that prevents this user from
// creating user namespaces.
func CheckUserNamespaces() error { return checkUserNamespaces(readText) }

func checkUserNamespaces(read func(path string) string) error {
	for _, s := range []struct{ sysctl, remedy string }{
		{"user.max_user_namespaces", "sysctl -w user.max_user_namespaces=10000"},
		{"kernel.unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1"},
	} {
		path := "/proc/sys/" + strings.ReplaceAll(s.sysctl, ".", "/")
		if strings.TrimSpace(read(path)) == "0" {
			return fmt.Errorf("this host lets ordinary users make no user namespaces (%s is 0): as root, `%s`, or run lklrun as root", s.sysctl, s.remedy)
		}
	}
	return nil
}

func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
