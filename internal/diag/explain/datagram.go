// SPDX-License-Identifier: Apache-2.0

//go:build !device

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// dns is the port of name servers.
const dns = 53

// Thresholds of the judgement of UDP.
const (
	answerLate  = time.Second     // time without an answer that is worth a word
	answerStops = 3 * time.Second // the same if the peer has answered before
	streamLeast = 20              // datagrams without an answer that expect none
	dropsRecent = 10 * time.Second
)

// exchange is what a process and a peer have sent each other.
type exchange struct {
	pid           int
	process       string
	remote        netip.AddrPort
	sent          int
	answered      int
	waits         int       // datagrams since the last answer
	since         time.Time // the first of these
	failed        int       // DNS answers that report a failure
	name, failure string
	rejection     Datagram // the last ICMP error
	dropped       losses   // by the stack
	await         Await
	gateway       bool
}

// heard adds the datagrams and the UDP sockets of a reading.
func (j *Judge) heard(r *Reading) {
	j.datagrams = append(j.datagrams, r.Datagrams...)
	for _, s := range r.UDP {
		s.Remote = netip.AddrPortFrom(s.Remote.Addr().Unmap(), s.Remote.Port())
		j.sockets[s.Local.Port()] = s
	}
}

// exchanges returns the exchanges in the order in which they began, and then those of sockets
// without a packet.
func (j *Judge) exchanges() (all []*exchange) {
	of := func(local, remote netip.AddrPort) *exchange {
		s := j.sockets[local.Port()]
		e := exchange{remote: remote, await: s.Await}
		if len(s.Processes) > 0 {
			e.pid, e.process = s.Processes[0].PID, s.Processes[0].Comm
		}
		i := slices.IndexFunc(all, func(o *exchange) bool { return o.pid == e.pid && o.remote == remote })
		if i < 0 {
			all = append(all, &e)
			return &e
		}
		all[i].await = max(all[i].await, e.await)
		return all[i]
	}
	asked := map[netip.AddrPort]*exchange{} // by the peer's address and the own port: a server may answer from another port
	for i := range j.datagrams {
		d := &j.datagrams[i]
		pair := netip.AddrPortFrom(d.Remote.Addr(), d.Local.Port())
		e := asked[pair]
		if e == nil || d.Out || d.Error != "" {
			e = of(d.Local, d.Remote)
		}
		e.gateway = e.gateway || j.last.Ifaces[d.Iface].Gateway
		switch {
		case d.Error != "":
			e.rejection, e.waits = *d, 0
		case d.Out:
			asked[pair] = e
			if e.waits == 0 {
				e.since = d.At
			}
			e.sent, e.waits, e.name = e.sent+1, e.waits+1, cmp.Or(d.Name, e.name)
		default:
			e.answered, e.waits = e.answered+1, 0
			if d.Failure != "" {
				e.failed, e.failure = e.failed+1, d.Failure
			}
		}
	}
	for d, l := range j.known {
		local, lerr := netip.ParseAddrPort(d.local)
		remote, rerr := netip.ParseAddrPort(d.remote)
		if l.protocol != "udp" || lerr != nil || rerr != nil || j.last.At.Sub(l.last) > dropsRecent {
			continue
		}
		if len(j.sockets[local.Port()].Processes) == 0 {
			local, remote = remote, local // an answer
		}
		if len(j.sockets[local.Port()].Processes) == 0 || d.reason == "NO_SOCKET" {
			continue
		}
		if e := of(local, remote); l.count > e.dropped.count {
			e.dropped = l
		}
	}
	for _, port := range slices.Sorted(maps.Keys(j.sockets)) {
		if s := j.sockets[port]; s.State == sockdiag.Established && slices.ContainsFunc(j.last.UDP, func(o UDPSocket) bool { return o.Cookie == s.Cookie }) {
			of(s.Local, s.Remote)
		}
	}
	return all
}

// open reports whether a longer observation would show more: a program waits for an answer, and
// so far neither an answer nor its absence has been seen.
func (j *Judge) open() bool {
	for _, t := range j.tracks {
		if t.sent+t.received > 0 {
			return false
		}
	}
	return slices.ContainsFunc(j.exchanges(), func(e *exchange) bool {
		return e.pid != 0 && (e.await == Receive || e.await == Unknown) && e.answered == 0 && !e.rejection.From.IsValid() && e.dropped.count == 0 &&
			(e.sent == 0 || j.late(e) < answerLate)
	})
}

// late returns for how long an answer has been due.
func (j *Judge) late(e *exchange) time.Duration {
	if e.waits == 0 {
		return 0
	}
	return j.heardUntil().Sub(e.since)
}

// heardUntil returns the time until which the datagrams are known.
func (j *Judge) heardUntil() time.Time {
	if n := len(j.datagrams); n >= datagramsMost {
		return j.datagrams[n-1].At
	}
	return j.last.At
}

// unanswered finds the programs that wait for a name server or for another answer over UDP.
func (j *Judge) unanswered() (all []Finding) {
	for _, e := range j.exchanges() {
		f := e.finding(j)
		if f.Text != "" {
			all = append(all, f)
		}
	}
	if n := j.last.RouteErrors; n > 0 && len(j.last.NoRoute) > 0 {
		servers := j.last.NoRoute[0].String()
		for _, a := range j.last.NoRoute[1:] {
			servers += " or " + a.String()
		}
		all = append(all, Finding{NameServer, fmt.Sprintf("The stack has no usable route to the name server %s, so a program that resolves a name gets an error at once. "+
			"Evidence: since its start, the stack has missed a route %s, for queries or for other destinations. "+
			"Next: lklctl exec -- ip route shows the routes (dead: the interface has no carrier); the key gw of --if sets a default route; lklrun --dns chooses another name server.", servers, text.Plural(int(n), "time"))})
	}
	return all
}

// finding judges an exchange. The text is empty if nothing is wrong.
func (e *exchange) finding(j *Judge) Finding {
	who, peer, code := "A program", fmt.Sprintf("%v port %d", e.remote.Addr(), e.remote.Port()), Datagrams
	if e.process != "" {
		who = fmt.Sprintf("%s(%d)", e.process, e.pid)
	}
	what, about := "datagram", ""
	if e.remote.Port() == dns {
		code, what, peer = NameServer, "query", "the name server "+peer
		if e.name != "" {
			about = " for " + e.name
		}
	}
	said := func(format string, args ...any) Finding { return Finding{code, fmt.Sprintf(format, args...)} }
	late := j.late(e)
	silent := e.answered == 0 && late >= answerLate || e.waits > 1 && late >= answerStops
	count := fmt.Sprintf("%s sent, none answered for %v", plural(e.waits, what), late.Round(100*time.Millisecond))
	switch {
	case e.remote.Addr().IsMulticast(), e.answered == 0 && e.sent > streamLeast && code == Datagrams:
		return Finding{}
	case e.dropped.count > 0 && e.answered == 0 && e.dropped.reason == "NEIGH_FAILED":
		return said("%s cannot reach %s%s: the next hop does not answer ARP or neighbour discovery, so its host is down, or the address is wrong. "+
			"Evidence: the stack has dropped %s. Next: %s.", who, peer, about, plural(e.dropped.count, what), e.check())
	case e.dropped.count > 0 && (silent || e.dropped.count >= e.answered):
		return said("The stack itself drops packets between %s and %s%s, with the reason %s: %s. Evidence: it has dropped %s. Next: lklctl drops dst %v or src %[7]v lists them%s.",
			lower(who), peer, about, e.dropped.reason, e.dropped.meaning, text.Plural(e.dropped.count, "packet"), e.remote.Addr(), byRule(e.dropped))
	case e.rejection.Error != "" && e.answered == 0:
		return said("%s gets no answer from %s%s: %s. Evidence: %v has sent the ICMP error \"%s\". Next: %s.",
			who, peer, about, e.rejected(), e.rejection.From, e.rejection.Error, e.check())
	case code == NameServer && e.failed > 0 && e.failed == e.answered:
		return said("%s cannot resolve %s: %s answers each query with %s, because it does not reach the servers of that domain, or does not serve this client. "+
			"Evidence: %s. Next: to tell which, ask it for another name: lklctl exec -- dig @%v example.com; lklrun --dns chooses another name server.",
			who, cmp.Or(e.name, "a name"), peer, e.failure, text.Plural(e.failed, "such answer"), e.remote.Addr())
	case silent && code == NameServer:
		return said("%s waits for an answer from %s%s: %s. The server is down, or a firewall drops the queries or the answers. Next: to tell which, %s.", who, peer, about, count, e.test())
	case silent && e.await == Receive:
		return said("%s waits for an answer from %s: %s. The peer is down or does not answer, or a firewall drops the datagrams. Next: to tell which, %s.", who, peer, count, e.test())
	case silent && e.await != Elsewhere && e.pid != 0:
		return said("%s gets no answer from %s: %s. The peer does not answer, or the program expects no answer. "+
			"Next: strace -p %d shows whether the program waits for one; if it does, %s.", who, peer, count, e.pid, e.test())
	case e.sent == 0 && e.answered == 0 && e.await == Receive:
		why := "The answer is late or lost, or the peer has nothing to send"
		if code == NameServer {
			why = "The query was sent earlier, and its answer is late or lost"
		}
		return said("%s waits for %s: in %v, nothing was sent and nothing came. %s. Next: %s.",
			who, peer, j.last.At.Sub(j.first.At).Round(100*time.Millisecond), why, e.test())
	}
	return Finding{}
}

// rejected says what an ICMP error means.
func (e *exchange) rejected() string {
	switch {
	case e.rejection.Error != portUnreachable:
		return "no route leads there, or a firewall on the way rejects the packets"
	case e.remote.Addr().IsLoopback():
		return "no program in this stack has that port"
	}
	return "no program there has that port, or a firewall rejects the packets"
}

// check tells how to check the address of a peer that is wrong.
func (e *exchange) check() string {
	if e.remote.Port() == dns {
		return "lklctl exec -- cat /etc/resolv.conf shows the addresses of the name servers; lklrun --dns chooses others"
	}
	return "check the address and the port; ss -lun there lists the ports in use"
}

// test tells how to separate the causes of a missing answer.
func (e *exchange) test() string {
	switch query := e.remote.Port() == dns; {
	case e.gateway && query:
		return fmt.Sprintf("try getent hosts %s on the host, whose name servers lklrun's gateway asks; with lklrun --dns, try dig @%v there", cmp.Or(e.name, "example.org"), e.remote.Addr())
	case e.gateway:
		return fmt.Sprintf("run tcpdump udp port %d on the host, whose sockets lklrun's gateway uses: it shows whether an answer arrives", e.remote.Port())
	case query:
		return fmt.Sprintf("try lklctl exec -- ping %v, which succeeds if only port 53 is silent; lklrun --dns chooses another name server", e.remote.Addr())
	}
	return fmt.Sprintf("try lklctl exec -- ping %v, which succeeds if only the port is silent; tcpdump on the peer shows whether the datagrams arrive", e.remote.Addr())
}

func plural(n int, what string) string {
	if what == "query" && n != 1 {
		return fmt.Sprintf("%d queries", n)
	}
	return text.Plural(n, what)
}

func byRule(l losses) string {
	if l.reason == "NETFILTER_DROP" && l.meaning == drops.Meaning(l.reason) {
		return ", and lklctl exec -- nft list ruleset the rule"
	}
	return ""
}

func lower(who string) string {
	if who == "A program" {
		return "a program"
	}
	return who
}
