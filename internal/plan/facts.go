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

	"github.com/lklrun/lklrun/internal/gateway"
	"github.com/lklrun/lklrun/internal/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/runas"
	"github.com/lklrun/lklrun/internal/sockdiag"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Facts are what a plan needs to know of the host.
type Facts struct {
	Command        []string // that is executed in place of the run's; nil: that one
	Engine         string   // that carries the sockets, of config's
	EngineNotes    []string // what shall be told of that choice
	RunRoot        string
	Machine        string // names this machine among others
	Resolv         string // /etc/resolv.conf
	ResolvUpstream string // of systemd-resolved
	Addrs          []netip.Prefix
	IPv6           bool                        // the host has a way out by IPv6
	Kernel6        bool                        // the host's kernel has IPv6, now with a route or not
	Taps           map[string]hostnet.TapState // those that the run names
	User           *runas.User                 // whom the target runs as; nil: ours
	Macvtaps       map[string]hostnet.MacvtapState
	Devices        map[string]hostnet.DeviceState
	FDs            map[int]hostnet.FDKind
	Bridges        map[string]int    // their MTUs
	Routed         []netip.Prefix    // networks that the host has routes to, if a run needs to know
	Sockets        []sockdiag.Socket // of the host's, at the run's servers' ports
	NoGuard        error             // why no address can be shared with the host
}

func newFacts() Facts {
	return Facts{
		RunRoot: instance.Root(), Taps: map[string]hostnet.TapState{}, Macvtaps: map[string]hostnet.MacvtapState{},
		Devices: map[string]hostnet.DeviceState{}, FDs: map[int]hostnet.FDKind{}, Bridges: map[string]int{},
	}
}

// Look gathers the facts for a run. It is the preflight too: what would make
// the run fail later is an error now, with its remedy, and nothing was touched.
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

// LookMore gathers the facts for one more interface of a run that goes on, whose
// descriptor, for TypeFD, was passed on.
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
		f.Machine, _ = os.Hostname() // none at all is as good
	}
}

// lookInterfaces looks at what the interfaces hang on. Without any there is one
// of type user, unless s is the host's own stack.
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
		case config.TypePasst:
			if err := f.lookPasst(); err != nil {
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

// lookLimit bounds the questions to the host's kernel about one thing.
func lookLimit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// routeIPv6 tells whether the host has a route to the IPv6 internet (2000::/3):
// connecting a datagram socket looks for one, and sends nothing.
func routeIPv6() bool {
	c, err := net.DialUDP("udp6", nil, &net.UDPAddr{IP: net.ParseIP("2000::1"), Port: 9})
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// kernelIPv6 tells whether the host's kernel has IPv6.
func kernelIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// CheckNotification says what is missing when the host's kernel has no seccomp
// user notification, or not all of it that the engine uses.
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

// CheckFilter says what is missing when the host's kernel has no seccomp filters at
// all: the engine preload then does without one beneath it.
func CheckFilter() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action); err != nil {
		return fmt.Errorf("this kernel has no seccomp filters (%w): with the engine preload an empty network namespace alone keeps off the host's network what the library does not see", err)
	}
	return nil
}

// fuseDevice is what lklhost serves the stack's files through (csrc/view).
const fuseDevice = "/dev/fuse"

// CheckFuse says why the target cannot see the stack's files: /proc/net,
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

// olderThan compares a kernel's release; one that has no number is as old as
// nobody knows.
func olderThan(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
}

// NeedsUserNamespaces tells whether a run needs a user namespace to make the
// target's network namespace in: whoever lacks CAP_SYS_ADMIN does. The target
// then has no_new_privs.
func NeedsUserNamespaces() bool { return !hostnet.Capable(unix.CAP_SYS_ADMIN) }

// CheckUserNamespaces says which of the host's switches keeps this user from
// making user namespaces.
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
