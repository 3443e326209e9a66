// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// within calls f on a thread in the network namespace at path. The thread ends with
// f, because other goroutines must not run in that namespace. Processes that f
// starts are in it.
func within(path string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		result <- func() error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("opening the container's network namespace %s: %w", path, err)
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering the container's network namespace %s: %w", path, err)
			}
			return f()
		}()
	}()
	return <-result
}

// A port is an interface of the container, with the addresses that a stack takes over.
type port struct {
	link  netlink.Link
	addrs []netlink.Addr
	text  string // for --if
}

// takeOver removes the addresses from the interfaces of this network namespace, and
// returns the interfaces that give them to the stack of instance id. The host's side of
// each interface remains as it is: the stack has the same Ethernet and IP addresses.
// before has the settings of the stack.
func takeOver(before taken, id string) (interfaces []string, err error) {
	ports, err := listPorts()
	if err != nil {
		return nil, err
	}
	if len(ports) == 0 {
		return nil, errors.New("the container's network has no Ethernet interface with an address; use --network with a bridge")
	}
	for _, p := range ports {
		interfaces = append(interfaces, p.text)
		for _, a := range p.addrs {
			if !a.IP.IsLinkLocalUnicast() {
				before.Addresses = append(before.Addresses, address{p.link.Attrs().Name, a.IPNet.String()})
			}
		}
	}
	before.Interfaces = interfaces
	if err := before.keep(id); err != nil {
		return nil, err
	}
	for _, p := range ports {
		for _, a := range p.addrs {
			// An address that goes with another one is missing already.
			if err := netlink.AddrDel(p.link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return nil, fmt.Errorf("removing address %s of the container's interface %s: %w", a.IPNet, p.link.Attrs().Name, err)
			}
			if a.IP.IsLinkLocalUnicast() {
				continue
			}
			if err := addLocal(a.IP); err != nil {
				return nil, err
			}
		}
	}
	return interfaces, nil
}

// listPorts returns the Ethernet interfaces with other addresses than link-local ones.
func listPorts() (ports []port, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the container's interfaces: %w", err)
	}
	// The stack names its interfaces in this order, too: eth0, eth1.
	slices.SortFunc(links, func(a, b netlink.Link) int { return strings.Compare(a.Attrs().Name, b.Attrs().Name) })
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.EncapType != "ether" {
			continue
		}
		p, err := readPort(l)
		if err != nil {
			return nil, fmt.Errorf("interface %s of the container: %w", a.Name, err)
		}
		if p.text != "" {
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// readPort returns a port without text if the interface has only link-local addresses.
func readPort(l netlink.Link) (port, error) {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return port{}, fmt.Errorf("reading its addresses: %w", err)
	}
	words := []string{"raw:" + l.Attrs().Name, "mac=" + l.Attrs().HardwareAddr.String()}
	for _, a := range addrs {
		if !a.IP.IsLinkLocalUnicast() {
			words = append(words, key("ip", a.IP)+a.IPNet.String())
		}
	}
	if len(words) == 2 {
		return port{}, nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		gw, err := gateway(l, family)
		if err != nil {
			return port{}, err
		}
		if gw != nil {
			words = append(words, key("gw", gw)+gw.String())
		}
	}
	return port{l, addrs, strings.Join(words, ",")}, nil
}

// key returns the key of an interface for an address: ip= or ip6=, gw= or gw6=.
func key(name string, a net.IP) string {
	if a.To4() == nil {
		name += "6"
	}
	return name + "="
}

// gateway returns the gateway of the default route, or nil.
func gateway(l netlink.Link, family int) (net.IP, error) {
	routes, err := netlink.RouteList(l, family)
	if err != nil {
		return nil, fmt.Errorf("reading its routes: %w", err)
	}
	for _, r := range routes {
		ones := 0
		if r.Dst != nil {
			ones, _ = r.Dst.Mask.Size()
		}
		if ones == 0 && r.Gw != nil {
			return r.Gw, nil
		}
	}
	return nil, nil
}
