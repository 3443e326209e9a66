// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// retry6 controls how a message is repeated (RFC 8415, 15). The first delay is
// about first. It roughly doubles each time, up to most. times limits the
// number of messages; 0: until ctx ends.
type retry6 struct {
	first, most time.Duration
	times       int
}

// RFC 8415, 7.6.
var (
	solicitRetry = retry6{first: time.Second, most: time.Hour}
	requestRetry = retry6{first: time.Second, most: 30 * time.Second, times: 10}
	confirmRetry = retry6{first: time.Second, most: 4 * time.Second, times: 3}
	renewRetry   = retry6{first: 10 * time.Second, most: 10 * time.Minute}
	infoRetry    = retry6{first: time.Second, most: time.Hour}
)

// iaid returns the ID of our one address on the interface, which is the same in
// every run.
func (c *client6) iaid() [4]byte { return [4]byte(c.link.MAC[2:6]) }

// duid returns our DUID, which is the same in every run (RFC 8415, 11.4).
func (c *client6) duid() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: c.link.MAC}
}

// message builds a message of the client about lease; nil: about none.
func (c *client6) message(typ dhcpv6.MessageType, lease *Lease) (*dhcpv6.Message, error) {
	m, err := dhcpv6.NewMessage()
	if err != nil {
		return nil, err
	}
	m.MessageType = typ
	m.AddOption(dhcpv6.OptClientID(c.duid()))
	m.AddOption(dhcpv6.OptElapsedTime(0))
	switch typ {
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		id, err := dhcpv6.DUIDFromBytes(lease.serverID)
		if err != nil {
			return nil, err
		}
		m.AddOption(dhcpv6.OptServerID(id))
	case dhcpv6.MessageTypeSolicit:
		m.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	}
	if typ != dhcpv6.MessageTypeInformationRequest {
		ia := &dhcpv6.OptIANA{IaId: c.iaid()}
		if lease != nil {
			ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: lease.Addr.Addr().AsSlice()})
		}
		m.AddOption(ia)
	}
	switch typ {
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline, dhcpv6.MessageTypeConfirm:
	default:
		m.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList, dhcpv6.OptionInformationRefreshTime))
	}
	return m, nil
}

// exchange repeats a message until a server replies with a lease or refuses.
func (c *client6) exchange(ctx context.Context, w *wire6, typ dhcpv6.MessageType, about *Lease, retry retry6) (*Lease, error) {
	var lease *Lease
	var refused error
	err := c.converse(ctx, w, typ, about, retry, func(m *dhcpv6.Message, from netip.Addr, sent time.Time) bool {
		if m.MessageType != dhcpv6.MessageTypeReply {
			return false
		}
		l, err := lease6(m, c.iaid(), sent)
		if errors.Is(err, errRefused) {
			refused = err
			return true
		}
		if err != nil {
			c.log.Debug("dhcp6: passed over", "link", c.link.Name, "type", m.MessageType, "reason", err)
			return false
		}
		l.Server, lease = from, l
		return true
	}, nil)
	if refused != nil {
		return nil, refused
	}
	return lease, err
}

// converse repeats a message until take accepts an answer. When the time of a
// try is over, it calls late, which can end the exchange.
func (c *client6) converse(ctx context.Context, w *wire6, typ dhcpv6.MessageType, about *Lease, retry retry6,
	take func(m *dhcpv6.Message, from netip.Addr, sent time.Time) bool, late func() bool,
) error {
	m, err := c.message(typ, about)
	if err != nil {
		return err
	}
	began, wait := time.Now(), retry.first
	for n := 0; ctx.Err() == nil && (retry.times == 0 || n < retry.times); n++ {
		sent := time.Now()
		m.UpdateOption(dhcpv6.OptElapsedTime(min(time.Since(began), 655*time.Second)))
		if err := w.send(ctx, m.ToBytes()); err != nil {
			c.log.Debug("dhcp6: sending", "link", c.link.Name, "type", typ, "error", err)
		}
		c.log.Debug("dhcp6: sent", "link", c.link.Name, "type", typ)
		try, cancel := context.WithTimeout(ctx, wait+rand.N(wait/10+1))
		done := c.listen(try, w, m, sent, take)
		cancel()
		if done || late != nil && late() {
			return nil
		}
		wait = min(2*wait, retry.most)
	}
	return context.Cause(ctx)
}

// listen passes answers to m to take until take accepts one or ctx ends.
func (c *client6) listen(ctx context.Context, w *wire6, m *dhcpv6.Message, sent time.Time, take func(*dhcpv6.Message, netip.Addr, time.Time) bool) bool {
	own := c.duid().ToBytes()
	return hear(ctx, w.receive, func(b []byte, from netip.Addr) bool {
		a, err := dhcpv6.MessageFromBytes(b)
		if err != nil || a.TransactionID != m.TransactionID {
			return false
		}
		id := a.Options.ClientID()
		return id != nil && bytes.Equal(id.ToBytes(), own) && take(a, from, sent)
	})
}

// acquire gets a new address and applies it.
func (c *client6) acquire(ctx context.Context, w *wire6) {
	offer, lease := c.solicit(ctx, w)
	if offer != nil {
		c.state = StateRequesting
		c.host.report(c.state, c.lease)
		var err error
		if lease, err = c.exchange(ctx, w, dhcpv6.MessageTypeRequest, offer, requestRetry); lease == nil {
			c.state = StateSelecting
			if errors.Is(err, errRefused) {
				c.log.Debug("dhcp6: the server has withdrawn its offer", "link", c.link.Name, "reason", err)
				c.backoff(ctx)
			}
			return
		}
	}
	if lease != nil {
		c.set(ctx, w, lease)
	}
}

// solicit searches for a server until one advertises an address or assigns one
// at once (rapid commit). Among the answers within the first second, it chooses
// the server with the highest preference.
func (c *client6) solicit(ctx context.Context, w *wire6) (offer, lease *Lease) {
	best := -1
	take := func(m *dhcpv6.Message, from netip.Addr, sent time.Time) bool {
		l, err := lease6(m, c.iaid(), sent)
		if err != nil {
			c.log.Debug("dhcp6: passed over", "link", c.link.Name, "type", m.MessageType, "reason", err)
			return false
		}
		l.Server = from
		switch {
		case m.MessageType == dhcpv6.MessageTypeReply && m.GetOneOption(dhcpv6.OptionRapidCommit) != nil:
			offer, lease = nil, l
			return true
		case m.MessageType == dhcpv6.MessageTypeAdvertise:
			if p := int(m.Options.Preference()); p > best {
				offer, best = l, p
			}
			return best == 255
		}
		return false
	}
	_ = c.converse(ctx, w, dhcpv6.MessageTypeSolicit, nil, solicitRetry, take, func() bool { return offer != nil }) // on an error there was no answer
	return offer, lease
}

// confirm asks whether the address fits the network, which may be another one
// (RFC 8415, 18.2.3).
func (c *client6) confirm(ctx context.Context, w *wire6) {
	fits, answered := false, false
	_ = c.converse(ctx, w, dhcpv6.MessageTypeConfirm, c.lease, confirmRetry, func(m *dhcpv6.Message, _ netip.Addr, _ time.Time) bool {
		s := m.Options.Status()
		if m.MessageType != dhcpv6.MessageTypeReply || s == nil {
			return false
		}
		fits, answered = s.StatusCode == iana.StatusSuccess, true
		return true
	}, nil)
	switch {
	case ctx.Err() != nil:
	case answered && !fits:
		c.lose(ctx, "that it belongs to another network")
	case until(c.lease, c.lease.valid) == 0:
		c.expire(ctx)
	default:
		c.set(ctx, w, c.lease) // the loss of carrier has removed the address
	}
}

// decline tells the server that another host has the assigned address.
func (c *client6) decline(ctx context.Context, w *wire6, l *Lease, who string) {
	if m, err := c.message(dhcpv6.MessageTypeDecline, l); err == nil {
		if err := w.send(ctx, m.ToBytes()); err != nil {
			c.log.Debug("dhcp6: declining", "link", c.link.Name, "error", err)
		}
	}
	c.host.tell("%s: DHCPv6 offers %s, which %s; declined", c.link.Name, l.Addr.Addr(), who)
	c.state = StateWaiting
	if c.pause == 0 {
		c.pause = firstPause
	}
}

// inform queries a stateless server.
func (c *client6) inform(ctx context.Context, w *wire6) {
	c.state = StateSelecting
	_ = c.converse(ctx, w, dhcpv6.MessageTypeInformationRequest, nil, infoRetry, func(m *dhcpv6.Message, from netip.Addr, sent time.Time) bool {
		l, err := info6(m, sent)
		if err != nil || m.MessageType != dhcpv6.MessageTypeReply {
			return false
		}
		refresh := max(m.Options.InformationRefreshTime(refreshDefault), refreshLeast)
		l.Server = from
		l.t1, l.Renew = refresh, l.From.Add(refresh)
		c.lease, c.state, c.pause = l, StateBound, 0
		return true
	}, nil)
}

// release returns the lease, without waiting for an answer.
func (c *client6) release(ctx context.Context) {
	if c.lease == nil || !c.full {
		return
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	w, err := openWire6(work, c.conn, &c.link, c.source())
	if err == nil {
		defer w.close()
		var m *dhcpv6.Message
		if m, err = c.message(dhcpv6.MessageTypeRelease, c.lease); err == nil {
			err = w.send(work, m.ToBytes())
		}
	}
	if err != nil {
		c.log.Debug("dhcp6: releasing", "link", c.link.Name, "error", err)
		return
	}
	c.log.Debug("dhcp6: released", "link", c.link.Name, "address", c.lease.Addr)
}
