// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Pick turns the devices that a run names without a type into interfaces: raw
// for Ethernet devices, rawip for devices without link layer.
func Pick(run *config.Run) error {
	for _, name := range run.Ifaces {
		rawIP, err := hostnet.WantsRawIP(name)
		if err != nil {
			return fmt.Errorf("--iface %s: %w", name, err)
		}
		typ := config.TypeRaw
		if rawIP {
			typ = config.TypeRawIP
		}
		run.Interfaces = append(run.Interfaces, config.Interface{Type: typ, Device: name})
	}
	if len(run.Interfaces) > config.MaxInterfaces {
		return fmt.Errorf("--iface: %d interfaces altogether; at most %d are possible", len(run.Interfaces), config.MaxInterfaces)
	}
	run.Ifaces = nil
	if err := config.CheckInterfaces(run.Interfaces); err != nil {
		return fmt.Errorf("--iface: %w", err)
	}
	return nil
}

// packet fills in the properties that an interface of type raw or rawip takes
// from the host's device. Without configured addresses, the interface uses
// those of the device and its gateways. If an address is the device's, the
// interface shares it, and with it the Ethernet address. With any other
// address, the interface is a separate machine on the network.
func (l *Link) packet(i *config.Interface, d hostnet.DeviceState) error {
	own := !i.MAC.IsZero() || i.DHCP || i.DHCP6 || i.SLAAC
	if len(l.Addrs) == 0 && !own {
		l.Addrs = slices.Clone(d.Lent)
		if len(l.Addrs) == 0 {
			return fmt.Errorf("--if %q: %s has no address on the host to share; expected ip=ADDRESS/PREFIX", i.String(), i.Device)
		}
		for _, p := range l.Addrs {
			if p.Addr().Is6() && !l.GW6.IsValid() {
				l.GW6 = d.GW6
			} else if p.Addr().Is4() && !l.GW4.IsValid() {
				l.GW4 = d.GW4
			}
		}
	}
	var alone []netip.Addr
	for _, p := range l.Addrs {
		if p.Addr() == l.GW4 || p.Addr() == l.GW6 {
			return fmt.Errorf("--if %q: gateway %s is the interface's own address", i.String(), p.Addr())
		}
		if d.Has(p.Addr()) {
			l.Shared = append(l.Shared, p.Addr())
		} else {
			alone = append(alone, p.Addr())
		}
	}
	if len(l.Shared) > 0 {
		switch {
		case len(alone) > 0:
			return fmt.Errorf("--if %q: %s is the host's own on %s and %s is not: an interface has the one or the other kind", i.String(), l.Shared[0], i.Device, alone[0])
		case own && !l.RawIP:
			return fmt.Errorf("--if %q: %s is the host's own on %s, with its Ethernet address; leave out mac, dhcp, dhcp6 and slaac, or choose another address", i.String(), l.Shared[0], i.Device)
		case i.VLAN != 0:
			return fmt.Errorf("--if %q: %s is the host's own on %s, outside of VLAN %d; choose another address with ip=, or leave out vlan", i.String(), l.Shared[0], i.Device, i.VLAN)
		}
		if !l.RawIP {
			l.MAC = d.MAC
		}
	}
	if l.MTU == 0 {
		l.MTU = min(d.MTU, config.MaxMTU)
	} else if l.MTU > d.MTU {
		return fmt.Errorf("--if %q: mtu: %s takes no more than %d bytes", i.String(), i.Device, d.MTU)
	}
	return nil
}

// CheckRawIP returns an error if the stack is known not to support devices
// without link layer. For ABIAuto only the library knows.
func (s *Stack) CheckRawIP() error {
	switch s.ABI {
	case stack.ABINative, stack.ABIAuto:
		return nil
	}
	return s.NoRawIP()
}

// NoRawIP returns an error that the stack does not support devices without link
// layer.
func (s *Stack) NoRawIP() error {
	return fmt.Errorf("stack %s has no devices without link layer; use tap or raw, or a stack of lklrun's own", s.Name)
}

// packetStep describes the step that opens the device, and the traffic that the
// stack gets from it.
func (l *Link) packetStep() string {
	text := fmt.Sprintf("open a packet socket on %s as %s", l.Device, l.Name)
	switch {
	case len(l.Shared) > 0:
		return text + ", sharing " + joinAddrs(l.Shared) + " with the host"
	case l.RawIP:
		return text
	}
	return text + ", for Ethernet address " + l.MAC.String()
}

// describePacket returns the first words about the interface in a printed plan.
func (l *Link) describePacket() string {
	var words []string
	if l.RawIP {
		words = append(words, "IP packets of "+l.Device)
	} else {
		words = append(words, "Ethernet frames of "+l.Device)
	}
	if len(l.Shared) > 0 {
		words = append(words, "sharing the host's address")
	}
	return strings.Join(words, ", ")
}
