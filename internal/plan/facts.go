// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/gateway"
	"github.com/lklrun/lklrun/internal/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/program"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Facts are what a plan needs to know of the host.
type Facts struct {
	RunRoot        string
	Machine        string // names this machine among others
	Resolv         string // /etc/resolv.conf
	ResolvUpstream string // of systemd-resolved
	Addrs          []netip.Prefix
	IPv6           bool                        // the host has a way out by IPv6
	Taps           map[string]hostnet.TapState // those that the run names
}

// Look gathers the facts for a run. It is the preflight too: what would make
// the run fail later is an error now, with its remedy, and nothing was touched.
func Look(run config.Run, s *stack.Stack) (Facts, error) {
	f := Facts{RunRoot: instance.Root(), Taps: map[string]hostnet.TapState{}}
	if err := s.CheckLibrary(); err != nil {
		return f, err
	}
	if err := checkKernel(); err != nil {
		return f, err
	}
	if err := f.lookInterfaces(run.Interfaces, s); err != nil {
		return f, err
	}
	if len(run.Command) > 0 {
		if _, err := program.Look(run.Command[0]); err != nil {
			return f, err
		}
	}
	if f.Machine = strings.TrimSpace(readText("/etc/machine-id")); f.Machine == "" {
		f.Machine, _ = os.Hostname() // none at all is as good
	}
	f.Resolv = readText("/etc/resolv.conf")
	f.ResolvUpstream = readText("/run/systemd/resolve/resolv.conf")
	return f, nil
}

func (f *Facts) lookInterfaces(ifs []config.Interface, s *stack.Stack) error {
	user := len(ifs) == 0 && s.ABI != stack.ABIHost
	for _, i := range ifs {
		switch i.Type {
		case config.TypeUser:
			user = true
		case config.TypeTap:
			st, err := hostnet.CheckTap(i.Device)
			if err != nil {
				return fmt.Errorf("--if %q: %w", i.String(), err)
			}
			f.Taps[i.Device] = st
		case config.TypeFD:
			if err := hostnet.CheckFD(i.FD); err != nil {
				return fmt.Errorf("--if %q: %w", i.String(), err)
			}
		}
	}
	if !user {
		return nil
	}
	if !gateway.Available {
		return gateway.ErrLeftOut
	}
	f.IPv6 = routeIPv6()
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

// checkKernel looks for what the supervise engine needs of the host's kernel.
func checkKernel() error {
	if err := CheckNotification(); err != nil {
		return err
	}
	if NeedsUserNamespaces() {
		return CheckUserNamespaces()
	}
	return nil
}

// CheckNotification says what is missing when the host's kernel has no seccomp
// user notification, or not all of it that the engine uses.
func CheckNotification() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("asking for the kernel's release: %w", err)
	}
	if release := unix.ByteSliceToString(u.Release[:]); olderThan(release, 5, 14) { // SECCOMP_ADDFD_FLAG_SEND
		return fmt.Errorf("this kernel is Linux %s; the engine needs 5.14 or later", release)
	}
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action); err != nil {
		return fmt.Errorf("this kernel offers no seccomp user notification (%w), which the engine needs: Linux 5.14 or later with CONFIG_SECCOMP_FILTER", err)
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
