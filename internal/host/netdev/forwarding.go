// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forwarding records the changes to the host's sysctls that make it forward
// packets. A write to the global switch also changes the switch of each device,
// so the lists keep the indices of the devices that need their value back.
type forwarding struct {
	Four, Six bool  // the switch was off
	On4, On6  []int // devices whose own switch was on although the global one was off
	RA        []int // devices that accepted router advertisements as a host, which a router by default does not
}

const (
	switch4 = "/proc/sys/net/ipv4/ip_forward"
	switch6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

func own4(dev string) string { return "/proc/sys/net/ipv4/conf/" + dev + "/forwarding" }
func own6(dev string) string { return "/proc/sys/net/ipv6/conf/" + dev + "/forwarding" }
func ownRA(dev string) string {
	return "/proc/sys/net/ipv6/conf/" + dev + "/accept_ra"
}

// neededForwarding returns the changes that are needed.
func neededForwarding(six bool) (forwarding, error) {
	var f forwarding
	devs, err := net.Interfaces()
	if err != nil {
		return f, err
	}
	if f.Four = sysctl(switch4) == "0"; f.Four {
		f.On4 = devicesWith(devs, own4, "1")
	}
	if f.Six = six && sysctl(switch6) == "0"; f.Six {
		f.On6 = devicesWith(devs, own6, "1")
		f.RA = devicesWith(devs, ownRA, "1")
	}
	return f, nil
}

func devicesWith(devs []net.Interface, path func(string) string, value string) []int {
	var all []int
	for _, d := range devs {
		if sysctl(path(d.Name)) == value {
			all = append(all, d.Index)
		}
	}
	return all
}

// checkForwarding returns an error if forwarding cannot be enabled.
func checkForwarding() error {
	// access(2) ignores the capabilities of users other than root.
	if sysctl(switch4) == "1" || unix.Faccessat(unix.AT_FDCWD, switch4, unix.W_OK, unix.AT_EACCESS) == nil {
		return nil
	}
	return errors.New("net.ipv4.ip_forward is 0 and cannot be changed here (in a container, /proc/sys is read-only); run `sysctl -w net.ipv4.ip_forward=1` on the host, or use --if user")
}

// enable enables forwarding for each family for which it is off.
func (f *forwarding) enable() error {
	var errs []error
	for _, dev := range names(f.RA) {
		errs = append(errs, setSysctl(ownRA(dev), "2"))
	}
	if f.Four {
		errs = append(errs, setSysctl(switch4, "1"))
	}
	if f.Six {
		errs = append(errs, setSysctl(switch6, "1"))
	}
	return errors.Join(errs...)
}

// restore reverts enable, except for values that another process has changed
// since.
func (f *forwarding) restore() error {
	var errs []error
	if f.Four && sysctl(switch4) == "1" {
		errs = append(errs, setSysctl(switch4, "0"))
		for _, dev := range names(f.On4) {
			errs = append(errs, setSysctl(own4(dev), "1"))
		}
	}
	if f.Six && sysctl(switch6) == "1" {
		errs = append(errs, setSysctl(switch6, "0"))
		for _, dev := range names(f.On6) {
			errs = append(errs, setSysctl(own6(dev), "1"))
		}
	}
	for _, dev := range names(f.RA) {
		if sysctl(ownRA(dev)) == "2" {
			errs = append(errs, setSysctl(ownRA(dev), "1"))
		}
	}
	return errors.Join(errs...)
}

// names returns the names of the devices that still exist.
func names(indices []int) []string {
	var all []string
	for _, n := range indices {
		if ifi, err := net.InterfaceByIndex(n); err == nil {
			all = append(all, ifi.Name)
		}
	}
	return all
}

// inherit adds the changes of another run, which this run must now restore.
func (f *forwarding) inherit(o forwarding) {
	join := func(a, b []int) []int {
		all := append(slices.Clone(a), b...)
		slices.Sort(all)
		return slices.Compact(all)
	}
	f.Four, f.Six = f.Four || o.Four, f.Six || o.Six
	f.On4, f.On6, f.RA = join(f.On4, o.On4), join(f.On6, o.On6), join(f.RA, o.RA)
}

// String returns a short form, because the alias of a device has at most 256
// bytes.
func (f *forwarding) String() string {
	list := func(all []int) string {
		s := make([]string, len(all))
		for n, i := range all {
			s[n] = strconv.Itoa(i)
		}
		return strings.Join(s, ",")
	}
	flag := map[bool]string{true: "1", false: "0"}
	return strings.Join([]string{flag[f.Four], flag[f.Six], list(f.On4), list(f.On6), list(f.RA)}, "/")
}

func parseForwarding(s string) (forwarding, error) {
	var f forwarding
	parts := strings.Split(s, "/")
	if len(parts) != 5 {
		return f, fmt.Errorf("%q is not a saved forwarding setting", s)
	}
	f.Four, f.Six = parts[0] == "1", parts[1] == "1"
	for n, to := range []*[]int{&f.On4, &f.On6, &f.RA} {
		for _, word := range strings.Split(parts[2+n], ",") {
			if word == "" {
				continue
			}
			i, err := strconv.Atoi(word)
			if err != nil {
				return f, fmt.Errorf("%q is not a saved forwarding setting", s)
			}
			*to = append(*to, i)
		}
	}
	return f, nil
}

// sysctl reads a file of /proc/sys. It returns "" if there is none.
func sysctl(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func setSysctl(path, value string) error {
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting %s to %s: %w", strings.TrimPrefix(path, "/proc/sys/"), value, err)
	}
	return nil
}
