// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Timeouts of operations that do not wait for an answer.
const (
	applyLimit   = 10 * time.Second
	releaseLimit = time.Second
)

// asked lists the requested options. RFC 3442 requires the routes first.
var asked = []dhcpv4.OptionCode{
	dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer,
	dhcpv4.OptionDomainName, dhcpv4.OptionDNSDomainSearchList, dhcpv4.OptionInterfaceMTU,
	dhcpv4.OptionIPAddressLeaseTime, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
}

// message builds a message of the client.
func (c *client4) message(typ dhcpv4.MessageType, more ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, error) {
	all := []dhcpv4.Modifier{
		dhcpv4.WithHwAddr(c.link.MAC),
		dhcpv4.WithMessageType(typ),
		// The identifier is the same in every run: RFC 2132, 9.14, by
		// the Ethernet address.
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{1}, c.link.MAC...))),
	}
	if typ == dhcpv4.MessageTypeDiscover || typ == dhcpv4.MessageTypeRequest {
		all = append(all, dhcpv4.WithRequestedOptions(asked...), dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(1500)))
		if c.hostname != "" {
			all = append(all, dhcpv4.WithOption(dhcpv4.OptHostName(c.hostname)))
		}
	}
	return dhcpv4.New(append(all, more...)...)
}

func withAddr(opt func(net.IP) dhcpv4.Option, a netip.Addr) dhcpv4.Modifier {
	return dhcpv4.WithOption(opt(a.AsSlice()))
}

// selecting returns the request for an offer.
func (c *client4) selecting(offer *Lease) func() (*dhcpv4.DHCPv4, error) {
	return func() (*dhcpv4.DHCPv4, error) {
		return c.message(dhcpv4.MessageTypeRequest,
			withAddr(dhcpv4.OptRequestedIPAddress, offer.Addr.Addr()), withAddr(dhcpv4.OptServerIdentifier, offer.Server))
	}
}

// rebooting returns the request to confirm an earlier lease.
func (c *client4) rebooting() func() (*dhcpv4.DHCPv4, error) {
	return func() (*dhcpv4.DHCPv4, error) {
		return c.message(dhcpv4.MessageTypeRequest, withAddr(dhcpv4.OptRequestedIPAddress, c.lease.Addr.Addr()))
	}
}

// extending returns the request for more time, to one server or to all.
func (c *client4) extending() func() (*dhcpv4.DHCPv4, error) {
	return func() (*dhcpv4.DHCPv4, error) {
		return c.message(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(c.lease.Addr.Addr().AsSlice()))
	}
}

// discover searches for a server until it gets an acceptable offer, or ctx
// ends.
func (c *client4) discover(ctx context.Context, w wire) *Lease {
	began := time.Now()
	for n, wait := 0, firstRetry; ctx.Err() == nil; n, wait = n+1, min(2*wait, mostRetry) {
		more := []dhcpv4.Modifier{withSeconds(began)}
		if c.last.IsValid() {
			more = append(more, withAddr(dhcpv4.OptRequestedIPAddress, c.last))
		}
		if n%2 == 1 {
			// Some networks do not deliver packets to an address
			// that is not configured yet.
			more = append(more, dhcpv4.WithBroadcast(true))
		}
		m, err := c.message(dhcpv4.MessageTypeDiscover, more...)
		if err != nil {
			return nil
		}
		try, cancel := context.WithTimeout(ctx, jitter(wait, retrySpread))
		offer, _ := c.exchange(try, w, m, dhcpv4.MessageTypeOffer, func(*Lease) bool { return true })
		cancel()
		if offer != nil {
			return offer
		}
	}
	return nil
}

// request sends a request several times. nak reports a refusal by a server.
func (c *client4) request(ctx context.Context, w wire, make func() (*dhcpv4.DHCPv4, error), tries int, ok func(*Lease) bool) (lease *Lease, nak bool) {
	for wait := firstRetry; tries > 0 && ctx.Err() == nil; tries, wait = tries-1, min(2*wait, mostRetry) {
		try, cancel := context.WithTimeout(ctx, jitter(wait, retrySpread))
		lease, nak = c.ask(try, w, make, ok)
		cancel()
		if lease != nil || nak {
			return lease, nak
		}
	}
	return nil, false
}

// ask sends a request once and waits for the answer until ctx ends.
func (c *client4) ask(ctx context.Context, w wire, make func() (*dhcpv4.DHCPv4, error), ok func(*Lease) bool) (lease *Lease, nak bool) {
	m, err := make()
	if err != nil {
		return nil, false
	}
	return c.exchange(ctx, w, m, dhcpv4.MessageTypeAck, ok)
}

func withSeconds(since time.Time) dhcpv4.Modifier {
	return func(m *dhcpv4.DHCPv4) { m.NumSeconds = uint16(min(time.Since(since)/time.Second, 0xffff)) }
}

// exchange sends a message and returns the first lease in an answer of the
// wanted type that ok accepts. It ignores invalid messages and those that do
// not answer m.
func (c *client4) exchange(ctx context.Context, w wire, m *dhcpv4.DHCPv4, want dhcpv4.MessageType, ok func(*Lease) bool) (lease *Lease, nak bool) {
	sent := time.Now()
	if err := w.send(ctx, m.ToBytes()); err != nil {
		c.log.Debug("dhcp: sending", "link", c.link.Name, "type", m.MessageType(), "error", err)
		<-ctx.Done()
		return nil, false
	}
	c.log.Debug("dhcp: sent", "link", c.link.Name, "type", m.MessageType())
	hear(ctx, w.receive, func(b []byte, from net.HardwareAddr) bool {
		a, err := dhcpv4.FromBytes(b)
		if err != nil || !answers(a, m) {
			return false
		}
		if a.MessageType() == dhcpv4.MessageTypeNak && want == dhcpv4.MessageTypeAck {
			server, _ := addr4(a.Options.Get(dhcpv4.OptionServerIdentifier))
			nak = ok(c.like(m, server))
			return nak
		}
		if a.MessageType() != want {
			return false
		}
		// The lease begins at the time of the request (RFC 2131,
		// 4.4.5).
		l, err := lease4(a, &c.link, sent)
		if err != nil {
			c.log.Debug("dhcp: passed over", "link", c.link.Name, "type", a.MessageType(), "reason", err)
			return false
		}
		if l.serverMAC = from; !ok(l) {
			return false
		}
		lease = l
		return true
	})
	return lease, nak
}

// like returns the part of the lease that is known from a refusal: the server,
// and the requested address.
func (c *client4) like(m *dhcpv4.DHCPv4, server netip.Addr) *Lease {
	a, _ := addr4(m.Options.Get(dhcpv4.OptionRequestedIPAddress))
	if !a.IsValid() {
		a, _ = netip.AddrFromSlice(m.ClientIPAddr.To4())
	}
	return &Lease{Addr: netip.PrefixFrom(a, 32), Server: server}
}

// answers reports whether a is an answer to m.
func answers(a, m *dhcpv4.DHCPv4) bool {
	return a.OpCode == dhcpv4.OpcodeBootReply && a.TransactionID == m.TransactionID &&
		a.HWType == m.HWType && a.ClientHWAddr.String() == m.ClientHWAddr.String()
}

// decline tells the server that another host has the assigned address.
func (c *client4) decline(ctx context.Context, w wire, l *Lease) {
	m, err := c.message(dhcpv4.MessageTypeDecline,
		withAddr(dhcpv4.OptRequestedIPAddress, l.Addr.Addr()), withAddr(dhcpv4.OptServerIdentifier, l.Server))
	if err == nil {
		err = w.send(ctx, m.ToBytes())
	}
	if err != nil {
		c.log.Debug("dhcp: declining", "link", c.link.Name, "error", err)
	}
}

// sendRelease tells the server that the address is free. It sends the packet to
// the Ethernet address from which the lease came, because at the end of a run
// ARP is no longer possible.
func (c *client4) sendRelease(ctx context.Context, l *Lease) error {
	m, err := c.message(dhcpv4.MessageTypeRelease,
		dhcpv4.WithClientIP(l.Addr.Addr().AsSlice()), withAddr(dhcpv4.OptServerIdentifier, l.Server))
	if err != nil {
		return err
	}
	w, err := openPacket(ctx, c.conn, c.link.IfIndex)
	if err != nil {
		return err
	}
	defer w.close()
	w.src, w.dst = l.Addr.Addr(), l.Server
	if len(l.serverMAC) == 6 {
		w.to = l.serverMAC
	}
	return w.send(ctx, m.ToBytes())
}

// taken returns the holder of an address: an interface of the stack, or a
// neighbour (RFC 5227). The result is "" if the address is free.
func (c *client4) taken(ctx context.Context, a netip.Addr) (string, error) {
	if other, err := c.elsewhere(ctx, a); other != "" || err != nil {
		return other, err
	}
	s, err := c.conn.Socket(ctx, unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if err := s.Bind(ctx, linkAddr(c.link.IfIndex, unix.ETH_P_ARP, nil)); err != nil {
		return "", err
	}
	for range probes {
		if _, err := s.SendTo(ctx, arpPacket(c.link.MAC, netip.Addr{}, a), 0, linkAddr(c.link.IfIndex, unix.ETH_P_ARP, everybody)); err != nil {
			return "", err
		}
		who, err := c.listenARP(ctx, s, a)
		if who != "" || err != nil {
			return who, err
		}
	}
	return "", nil
}

// listenARP listens for the time that the answer to one probe may take.
func (c *client4) listenARP(ctx context.Context, s *stackconn.Socket, a netip.Addr) (string, error) {
	try, cancel := context.WithTimeout(ctx, jitter(probeInterval, probeInterval/4))
	defer cancel()
	b := make([]byte, 64)
	for n := 0; n < junkMost; n++ {
		size, _, err := s.RecvFrom(try, b, 0)
		if try.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
			return "", ctx.Err()
		}
		if err != nil {
			return "", err
		}
		if arpConflict(b[:size], c.link.MAC, a) {
			return "host " + net.HardwareAddr(b[8:14]).String() + " already uses", nil
		}
	}
	<-try.Done()
	return "", ctx.Err()
}

// announce tells the neighbours the new holder of the address.
func (c *client4) announce(ctx context.Context, a netip.Addr) {
	s, err := c.conn.Socket(ctx, unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return // the neighbours learn it on their own
	}
	defer s.Close()
	_, err = s.SendTo(ctx, arpPacket(c.link.MAC, a, a), 0, linkAddr(c.link.IfIndex, unix.ETH_P_ARP, everybody))
	if err != nil {
		c.log.Debug("dhcp: announcing", "link", c.link.Name, "error", err)
	}
}
