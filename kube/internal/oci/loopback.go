// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The stack has the container's addresses. Processes of the host in the container's network
// namespace may still connect to them, such as podman's rootlessport. The addresses are
// therefore on lo as well. A routing rule restricts the table of local addresses to the
// packets of these processes: the host's kernel does not accept packets that arrive on the
// container's interfaces, and does not answer ARP requests there. The stack does.

// localRules returns the kernel's own rule for local addresses, and the restricted one. The
// kernel takes lo for the incoming interface of packets that it sends itself.
func localRules(family int) (all, own *netlink.Rule) {
	all, own = netlink.NewRule(), netlink.NewRule()
	all.Family, all.Priority, all.Table = family, 0, unix.RT_TABLE_LOCAL
	*own = *all
	own.IifName = "lo"
	return all, own
}

// loAddr returns an address for lo.
func loAddr(ip net.IP) (netlink.Link, *netlink.Addr, int, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, nil, 0, fmt.Errorf("looking for the container's interface lo: %w", err)
	}
	family, bits := netlink.FAMILY_V6, 128
	if ip.To4() != nil {
		family, bits = netlink.FAMILY_V4, 32
	}
	return lo, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}, Scope: unix.RT_SCOPE_HOST}, family, nil
}

// addLocal makes an address local for processes of the host, and for nobody else.
func addLocal(ip net.IP) error {
	lo, addr, family, err := loAddr(ip)
	if err != nil {
		return err
	}
	all, own := localRules(family)
	if err := netlink.RuleAdd(own); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("restricting the local addresses of the container: %w", err)
	}
	if err := netlink.RuleDel(all); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("restricting the local addresses of the container: %w", err)
	}
	if err := netlink.AddrAdd(lo, addr); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("adding address %s to the container's interface lo: %w", ip, err)
	}
	return nil
}

// delLocal is the reverse of addLocal. It does nothing after another delLocal.
func delLocal(ip net.IP) error {
	lo, addr, family, err := loAddr(ip)
	if err != nil {
		return err
	}
	if err := netlink.AddrDel(lo, addr); err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("removing address %s from the container's interface lo: %w", ip, err)
	}
	all, own := localRules(family)
	if err := netlink.RuleAdd(all); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("restoring the local addresses of the container: %w", err)
	}
	if err := netlink.RuleDel(own); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("restoring the local addresses of the container: %w", err)
	}
	return nil
}
