// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// rule recognizes a cause that the shares of the time do not show. A connection has the first
// cause that applies as its only limit.
type rule struct {
	code     Code
	applies  func(*view) bool
	sentence func(*view) string
	evidence func(*view) []string
	remedy   func(*view) []string
}

// rules are in the order in which they are tried: the more evidence a rule requires, the
// earlier it comes.
var rules = []rule{
	{
		code:    Stopped,
		applies: (*view).stopped,
		sentence: func(v *view) string {
			return fmt.Sprintf("The program of %s is stopped, by Ctrl-Z or another signal, and neither reads nor sends.", v.subject())
		},
		evidence: func(v *view) []string {
			return []string{fmt.Sprintf("%s(%d) has the state T", v.t.conn.Process, v.t.conn.PID)}
		},
		remedy: func(v *view) []string {
			return []string{fmt.Sprintf("kill -CONT %d continues it, as fg does in its shell", v.t.conn.PID)}
		},
	},
	{
		code: OwnDrop,
		applies: func(v *view) bool {
			return (v.connecting() || v.accepting() || v.unanswered()) && v.ownDrops().count > 0
		},
		sentence: func(v *view) string {
			if l := v.ownDrops(); l.reason != "NEIGH_FAILED" {
				return fmt.Sprintf("The stack itself drops packets of %s, with the reason %s: %s.", v.subject(), l.reason, l.meaning)
			}
			return fmt.Sprintf("The next hop of %s does not answer ARP or neighbour discovery: its host is down, or the address is wrong.", v.subject())
		},
		evidence: func(v *view) []string {
			l := v.ownDrops()
			return []string{fmt.Sprintf("it has dropped %s of this connection, the last one %v ago", text.Plural(l.count, "packet"), ago(uint64(max(0, v.last.At.Sub(l.last).Milliseconds()))))}
		},
		remedy: func(v *view) []string { return []string{v.undrop(v.ownDrops().reason)} },
	},
	{
		code:    Unanswered,
		applies: (*view).accepting,
		sentence: func(v *view) string {
			return fmt.Sprintf("%s does not acknowledge the SYN-ACK: a firewall drops it, it finds no way back, or the sender of the SYN is forged.", v.t.conn.Remote)
		},
		evidence: func(v *view) []string {
			return []string{fmt.Sprintf("the connection has been half open for at least %v", ago(uint64(v.t.observed.Milliseconds())))}
		},
		remedy: func(v *view) []string {
			return []string{fmt.Sprintf("to tell which, try lklctl exec -- ping %v; on the peer, tcpdump shows whether the SYN-ACK arrives", v.peer().Addr())}
		},
	},
	{
		code:    Unanswered,
		applies: func(v *view) bool { return v.connecting() && v.accepted() > 0 },
		sentence: func(v *view) string {
			return fmt.Sprintf("The peer does not answer the SYN of %s, although it has accepted %s to that port: the queue of its listener is full, or a firewall limits the connections.",
				v.subject(), text.Plural(v.accepted(), "other connection"))
		},
		evidence: (*view).syns,
		remedy: func(v *view) []string {
			return []string{fmt.Sprintf("to tell which, run ss -ltn 'sport = :%d' or lklctl netstat -l on the peer: the queue is full if Recv-Q is above Send-Q", v.peer().Port())}
		},
	},
	{
		code:    Unanswered,
		applies: (*view).connecting,
		sentence: func(v *view) string {
			return fmt.Sprintf("The peer does not answer the SYN of %s: a firewall drops it, the host is down, or no answer finds the way back.", v.subject())
		},
		evidence: (*view).syns,
		remedy: func(v *view) []string {
			return []string{fmt.Sprintf("to tell which, try lklctl exec -- ping %v: it succeeds if only the port is filtered; on the peer, tcpdump shows whether the SYN arrives", v.peer().Addr())}
		},
	},
	{
		code: PathMTU,
		applies: func(v *view) bool {
			return v.unanswered() && v.full() && v.ackedSmall()
		},
		sentence: func(v *view) string {
			if v.acked() >= v.main().mss {
				return fmt.Sprintf("The path drops large packets and reports none of them (PMTUD black hole), or it is down: the full-size segments of %s get no acknowledgement, although small ones did.", v.subject())
			}
			return fmt.Sprintf("The path probably drops large packets, and reports none of them (PMTUD black hole): the full-size segments of %s get no acknowledgement, although the small ones of the handshake did.", v.subject())
		},
		evidence: func(v *view) []string {
			if v.acked() < v.main().mss {
				return append(v.timeouts(), fmt.Sprintf("the segments have up to %s, and not one was acknowledged", text.Scaled(float64(v.main().mss), "B")))
			}
			return append(v.timeouts(), fmt.Sprintf("the acknowledged segments have %d bytes on average, the others up to %s", v.acked()/v.tcp().Delivered.N, text.Scaled(float64(v.main().mss), "B")))
		},
		remedy: func(v *view) []string {
			return []string{
				fmt.Sprintf("if lklctl exec -- ping -M do -s %d %v fails and ping %[2]v succeeds, the MTU is the cause; if both fail, the path is down", v.largestPing(), v.peer().Addr()),
				"lklctl sysctl -w net.ipv4.tcp_mtu_probing=1 lets TCP find the MTU; --if ...,mtu=1400 sets a smaller one",
			}
		},
	},
	{
		code:    Silent,
		applies: (*view).unanswered,
		sentence: func(v *view) string {
			return fmt.Sprintf("The peer has stopped answering %s: the path is down, or the host of the peer is.", v.subject())
		},
		evidence: (*view).timeouts,
		remedy: func(v *view) []string {
			return []string{fmt.Sprintf("to tell which, try lklctl exec -- ping with the next hop, and with %v", v.peer().Addr())}
		},
	},
	{
		code: Nagle,
		applies: func(v *view) bool {
			f := v.main()
			return v.direction == Sends && f.held >= f.rounds/4 && f.segments > 0 && f.sent/f.segments < f.mss/2 && f.mean(f.rtt) >= float64(delayedACK.Microseconds())/4
		},
		sentence: func(v *view) string {
			if f := v.main(); f.mean(f.rtt) < float64(f.minRTT)+float64(delayedACK.Microseconds())/4 {
				return fmt.Sprintf("Nagle's algorithm limits %s: the program sends a request in several small writes, and all but the first wait for an acknowledgement, a round trip long.", v.subject())
			}
			return fmt.Sprintf("Nagle's algorithm and the peer's delayed acknowledgements limit %s: the program sends a request in several small writes, and all but the first wait for an acknowledgement, up to %v.", v.subject(), delayedACK)
		},
		evidence: func(v *view) []string {
			f := v.main()
			return []string{
				fmt.Sprintf("in %s of the readings, less than a full segment waited for the acknowledgement of the one before", percent(f.held/f.rounds)),
				fmt.Sprintf("a segment has %d bytes on average", f.sent/f.segments), "a round trip takes " + text.Millis(uint64(f.mean(f.rtt))),
			}
		},
		remedy: func(*view) []string { return []string{"send each request with one write (writev), or set TCP_NODELAY"} },
	},
	{
		code: Answer,
		applies: func(v *view) bool {
			i := v.tcp()
			return v.idle() && !v.passive() && i.BytesSent.N > 0 && i.Unacked.N == 0 && i.NotSent.N == 0 && i.LastSent.Known && (i.LastSent.N < i.LastRecv.N || i.BytesRecv.N == 0)
		},
		sentence: func(v *view) string {
			return fmt.Sprintf("Nothing in the stack limits %s: it waits for an answer of the peer, or has no more to send.", v.subject())
		},
		evidence: func(v *view) []string {
			return []string{fmt.Sprintf("the last data was sent %v ago, and the peer has acknowledged it without an answer", ago(v.tcp().LastSent.N))}
		},
		remedy: func(v *view) []string {
			return []string{"if an answer is due, look at the program on " + v.t.conn.Remote + ", for example with lklctl explain or strace there"}
		},
	},
}

// delayedACK is the least time for which Linux delays an acknowledgement (TCP_DELACK_MIN).
const delayedACK = 40 * time.Millisecond

func ago(ms uint64) time.Duration {
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond)
}

// tcp returns the state of the subflow with the most data.
func (v *view) tcp() *sockdiag.TCPInfo {
	if i := v.main().info; i != nil {
		return i
	}
	return &sockdiag.TCPInfo{}
}

func (v *view) peer() netip.AddrPort {
	a, _ := netip.ParseAddrPort(v.t.conn.Remote) // invalid: shown as such
	return a
}

// connecting reports whether a SYN was sent again, also of an attempt that has ended since.
func (v *view) connecting() bool {
	return v.main().state == sockdiag.SynSent && v.tcp().Retransmits.N > 0
}

// accepting reports whether a SYN-ACK has waited for its acknowledgement until it was sent again.
// Linux counts only those that have left the stack.
func (v *view) accepting() bool {
	return v.t.alive && v.main().state == sockdiag.SynRecv && v.t.observed >= time.Second
}

// losses are the packets of a connection that the stack has dropped for one reason.
type losses struct {
	reason, meaning, protocol string
	count                     int
	last                      time.Time
}

// ownDrops returns the most frequent drops of an unanswered connection: all that the stack still
// knows, or those since the last acknowledgement.
func (v *view) ownDrops() (most losses) {
	f, since := v.main(), time.Time{}
	if v.unanswered() {
		since = v.last.At.Add(-time.Duration(v.tcp().LastAck.N) * time.Millisecond)
	}
	for d, l := range v.known {
		ours := d.local == f.local && d.remote == f.remote || d.local == f.remote && d.remote == f.local
		if ours && !usual(d.reason) && l.last.After(since) && (l.count > most.count || l.count == most.count && l.reason < most.reason) {
			most = l
		}
	}
	return most
}

// usual reports whether TCP also drops segments of a connection without a fault for a reason, such
// as repeated ones.
func usual(reason string) bool {
	return reason == "NOT_SPECIFIED" || strings.HasPrefix(reason, "TCP_") && reason != "TCP_CSUM" && !strings.HasPrefix(reason, "TCP_MD5")
}

// undrop suggests what to change if the stack drops packets for a reason.
func (v *view) undrop(reason string) string {
	f := v.main()
	switch ways := v.last.Ifaces[f.iface].Ways; {
	case reason == "NETFILTER_DROP" && v.ownDrops().meaning == drops.Meaning(reason):
		return "lklctl exec -- nft list ruleset shows the rule, and iptables-save those of iptables"
	case reason == "NEIGH_FAILED":
		return fmt.Sprintf("lklctl exec -- ip neigh shows the next hop; lklctl exec -- ip route get %v tells which one it is", v.peer().Addr())
	case reason == "QDISC_DROP" && slices.ContainsFunc(ways[:], func(i stacknet.Impairment) bool { return i.Drop || i.Netem.Loss > 0 }):
		return "lklctl path " + f.iface + " clear"
	}
	return fmt.Sprintf("lklctl drops dst %v or src %[1]v lists these packets", v.peer().Addr())
}

func (v *view) syns() []string {
	return []string{fmt.Sprintf("the SYN was sent %d times", v.tcp().Retransmits.N+1)}
}

// accepted returns the number of other connections that the peer's port has accepted.
func (v *view) accepted() (n int) {
	for i := range v.last.Conns {
		if c := &v.last.Conns[i]; c.Remote == v.t.conn.Remote && c.Sockets.State == sockdiag.Established {
			n++
		}
	}
	return n
}

// stopped reports whether all processes with the connection were stopped all the time.
func (v *view) stopped() bool {
	all := v.t.conn.Sockets.Processes
	return len(all) > 0 && !slices.ContainsFunc(all, func(p sockdiag.Process) bool {
		return !v.first.CPU.Stopped[p.PID] || !v.last.CPU.Stopped[p.PID]
	})
}

// unanswered reports whether data was sent several times without an acknowledgement.
func (v *view) unanswered() bool {
	return v.t.alive && v.main().state == sockdiag.Established && v.tcp().Retransmits.N >= 2 && v.tcp().Unacked.N > 0
}

// acked returns the number of acknowledged bytes of the subflow with the most data.
func (v *view) acked() uint64 { return v.tcp().BytesAcked.N }

// full reports whether full-size segments wait for an acknowledgement.
func (v *view) full() bool {
	i := v.tcp()
	return v.main().mss > 0 && i.BytesSent.N-i.BytesRetrans.N >= i.BytesAcked.N+i.Unacked.N*v.main().mss/2
}

// ackedSmall reports whether the acknowledged segments were much smaller than full-size ones.
func (v *view) ackedSmall() bool {
	return v.acked() < v.main().mss || 2*v.acked() < v.tcp().Delivered.N*v.main().mss
}

// largestPing returns the size of a ping whose packet is as large as the path's MTU.
func (v *view) largestPing() uint64 {
	headers := uint64(28)
	if v.peer().Addr().Is6() {
		headers = 48
	}
	return v.tcp().PMTU.N - min(headers, v.tcp().PMTU.N)
}

func (v *view) timeouts() []string {
	i := v.tcp()
	return []string{fmt.Sprintf("%d consecutive retransmissions got no acknowledgement; the last acknowledgement arrived %v ago", i.Retransmits.N, ago(i.LastAck.N))}
}

// idle reports whether no data moved and none waits.
func (v *view) idle() bool {
	return v.t.alive && v.main().state == sockdiag.Established && v.t.sent+v.t.received == 0 && v.t.recvQ == 0 && outstanding(&v.t.conn) == 0
}

// passive reports whether the peer has opened the connection.
func (v *view) passive() bool {
	return slices.ContainsFunc(v.last.Others, func(s sockdiag.Socket) bool {
		return s.State == sockdiag.Listen && s.Local.Port() == v.t.conn.Sockets.Local.Port()
	})
}

// diagnose returns the first rule that applies to a connection.
func (v *view) diagnose() *rule {
	for i := range rules {
		if rules[i].applies(v) {
			return &rules[i]
		}
	}
	return nil
}

// Finding is a cause that affects the stack, or a program that waits for an answer over UDP.
type Finding struct {
	Code Code   `json:"code"` // stable identifier of the cause
	Text string `json:"text"` // the cause, the evidence and what to change, in sentences
}

// findings lists the causes in the stack.
func (j *Judge) findings() []Finding {
	all := slices.Concat(j.fullListeners(), j.fullTable(), j.fullPorts(), j.unanswered())
	return append([]Finding{}, all...)
}

// fullListeners finds the listeners whose queues are full.
func (j *Judge) fullListeners() (all []Finding) {
	for _, s := range j.last.Others {
		if s.State != sockdiag.Listen || s.RecvQ.N <= s.SendQ.N {
			continue
		}
		who := "The listener"
		if len(s.Processes) > 0 {
			who = fmt.Sprintf("The listener of %s(%d)", s.Processes[0].Comm, s.Processes[0].PID)
		}
		all = append(all, Finding{ListenerFull, fmt.Sprintf("%s on port %d has a full queue: %s for accept(), and the backlog is %d. "+
			"Clients that connect now wait. To change that: make the program accept faster, if it is not stuck; or raise the backlog of listen(), and net.core.somaxconn if it is smaller.",
			who, s.Local.Port(), text.Plural(int(s.RecvQ.N), "connection")+wait(s.RecvQ.N), s.SendQ.N)})
	}
	return all
}

func wait(n uint64) string {
	if n == 1 {
		return " waits"
	}
	return " wait"
}

// fullTable finds out whether connection tracking drops packets because its table is full.
func (j *Judge) fullTable() []Finding {
	t, most := j.last.Tracking, j.last.TrackingMost
	if most == 0 || t.Entries < most || t.Dropped == 0 {
		return nil
	}
	return []Finding{{ConntrackFull, fmt.Sprintf("The table of connection tracking (conntrack) in this stack is full, and has dropped %s of new connections so far. It has %d entries, and net.netfilter.nf_conntrack_max is %d. "+
		"To change that: lklctl sysctl -w net.netfilter.nf_conntrack_max=65536, or exempt traffic with a notrack rule.", text.Plural(int(t.Dropped), "packet"), t.Entries, most)}}
}

// fullPorts finds destinations to which no ephemeral port is left.
func (j *Judge) fullPorts() (all []Finding) {
	low, high := j.last.Ports[0], j.last.Ports[1]
	if high == 0 {
		return nil
	}
	type use struct{ all, waits int }
	used := map[netip.AddrPort]use{}
	count := func(s *sockdiag.Socket) {
		if p := s.Local.Port(); p >= low && p <= high && s.State != sockdiag.Listen {
			u := used[s.Remote]
			u.all++
			if s.State == sockdiag.TimeWait {
				u.waits++
			}
			used[s.Remote] = u
		}
	}
	for i := range j.last.Others {
		count(&j.last.Others[i])
	}
	for i := range j.last.Conns {
		count(&j.last.Conns[i].Sockets.Socket)
	}
	size := int(high) - int(low) + 1
	for _, to := range slices.SortedFunc(maps.Keys(used), netip.AddrPort.Compare) {
		if u := used[to]; u.all >= size {
			all = append(all, Finding{Ports, fmt.Sprintf("All %d ephemeral ports for connections to %v are in use, %d of them in TIME-WAIT: a further connect() fails with EADDRNOTAVAIL. "+
				"To change that: keep connections open, widen the range with lklctl sysctl -w net.ipv4.ip_local_port_range='1024 65535', or permit reuse with net.ipv4.tcp_tw_reuse=1.", size, to, u.waits)})
		}
	}
	return all
}

// rank orders connections: those with data first, then those that a rule explains, then idle
// ones, such as a control connection.
func (c *Connection) rank() int {
	switch {
	case len(c.Limits) > 0 && c.Limits[0].Code == Idle:
		return 2
	case c.BytesSent+c.BytesReceived == 0:
		return 1
	}
	return 0
}

// order compares two connections for the report. Of the two ends of a connection in this
// stack, the sender comes first: their data differ only by what is under way.
func order(a, b *Connection) int {
	if a.Local == b.Remote && a.Remote == b.Local && a.rank() == b.rank() && a.Direction != b.Direction {
		return cmp.Compare(b.Direction, a.Direction)
	}
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.BytesSent+b.BytesReceived, a.BytesSent+a.BytesReceived))
}

// local reports whether both ends of a connection are in this stack, and returns the other
// end if it is known.
func (v *view) local() (other *live.Connection, ok bool) {
	for i := range v.last.Conns {
		if c := &v.last.Conns[i]; c.Local == v.t.conn.Remote && c.Remote == v.t.conn.Local {
			return c, true
		}
	}
	return nil, v.peer().Addr().Unmap().IsLoopback()
}

// note counts the dropped packets of a reading.
func (j *Judge) note(r *Reading) {
	for i := range r.Drops {
		d := &r.Drops[i]
		if d.Kind != drops.Drop {
			continue
		}
		key := drop{d.Source.String(), d.Destination.String(), d.Reason}
		if d.Time.After(j.first.At) {
			j.dropped[key]++
		}
		j.known[key] = losses{d.Reason, d.Meaning, d.Protocol, j.known[key].count + 1, d.Time}
	}
}
