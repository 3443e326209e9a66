// SPDX-License-Identifier: Apache-2.0

//go:build !device

package explain

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/diag/packets"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/capture"
	"github.com/lklrun/lklrun/pkg/config"
)

const (
	// datagramsMost is the number of datagrams after which the capture ends, so that it costs
	// nothing during a transfer over UDP.
	datagramsMost = 2000
	// datagramKept has room for the headers and for the longest name in a DNS message.
	datagramKept = 512
	// capturesMost is the largest number of interfaces to listen on.
	capturesMost = 16
)

// listener captures the datagrams of a stack and lists its UDP sockets.
type listener struct {
	conn   *stackconn.Conn
	inside bool
	cancel context.CancelFunc
	ends   sync.WaitGroup
	known  map[uint64][]sockdiag.Process // of the sockets, by cookie

	mu    sync.Mutex
	heard []Datagram // since the last reading
	total int
}

// listen begins to capture. The caller must call close.
func listen(ctx context.Context, conn *stackconn.Conn, engine string) (*listener, error) {
	l := &listener{conn: conn, inside: engine == config.EnginePreload, known: map[uint64][]sockdiag.Process{}}
	ctx, l.cancel = context.WithCancel(ctx)
	stack := packets.New(conn)
	all, err := stack.Interfaces(ctx)
	if err != nil {
		l.close()
		return nil, err
	}
	for i := range all[:min(len(all), capturesMost)] {
		on := all[i]
		on.Filter, on.Snaplen = "udp or icmp or icmp6", datagramKept
		source, err := stack.Open(ctx, capture.Options{Interface: on})
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			l.close()
			return nil, err
		}
		l.ends.Go(func() { l.read(ctx, source, &on) })
	}
	return l, nil
}

func (l *listener) close() {
	l.cancel()
	l.ends.Wait()
}

// read adds the datagrams of an interface until the capture ends. Without more of them, fewer
// causes can be recognized.
func (l *listener) read(ctx context.Context, source capture.Source, on *capture.Interface) {
	defer source.Close()
	for {
		packets, err := source.Read(ctx)
		if err != nil {
			return
		}
		l.mu.Lock()
		for i := range packets {
			if l.total < datagramsMost {
				some := datagrams(&packets[i], on)
				l.heard, l.total = append(l.heard, some...), l.total+len(some)
			}
		}
		full := l.total >= datagramsMost
		l.mu.Unlock()
		if full {
			return
		}
	}
}

// add completes a reading.
func (l *listener) add(ctx context.Context, r *Reading) error {
	sockets, err := sockdiag.List(ctx, l.conn, sockdiag.UDP)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(sockets, func(s sockdiag.Socket) bool { _, known := l.known[s.Cookie]; return !known }) {
		if err := owners.Attribute(ctx, l.conn, sockets); err != nil {
			return err
		}
		clear(l.known)
		for i := range sockets {
			l.known[sockets[i].Cookie] = sockets[i].Processes
		}
	}
	r.UDP = make([]UDPSocket, len(sockets))
	for i, s := range sockets {
		s.Processes = l.known[s.Cookie]
		r.UDP[i] = UDPSocket{s, l.await(&s)}
	}
	l.mu.Lock()
	r.Datagrams, l.heard = l.heard, nil
	l.mu.Unlock()
	slices.SortStableFunc(r.Datagrams, func(a, b Datagram) int { return a.At.Compare(b.At) })
	return nil
}

// routes adds the program's name servers, if the stack has a route to none of them and has missed a
// route. A query without a route is no packet, so that nothing else shows it.
func (l *listener) routes(ctx context.Context, info *instance.Info, r *Reading) error {
	resolv, err := os.ReadFile(filepath.Join(info.Files(), instance.ResolvFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the program has a file of its own
	}
	if err != nil {
		return err
	}
	n, err := stacknet.Open(ctx, l.conn)
	if err != nil {
		return err
	}
	defer n.Close()
	var servers []netip.Addr
	for line := range strings.Lines(string(resolv)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(f[1])
		if err != nil {
			continue
		}
		if ok, err := n.Reaches(a, netip.Addr{}, 0); ok || err != nil {
			return err
		}
		servers = append(servers, a)
	}
	r.NoRoute = servers
	for _, ip := range []struct {
		has     func(netip.Addr) bool
		read    func(context.Context, *stackconn.Conn) (counters.Set, error)
		counter string
	}{{netip.Addr.Is4, counters.Protocols, "IpOutNoRoutes"}, {netip.Addr.Is6, counters.Protocols6, "Ip6OutNoRoutes"}} {
		if !slices.ContainsFunc(servers, ip.has) {
			continue
		}
		set, err := ip.read(ctx, l.conn)
		if err != nil {
			return err
		}
		v, _ := set.Get(ip.counter)
		r.RouteErrors += uint64(v.Int())
	}
	return nil
}

// await finds out whether a program waits for a socket.
func (l *listener) await(s *sockdiag.Socket) (most Await) {
	if l.inside || l.conn.Hello().HostPID == 0 {
		return Unknown
	}
	for _, p := range s.Processes {
		if len(p.FDs) == 0 {
			return Unknown
		}
		most = max(most, awaits(p.PID, p.FDs))
	}
	return most
}

// icmpErrors are the names of ICMP errors, by version, type and code (RFC 792, RFC 1122, RFC 1812,
// RFC 4443).
var icmpErrors = map[[3]byte]string{
	{4, 3, 0}: "network unreachable", {4, 3, 1}: "host unreachable", {4, 3, 3}: portUnreachable,
	{4, 3, 9}: "network prohibited", {4, 3, 10}: "host prohibited", {4, 3, 13}: "administratively prohibited", {4, 11, 0}: "time exceeded",
	{6, 1, 0}: "no route", {6, 1, 1}: "administratively prohibited", {6, 1, 3}: "address unreachable", {6, 1, 4}: portUnreachable,
	{6, 1, 5}: "source address failed policy", {6, 1, 6}: "reject route", {6, 3, 0}: "time exceeded",
}

const portUnreachable = "port unreachable"

// datagrams decodes a packet. A packet over lo is one of the socket that sends it, and one of the
// socket that receives it.
func datagrams(p *capture.Packet, on *capture.Interface) []Datagram {
	b := p.Data
	if on.LinkType == capture.LinkTypeEthernet {
		const header = 14
		if len(b) < header || b[0]&1 != 0 { // for a group
			return nil
		}
		b = b[header:]
	}
	from, to, protocol, b := network(b)
	if !from.IsValid() {
		return nil
	}
	d := Datagram{At: p.Time, Iface: on.Name, Out: p.Dir == capture.Out}
	switch {
	case protocol == unix.IPPROTO_UDP && len(b) >= 8:
		source, destination := netip.AddrPortFrom(from, binary.BigEndian.Uint16(b)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:]))
		if source.Port() == dns || destination.Port() == dns {
			d.query(b[8:])
		}
		d.Local, d.Remote = destination, source
		if d.Out || on.Loopback {
			sent := d
			sent.Out, sent.Local, sent.Remote = true, source, destination
			if d.Out {
				return []Datagram{sent}
			}
			return []Datagram{sent, d}
		}
		return []Datagram{d}
	case (protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6) && len(b) >= 8 && !d.Out:
		version := byte(4)
		if protocol == unix.IPPROTO_ICMPV6 {
			version = 6
		}
		d.Error, d.From = icmpErrors[[3]byte{version, b[0], b[1]}], from
		source, destination, protocol, inner := network(b[8:])
		if d.Error == "" || protocol != unix.IPPROTO_UDP || len(inner) < 4 {
			return nil
		}
		d.Local, d.Remote = netip.AddrPortFrom(source, binary.BigEndian.Uint16(inner)), netip.AddrPortFrom(destination, binary.BigEndian.Uint16(inner[2:]))
		return []Datagram{d}
	}
	return nil
}

// network returns the addresses, the protocol and the payload of an IP packet. It skips neither
// extension headers of IPv6 nor decodes later fragments.
func network(b []byte) (from, to netip.Addr, protocol byte, payload []byte) {
	if len(b) < 20 {
		return from, to, 0, nil
	}
	switch head := int(b[0]&15) * 4; {
	case b[0]>>4 == 4 && head >= 20 && len(b) >= head && binary.BigEndian.Uint16(b[6:])&0x1fff == 0:
		return netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9], b[head:]
	case b[0]>>4 == 6 && len(b) >= 40:
		return netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6], b[40:]
	}
	return from, to, 0, nil
}

// query sets what a DNS message asks or answers.
func (d *Datagram) query(b []byte) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return
	}
	if h.Response {
		switch h.RCode {
		case dnsmessage.RCodeServerFailure:
			d.Failure = "SERVFAIL"
		case dnsmessage.RCodeRefused:
			d.Failure = "REFUSED"
		}
		return
	}
	if q, err := p.Question(); err == nil {
		d.Name = fmt.Sprint(q.Name)
		if n := len(d.Name); n > 1 {
			d.Name = d.Name[:n-1] // without the final dot
		}
	}
}
