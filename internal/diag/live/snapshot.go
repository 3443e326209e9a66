// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// newSnapshot makes a snapshot from the sample now and the previous sample was, which is
// nil the first time.
func newSnapshot(info *instance.Info, now, was *sample) *Snapshot {
	s := &Snapshot{
		Time: now.at,
		Instance: Instance{
			Name: info.Name, Stack: info.Stack, Release: now.release, Engine: info.Engine,
			Command: text.Quote(info.Command), Started: info.Started, PID: info.PID, TargetPID: info.TargetPID,
		},
		Links: []Link{}, Connections: []Connection{}, Others: now.others,
	}
	if info.Pod != nil {
		s.Instance.Pod = info.Pod.String()
	}
	var took time.Duration
	if was != nil {
		took = now.at.Sub(was.at)
		s.Interval = took.Seconds()
		s.CPU = now.cpu.since(was.cpu, took)
		s.Totals.RetransRate = perSecond(now.retrans, was.retrans, took)
		s.Totals.OpenedRate = perSecond(now.opened, was.opened, took)
	} else {
		was = &sample{}
	}
	s.Totals.Retrans, s.Totals.Drops, s.Totals.Resets = now.retrans, now.drops, now.resets
	s.addLinks(now, was, took)
	s.addConnections(now, was, took)
	return s
}

func (s *Snapshot) addLinks(now, was *sample, took time.Duration) {
	before := map[int]amount{}
	for _, l := range was.links {
		before[l.Index] = bytesOfLink(l)
	}
	s.Links = newLinks(now.links, now.addrs, before, took)
	for _, l := range s.Links {
		if l.own {
			s.Totals.TxRate = plus(s.Totals.TxRate, l.TxRate)
			s.Totals.RxRate = plus(s.Totals.RxRate, l.RxRate)
		}
	}
}

// newLinks describes links, ordered by index, without the helper devices of lklctl path.
// before has their byte counts of the time took ago.
func newLinks(links []stacknet.LinkState, addrs []stacknet.Address, before map[int]amount, took time.Duration) []Link {
	all := []Link{}
	for _, l := range stacknet.Sorted(links) {
		if l.Kind == "ifb" {
			continue
		}
		link := Link{Name: l.Name, Index: l.Index, State: linkState(l), Addrs: []string{}}
		link.own = !l.Loopback() && l.Kind != "vlan"
		for _, a := range addrs {
			if a.IfIndex == l.Index {
				link.Addrs = append(link.Addrs, a.Prefix.String())
			}
		}
		link.RxBytes, link.TxBytes = countOf(l, "rx_bytes"), countOf(l, "tx_bytes")
		link.RxPackets, link.TxPackets = countOf(l, "rx_packets"), countOf(l, "tx_packets")
		link.RxDropped, link.TxDropped = countOf(l, "rx_dropped"), countOf(l, "tx_dropped")
		last, found := before[l.Index]
		link.TxRate, link.RxRate = bytesOfLink(l).rates(last, found, took)
		all = append(all, link)
	}
	return all
}

func linkState(l stacknet.LinkState) string {
	switch {
	case l.Carries():
		return "up"
	case l.Up():
		return "no carrier"
	}
	return "down"
}

func bytesOfLink(l stacknet.LinkState) amount {
	return amount{tx: countOf(l, "tx_bytes"), rx: countOf(l, "rx_bytes")}
}

func countOf(l stacknet.LinkState, name string) sockdiag.Value {
	n, ok := l.Counter(name)
	return sockdiag.Value{N: n, Known: ok}
}

// ranked is the index of a connection in a sample, with the values that decide whether
// the snapshot lists it.
type ranked struct {
	at     int
	cookie uint64
	tx, rx Value  // rates
	bytes  uint64 // bytes in both directions
}

// busier orders connections by rate, then by bytes carried, both descending.
func busier(a, b ranked) int {
	return cmp.Or(
		cmp.Compare(b.tx.N+b.rx.N, a.tx.N+a.rx.N),
		cmp.Compare(b.bytes, a.bytes),
		cmp.Compare(a.cookie, b.cookie),
	)
}

func (s *Snapshot) addConnections(now, was *sample, took time.Duration) {
	all := make([]ranked, len(now.conns))
	for i := range now.conns {
		c := &now.conns[i]
		s.Totals.Connections++
		s.Totals.Subflows += len(c.Subflows)
		bytes := now.amounts[c.Cookie]
		last, found := was.amounts[c.Cookie]
		r := ranked{at: i, cookie: c.Cookie, bytes: bytes.tx.N + bytes.rx.N}
		r.tx, r.rx = bytes.rates(last, found, took)
		all[i] = r
	}
	sort.Slice(all, func(i, k int) bool { return busier(all[i], all[k]) < 0 })
	if n := len(all); n > MaxConnections {
		s.Totals.Omitted = n - MaxConnections
		all = all[:MaxConnections]
	}
	names := stacknet.NewNames(now.links, now.addrs)
	for _, r := range all {
		c := newConnection(now.conns[r.at])
		c.TxRate, c.RxRate = r.tx, r.rx
		for _, sock := range c.Carriers() {
			f := newSubflow(sock, names)
			last, found := was.amounts[sock.Cookie]
			f.TxRate, f.RxRate = bytesOfSubflow(sock).rates(last, found, took)
			c.Subflows = append(c.Subflows, f)
			c.Retrans = plus(c.Retrans, f.Retrans)
		}
		s.Connections = append(s.Connections, c)
	}
}

// Carriers returns the TCP sockets of a connection, in the order of its Subflows. The
// socket that opened the connection is the first.
func (c *Connection) Carriers() []sockdiag.Socket {
	if c.Sockets.Proto == sockdiag.TCP {
		return []sockdiag.Socket{c.Sockets.Socket}
	}
	all := slices.Clone(c.Sockets.Subflows)
	slices.SortStableFunc(all, sockdiag.BySubflow)
	return all
}

func id(s sockdiag.Socket) string { return strconv.FormatUint(s.Cookie, 16) }

func newConnection(c sockdiag.Connection) Connection {
	bytes := bytesOf(c)
	conn := Connection{
		ID: id(c.Socket), Proto: string(c.Proto), State: c.State.String(),
		Local: c.Local.String(), Remote: c.Remote.String(),
		BytesSent: bytes.tx, BytesReceived: bytes.rx,
		Subflows: []Subflow{}, Sockets: c,
	}
	if i := c.MPTCP; i != nil {
		conn.Fallback = i.Fallback
		if i.Token.Known && !i.Fallback {
			conn.Token = fmt.Sprintf("%08x", i.Token.N)
		}
	}
	return conn
}

func newSubflow(s sockdiag.Socket, names *stacknet.Names) Subflow {
	bytes := bytesOfSubflow(s)
	f := Subflow{
		ID: id(s), Iface: names.Of(s.IfIndex, s.Local.Addr()), State: s.State.String(),
		Local: s.Local.String(), Remote: s.Remote.String(),
		Backup:    s.Subflow != nil && s.Subflow.Flags.Backup(),
		BytesSent: bytes.tx, BytesReceived: bytes.rx,
	}
	if i := s.TCP; i != nil {
		f.RTT, f.Cwnd, f.Ssthresh, f.Retrans = i.RTT, i.Cwnd, i.Ssthresh, i.TotalRetrans
		f.PacingRate = Value{N: 8 * i.PacingRate.N, Known: i.PacingRate.Known}
	}
	return f
}

// bytesOf returns the byte counts of a connection. Kernels before Linux 6.5 count only
// the bytes of subflows, not those of the connection.
func bytesOf(c sockdiag.Connection) amount {
	if c.Proto == sockdiag.TCP {
		return bytesOfSubflow(c.Socket)
	}
	if i := c.MPTCP; i != nil && i.BytesSent.Known {
		return amount{tx: i.BytesSent, rx: i.BytesRecv}
	}
	var sum amount
	for _, f := range c.Subflows {
		b := bytesOfSubflow(f)
		sum.tx, sum.rx = plus(sum.tx, b.tx), plus(sum.rx, b.rx)
	}
	return sum
}

func bytesOfSubflow(s sockdiag.Socket) amount {
	if s.TCP == nil {
		return amount{}
	}
	return amount{tx: s.TCP.BytesSent, rx: s.TCP.BytesRecv}
}

// amount is the number of bytes sent and received since the object was created.
type amount struct{ tx, rx Value }

// bitRate returns the rate in bits per second between two byte counts. The rate is absent
// if a count is absent or has decreased. A count decreases when the socket is reused for
// another connection.
func bitRate(now, was Value, took time.Duration) Value {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return Value{}
	}
	return Value{N: uint64(math.Round(8 * float64(now.N-was.N) / took.Seconds())), Known: true}
}

// rates returns the rates between the counts was and a. If found is false, the object is
// new and started at zero.
func (a amount) rates(was amount, found bool, took time.Duration) (tx, rx Value) {
	if !found {
		was = amount{Value{Known: true}, Value{Known: true}}
	}
	return bitRate(a.tx, was.tx, took), bitRate(a.rx, was.rx, took)
}

// perSecond returns the rate of a counter that does not count bytes.
func perSecond(now, was Value, took time.Duration) *float64 {
	if !now.Known || !was.Known || now.N < was.N || took <= 0 {
		return nil
	}
	f := float64(now.N-was.N) / took.Seconds()
	return &f
}

// plus adds the values that are present.
func plus(a, b Value) Value {
	return Value{N: a.N + b.N, Known: a.Known || b.Known}
}
