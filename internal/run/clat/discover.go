// SPDX-License-Identifier: Apache-2.0

package clat

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/link/clat/siit"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// state is a configuration of the stack and the translator.
type state struct {
	uplink  string
	index   int // of the uplink
	table   int
	own6    netip.Addr
	prefix  netip.Prefix
	mtu     int  // of the uplink
	proxied bool // neighbours ask for addresses
}

// finding is the result of a DNS query, which is valid for one address.
type finding struct {
	from   netip.Addr
	prefix netip.Prefix
	until  time.Time
}

const (
	queryLimit = 2 * time.Second
	// An answer is used for at least and at most this time, whatever its TTL.
	leastTTL, mostTTL = time.Minute, 24 * time.Hour
)

// Reasons why IPv4 does not work.
var errNoUplink = errors.New("no interface has an IPv6 address")

// want returns the wanted settings, and how long they are known to be valid.
func (s *Service) want(ctx context.Context) (*state, time.Duration, error) {
	up, from, err := s.uplink(ctx)
	if err != nil {
		return nil, 0, err
	}
	w := *up
	valid := mostTTL
	w.prefix = s.Plan.Prefix
	if !w.prefix.IsValid() {
		w.prefix, valid = s.pref64(w.index)
	}
	if !w.prefix.IsValid() {
		if w.prefix, valid, err = s.ask(ctx, &w, from); err != nil {
			return nil, 0, err
		}
	}
	b := from.As16()
	copy(b[8:], s.identifier[:])
	if w.own6 = netip.AddrFrom16(b); w.prefix.Contains(w.own6) {
		return nil, 0, fmt.Errorf("the NAT64 prefix %s contains the addresses of %s", w.prefix, w.uplink)
	}
	return &w, valid, nil
}

// newIdentifier chooses the lower half of our IPv6 address. Nobody else has it, with a
// probability of 1 - 2^-62 for each machine in the network.
func (s *Service) newIdentifier() {
	_, _ = rand.Read(s.identifier[:]) // it never fails
	s.identifier[0] &^= 3             // neither universal nor a group (RFC 4291, 2.5.1)
}

// uplink returns the interface that the clat is over, and its IPv6 address.
func (s *Service) uplink(ctx context.Context) (*state, netip.Addr, error) {
	links, err := stacknet.Links(ctx, s.Conn)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	addrs, err := stacknet.Addresses(ctx, s.Conn)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	why := errNoUplink
	for _, u := range s.Uplinks() {
		for _, l := range links {
			if l.Name != u.Name || !l.Carries() {
				continue
			}
			from, ok := global(addrs, l.Index)
			switch {
			case !ok:
			case u.Shared:
				why = fmt.Errorf("%s has the host's address, and packets to another address would not reach the stack; give it an address of its own with slaac or ip6=", u.Name)
			case u.Table == 0:
				why = errors.New("the stack has no policy routing")
			default:
				mtu, err := s.mtu(ctx, l)
				return &state{uplink: u.Name, index: l.Index, table: u.Table, mtu: mtu, proxied: len(l.MAC) == 6}, from, err
			}
		}
	}
	return nil, netip.Addr{}, why
}

// mtu returns the MTU for IPv6, which a router can lower.
func (s *Service) mtu(ctx context.Context, l stacknet.LinkState) (int, error) {
	text, err := stacknet.GetSysctl(ctx, s.Conn, "net/ipv6/conf/"+l.Name+"/mtu")
	if err != nil {
		return 0, err
	}
	mtu := 0
	if _, err := fmt.Sscan(text, &mtu); err != nil {
		return 0, fmt.Errorf("the IPv6 MTU of %s: %w", l.Name, err)
	}
	return min(mtu, l.MTU), nil
}

// global returns an IPv6 address of an interface from which other networks can be reached.
func global(addrs []stacknet.Address, ifindex int) (netip.Addr, bool) {
	for _, a := range addrs {
		const not = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
		addr := a.Prefix.Addr()
		if a.IfIndex == ifindex && addr.Is6() && addr.IsGlobalUnicast() && a.Flags&not == 0 {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// ask returns the prefix that the network's name servers use. It also solicits a router
// advertisement, because the last one may have come before the monitor started.
func (s *Service) ask(ctx context.Context, w *state, from netip.Addr) (netip.Prefix, time.Duration, error) {
	if left := time.Until(s.found.until); s.found.from == from && left > 0 {
		return s.found.prefix, left, nil
	}
	if err := s.solicit(ctx, w.index); err != nil {
		s.Log.Debug("clat: soliciting a router advertisement", "link", w.uplink, "error", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.stopAsking = cancel
	s.mu.Unlock()
	var servers []netip.Addr
	for _, u := range s.Uplinks() {
		if u.Name == w.uplink {
			servers = u.Servers
		}
	}
	for _, a := range servers {
		if !a.Is6() {
			continue
		}
		prefix, ttl, err := s.query(ctx, w.uplink, a)
		if err == nil {
			s.found = finding{from, prefix, time.Now().Add(ttl)}
			return prefix, ttl, nil
		}
		s.Log.Debug("clat: asking for the prefix", "server", a, "error", err)
	}
	if p, valid := s.pref64(w.index); p.IsValid() { // it has arrived meanwhile
		return p, valid, nil
	}
	return netip.Prefix{}, 0, fmt.Errorf("the network of %s has no NAT64 prefix (no router announces one, and its name servers have none for ipv4only.arpa)", w.uplink)
}

// solicit asks the routers of an interface for an advertisement (RFC 4861, 4.1).
func (s *Service) solicit(ctx context.Context, ifindex int) error {
	c, err := s.Conn.Socket(ctx, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Setsockopt(ctx, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, binary.NativeEndian.AppendUint32(nil, 255)); err != nil {
		return err
	}
	to := make([]byte, unix.SizeofSockaddrInet6)
	binary.NativeEndian.PutUint16(to, unix.AF_INET6)
	copy(to[8:], netip.IPv6LinkLocalAllRouters().AsSlice())
	binary.NativeEndian.PutUint32(to[24:], uint32(ifindex))
	_, err = c.SendTo(ctx, []byte{133, 0, 0, 0, 0, 0, 0, 0}, 0, to)
	return err
}

// query asks one name server for the addresses of ipv4only.arpa (RFC 7050, 3), through the
// uplink.
func (s *Service) query(ctx context.Context, device string, server netip.Addr) (netip.Prefix, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	c, err := s.Conn.Socket(ctx, unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return netip.Prefix{}, 0, err
	}
	defer c.Close()
	if err := c.Setsockopt(ctx, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, append([]byte(device), 0)); err != nil {
		return netip.Prefix{}, 0, err
	}
	to := make([]byte, unix.SizeofSockaddrInet6)
	binary.NativeEndian.PutUint16(to, unix.AF_INET6)
	binary.BigEndian.PutUint16(to[2:], 53)
	copy(to[8:], server.WithZone("").AsSlice())
	if err := c.Connect(ctx, to); err != nil {
		return netip.Prefix{}, 0, err
	}
	var id [2]byte
	_, _ = rand.Read(id[:]) // it never fails
	question := dnsmessage.Question{Name: dnsmessage.MustNewName("ipv4only.arpa."), Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}
	header := dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true}
	ask := dnsmessage.NewBuilder(nil, header)
	if err := errors.Join(ask.StartQuestions(), ask.Question(question)); err != nil {
		return netip.Prefix{}, 0, err
	}
	b, err := ask.Finish()
	if err != nil {
		return netip.Prefix{}, 0, err
	}
	if _, err := c.Send(ctx, b); err != nil {
		return netip.Prefix{}, 0, err
	}
	answer := make([]byte, 4096)
	for {
		n, _, err := c.RecvFrom(ctx, answer, 0)
		if err != nil {
			return netip.Prefix{}, 0, err
		}
		var m dnsmessage.Parser
		if h, err := m.Start(answer[:n]); err == nil && h.Response && h.ID == header.ID {
			return parseAnswer(&m)
		}
	}
}

// parseAnswer returns the prefix of the first address in an answer.
func parseAnswer(m *dnsmessage.Parser) (netip.Prefix, time.Duration, error) {
	if err := m.SkipAllQuestions(); err != nil {
		return netip.Prefix{}, 0, err
	}
	for {
		h, err := m.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return netip.Prefix{}, 0, errors.New("no address that contains 192.0.0.170 or 192.0.0.171")
		}
		if err != nil {
			return netip.Prefix{}, 0, err
		}
		if h.Type != dnsmessage.TypeAAAA {
			if err := m.SkipAnswer(); err != nil {
				return netip.Prefix{}, 0, err
			}
			continue
		}
		aaaa, err := m.AAAAResource()
		if err != nil {
			return netip.Prefix{}, 0, err
		}
		if p, ok := prefixOf(netip.AddrFrom16(aaaa.AAAA)); ok {
			return p, min(max(time.Duration(h.TTL)*time.Second, leastTTL), mostTTL), nil
		}
	}
}

// prefixOf returns the prefix of an address that contains a well-known IPv4 address. At most
// one length fits, because the rest of the address must be zero.
func prefixOf(a netip.Addr) (netip.Prefix, bool) {
	for _, bits := range []int{96, 64, 56, 48, 40, 32} {
		p, err := a.Prefix(bits)
		if err != nil || siit.CheckPrefix(p) != nil {
			continue
		}
		v4, ok := siit.Extract(p, a)
		if ok && (v4 == netip.AddrFrom4([4]byte{192, 0, 0, 170}) || v4 == netip.AddrFrom4([4]byte{192, 0, 0, 171})) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
