// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/link/user/rules"
	"github.com/lklrun/lklrun/pkg/config"
)

// With a proxy (--proxy), the gateway opens sockets to the proxy only. The proxy resolves the
// names: the gateway answers a query with an address of its own choice, and passes the name
// on when the program connects to that address. A name keeps its address for the whole run,
// so an address that a program remembers never means another name.

// proxy is the way through a proxy.
type proxy struct {
	*config.Proxy
	cfg   *Config
	tell  func(string)
	addrs []netip.AddrPort // of the proxy

	mu     sync.Mutex
	named  map[string]netip.Addr
	names  map[netip.Addr]string
	silent bool // the user knows that the proxy does not work
}

// proxied is the network for names (RFC 2544, 4.1.3), which no host on the Internet has.
var proxied = netip.MustParsePrefix("198.18.0.0/15")

const (
	// maxNames bounds the memory for names.
	maxNames = 1 << 16

	// nameTTL is the lifetime of an address of a name, in seconds.
	nameTTL = 3600

	// maxHeader bounds the answer of an HTTP proxy.
	maxHeader = 8 << 10

	// greetLimit bounds the wait for a proxy before it connects anywhere.
	greetLimit = 10 * time.Second

	// resolveLimit bounds the search for the proxy's addresses.
	resolveLimit = 10 * time.Second
)

func newProxy(ctx context.Context, cfg *Config, tell func(string)) (*proxy, error) {
	p := &proxy{Proxy: cfg.Proxy, cfg: cfg, tell: tell, named: map[string]netip.Addr{}, names: map[netip.Addr]string{}}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.Host)
	if err != nil {
		return nil, err
	}
	for _, a := range found {
		p.addrs = append(p.addrs, netip.AddrPortFrom(a.Unmap(), p.Port))
	}
	return p, nil
}

// answer answers a query for a name: with one IPv4 address, and without other records.
func (p *proxy) answer(query []byte) []byte {
	var parser dnsmessage.Parser
	h, err := parser.Start(query)
	if err != nil {
		return serverFailure(query)
	}
	q, err := parser.Question()
	if err != nil {
		return serverFailure(query)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	switch a := p.address(q.Name.String()); {
	case !hostName(q.Name.String()):
		m.RCode = dnsmessage.RCodeNameError
	case q.Type != dnsmessage.TypeA || q.Class != dnsmessage.ClassINET: // there is no such record
	case !a.IsValid():
		return serverFailure(query)
	default:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: nameTTL},
			Body:   &dnsmessage.AResource{A: a.As4()},
		}}
	}
	b, err := m.Pack()
	if err != nil {
		return serverFailure(query)
	}
	return b
}

// hostName reports whether a name has only the characters of host names, which mean the same
// to every proxy.
func hostName(name string) bool {
	return len(name) > 1 && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// address returns the address of a name. It is invalid if there are too many names.
func (p *proxy) address(name string) netip.Addr {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.named[name]
	if !ok && len(p.named) < maxNames && hostName(name+".") {
		first := proxied.Addr().As4()
		a = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(first[:])+uint32(len(p.named))+1)))
		p.named[name], p.names[a] = a, name
	}
	return a
}

// destination is where the program wants to connect to: a name, or an address without one.
func (p *proxy) destination(to netip.AddrPort) (host string, err error) {
	a := to.Addr().Unmap()
	p.mu.Lock()
	host = p.names[a]
	p.mu.Unlock()
	switch {
	case host != "":
		return host, nil
	case p.cfg.own(a), !a.IsGlobalUnicast(), proxied.Contains(a):
		return "", &rules.DeniedError{To: to.String(), Reason: "it is no destination for a proxy"}
	}
	return a.String(), nil
}

// dial asks the proxy for a connection. The result is a connection to the proxy from which
// only its answer has been read.
func (p *proxy) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	host, err := p.destination(to)
	if err != nil {
		return nil, err
	}
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	if p.HTTP {
		err = p.tunnel(ctx, conn, net.JoinHostPort(host, strconv.Itoa(int(to.Port()))))
	} else if err = p.greet(ctx, conn); err == nil {
		_, err = p.ask(ctx, conn, socksConnect, host, to.Port())
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect opens a connection to the proxy.
func (p *proxy) connect(ctx context.Context) (net.Conn, error) {
	var err error
	for _, a := range p.addrs {
		var conn net.Conn
		if conn, err = p.cfg.dial(ctx, "tcp", a); err == nil {
			return conn, nil
		}
	}
	return nil, p.broken(ctx, err)
}

// broken reports, once, that the proxy does not work. The program's calls fail as if it were a
// router without a way.
func (p *proxy) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	again := p.silent
	p.silent = true
	p.mu.Unlock()
	if !again {
		go p.tell(fmt.Sprintf("the proxy %s does not work, so nothing is reached: %v", p.Proxy, err)) // the terminal may block
	}
	return fmt.Errorf("proxy: %w (%w)", unix.EHOSTUNREACH, noErrno{err})
}

// noErrno hides the error number of the proxy's own socket.
type noErrno struct{ error }

// tunnel asks an HTTP proxy (RFC 9110, 9.3.6).
func (p *proxy) tunnel(ctx context.Context, conn net.Conn, to string) error {
	text := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n"
	if p.User != "" {
		text += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password)) + "\r\n"
	}
	if _, err := conn.Write([]byte(text + "\r\n")); err != nil {
		return p.broken(ctx, err)
	}
	// What follows the header belongs to the program, so read no byte of it.
	var header []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(header), "\r\n\r\n"); header = append(header, one[0]) {
		if len(header) == maxHeader {
			return p.broken(ctx, errors.New("its answer is too long"))
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return p.broken(ctx, err)
		}
	}
	line, _, _ := strings.Cut(string(header), "\r\n")
	version, status, _ := strings.Cut(line, " ")
	switch code, err := strconv.Atoi(status[:min(3, len(status))]); {
	case err != nil || !strings.HasPrefix(version, "HTTP/1."):
		return p.broken(ctx, errors.New("it is no HTTP proxy"))
	case code/100 == 2:
		return nil
	case code == 407:
		return p.broken(ctx, errors.New("it wants another user or password"))
	case code == 403:
		return fmt.Errorf("proxy: %s: %w", line, errForbidden)
	case code == 504:
		return fmt.Errorf("proxy: %s: %w", line, unix.ETIMEDOUT)
	default:
		return fmt.Errorf("proxy: %s: %w", line, unix.EHOSTUNREACH)
	}
}

// errForbidden is the error for a destination that the proxy forbids.
var errForbidden = &rules.DeniedError{To: "the destination", Reason: "the proxy does not permit it"}

// SOCKS, version 5 (RFC 1928, RFC 1929).
const (
	socksVersion   = 5
	socksConnect   = 1
	socksAssociate = 3

	socksIPv4, socksName, socksIPv6 = 1, 3, 4

	socksNoLogin, socksLogin = 0, 2
)

// socksErrors are the errors for the replies of a SOCKS proxy, from 1 on.
var socksErrors = []error{
	unix.EHOSTUNREACH, errForbidden, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ECONNREFUSED,
	unix.ETIMEDOUT, errForbidden, unix.EHOSTUNREACH,
}

// greet negotiates a way to log in, and logs in.
func (p *proxy) greet(ctx context.Context, conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(greetLimit)); err != nil {
		return err
	}
	defer conn.SetDeadline(time.Time{}) //nolint:errcheck // the connection has ended
	methods := []byte{socksVersion, 1, socksNoLogin}
	if p.User != "" {
		methods = []byte{socksVersion, 2, socksNoLogin, socksLogin}
	}
	answer := make([]byte, 2)
	if err := exchange(conn, methods, answer); err != nil {
		return p.broken(ctx, err)
	}
	switch {
	case answer[0] != socksVersion:
		return p.broken(ctx, errors.New("it is no SOCKS5 proxy"))
	case answer[1] == socksNoLogin:
		return nil
	case answer[1] != socksLogin || p.User == "":
		return p.broken(ctx, errors.New("it wants another way to log in"))
	}
	login := append([]byte{1, byte(len(p.User))}, p.User...)
	login = append(append(login, byte(len(p.Password))), p.Password...)
	if err := exchange(conn, login, answer); err != nil {
		return p.broken(ctx, err)
	}
	if answer[1] != 0 {
		return p.broken(ctx, errors.New("it wants another user or password"))
	}
	return nil
}

// exchange sends a message and reads an answer of fixed length.
func exchange(conn net.Conn, message, answer []byte) error {
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, answer)
	return err
}

// ask makes a request and returns the address in the answer.
func (p *proxy) ask(ctx context.Context, conn net.Conn, command byte, host string, port uint16) (netip.AddrPort, error) {
	answer := make([]byte, 4)
	if err := exchange(conn, append([]byte{socksVersion, command, 0}, socksAddr(host, port)...), answer); err != nil {
		return netip.AddrPort{}, p.broken(ctx, err)
	}
	if answer[0] != socksVersion {
		return netip.AddrPort{}, p.broken(ctx, errors.New("its answer is malformed"))
	}
	if code := int(answer[1]); code > len(socksErrors) {
		return netip.AddrPort{}, p.broken(ctx, fmt.Errorf("its answer is %d", code))
	} else if code > 0 {
		return netip.AddrPort{}, fmt.Errorf("proxy: reply %d: %w", code, socksErrors[code-1])
	}
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[answer[3]]
	if answer[3] == socksName {
		if _, err := io.ReadFull(conn, answer[:1]); err != nil {
			return netip.AddrPort{}, p.broken(ctx, err)
		}
		size = int(answer[0])
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(conn, rest); err != nil {
		return netip.AddrPort{}, p.broken(ctx, err)
	}
	a, _ := netip.AddrFromSlice(rest[:size])
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(rest[size:])), nil
}

// socksAddr encodes a destination.
func socksAddr(host string, port uint16) (b []byte) {
	switch a, err := netip.ParseAddr(host); {
	case err != nil:
		b = append([]byte{socksName, byte(len(host))}, host...)
	case a.Is4():
		b = append([]byte{socksIPv4}, a.AsSlice()...)
	default:
		b = append([]byte{socksIPv6}, a.AsSlice()...)
	}
	return binary.BigEndian.AppendUint16(b, port)
}

// datagrams asks the proxy to forward datagrams.
func (p *proxy) datagrams(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	host, err := p.destination(to)
	if err == nil && p.HTTP {
		err = &rules.DeniedError{To: to.String(), Reason: "an HTTP proxy forwards no UDP"}
	}
	if err != nil {
		return nil, err
	}
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var at netip.AddrPort
	if err = p.greet(ctx, conn); err == nil {
		at, err = p.ask(ctx, conn, socksAssociate, "0.0.0.0", 0)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	var udp net.Conn
	if err == nil {
		if peer, perr := netip.ParseAddrPort(conn.RemoteAddr().String()); perr == nil && (!at.Addr().IsValid() || at.Addr().IsUnspecified()) {
			at = netip.AddrPortFrom(peer.Addr().Unmap(), at.Port()) // the address of the proxy itself
		}
		udp, err = p.cfg.dial(ctx, "udp", at)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	growBuffer(udp)
	head := append([]byte{0, 0, 0}, socksAddr(host, to.Port())...)
	return &proxiedDatagrams{Conn: udp, control: conn, head: head}, nil
}

// proxiedDatagrams carries the datagrams of one pair of ports (RFC 1928, 7). They end with
// the connection on which the proxy was asked.
type proxiedDatagrams struct {
	net.Conn
	control net.Conn
	head    []byte
}

// Write sends a datagram.
func (d *proxiedDatagrams) Write(b []byte) (int, error) {
	_, err := d.Conn.Write(append(d.head[:len(d.head):len(d.head)], b...))
	return len(b), err
}

// Read receives a datagram. It skips fragments and malformed ones.
func (d *proxiedDatagrams) Read(b []byte) (int, error) {
	for {
		n, err := d.Conn.Read(b)
		if err != nil {
			return 0, err
		}
		head := 0
		if n > 4 && b[2] == 0 {
			switch b[3] {
			case socksIPv4:
				head = 10
			case socksIPv6:
				head = 22
			case socksName:
				head = 7 + int(b[4])
			}
		}
		if head > 0 && n >= head {
			return copy(b, b[head:n]), nil
		}
	}
}

// Close ends both connections.
func (d *proxiedDatagrams) Close() error {
	return errors.Join(d.Conn.Close(), d.control.Close())
}
