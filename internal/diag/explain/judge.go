// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Thresholds of the judgement.
const (
	cpuFull     = 0.85                  // part of a core that the stack's thread uses or waits for
	gatewayFull = 0.70                  // part of a core that lklrun uses
	rateFull    = 0.75                  // part of a configured rate
	pacedFull   = 0.50                  // part of the rate at which BBR paces
	queueLeast  = 10 * time.Millisecond // round-trip time above its minimum that shows a queue
	windowFull  = 0.60                  // part of the advertised window that arrives per round trip
	windowUsed  = 0.80                  // part of the peer's window that MPTCP's data fills
	bufferFull  = 0.60                  // part of the send buffer
	slower      = 3                     // times the round-trip time of the fastest subflow
	tracksMost  = 200                   // connections to remember
)

// moving is Peer, while data arrived. It becomes Loss if segments were missing.
const moving Code = "peer-moving"

// Judge assigns time to limits. The zero value is ready to use. It is not safe for
// concurrent use.
type Judge struct {
	first, last *Reading
	tracks      map[string]*track
	dropped     map[drop]uint64 // since the first reading
	known       map[drop]losses // also before it
	forgotten   int64
	datagrams   []Datagram
	sockets     map[uint16]UDPSocket // by local port; also those that have been closed
}

// drop identifies dropped packets of a connection.
type drop struct{ local, remote, reason string }

// place is a limit at an interface.
type place struct {
	code  Code
	iface string
}

// track contains the observations of one connection.
type track struct {
	conn           live.Connection
	observed       time.Duration
	sent, received uint64
	send, receive  map[place]float64 // seconds
	recvQ          uint64            // largest
	flows          map[string]*flow
	alive          bool
}

// flow contains the observations of a TCP connection or subflow.
type flow struct {
	iface                       string
	local, remote               string
	sent, received              uint64
	retrans, segments           uint64 // segments sent again, segments sent
	timeouts                    uint64
	ooo, arrived                uint64 // segments received out of order, segments received
	rtt, cwnd                   float64
	rounds                      float64
	minRTT                      uint64
	wndLeast, wndMost, wndMean  uint64
	rcvWndMost, sndbuf, rcvbuf  uint64
	mss, maxPacing, pacing      uint64
	congestion                  string
	busy, idle                  float64 // seconds
	held                        float64 // readings in which small data waited for an acknowledgement
	queued                      float64 // readings with packets in the queue of the interface
	reordered, duplicates       uint64  // reordering events, segments that the peer received twice
	info                        *sockdiag.TCPInfo
	state                       sockdiag.State
	bbr                         bool
	dropsBefore, overlimits     uint64
	netemBefore, netemOutBefore uint32
}

// Add adds the next reading.
func (j *Judge) Add(r *Reading) {
	if j.tracks == nil {
		j.tracks, j.dropped, j.known, j.sockets = map[string]*track{}, map[drop]uint64{}, map[drop]losses{}, map[uint16]UDPSocket{}
	}
	was := j.last
	j.last = r
	j.heard(r)
	if was == nil {
		j.first = r
		for i := range r.Conns {
			j.track(&r.Conns[i], r)
		}
		j.note(r)
		return
	}
	s := step{took: r.At.Sub(was.At), was: was, now: r}
	if s.took <= 0 {
		return
	}
	s.stackCPU = (r.CPU.Stack - was.CPU.Stack + r.CPU.StackWait - was.CPU.StackWait).Seconds() / s.took.Seconds()
	s.gatewayCPU = (r.CPU.Gateway - was.CPU.Gateway + r.CPU.GatewayWait - was.CPU.GatewayWait).Seconds() / s.took.Seconds()
	if r.CPU.Inside {
		s.stackCPU = (r.CPU.Target - was.CPU.Target).Seconds() / s.took.Seconds()
	}
	if !r.CPU.Known || !was.CPU.Known {
		s.stackCPU, s.gatewayCPU = 0, 0
	}
	before := map[string]*live.Connection{}
	for i := range was.Conns {
		before[was.Conns[i].ID] = &was.Conns[i]
	}
	for _, t := range j.tracks {
		t.alive = false
	}
	for i := range r.Conns {
		c := &r.Conns[i]
		t := j.track(c, r)
		t.alive = true
		s.add(t, c, before[c.ID])
	}
	j.note(r)
	j.forget()
}

// track returns the observations of a connection.
func (j *Judge) track(c *live.Connection, r *Reading) *track {
	t := j.tracks[c.ID]
	if t == nil {
		t = &track{flows: map[string]*flow{}, send: map[place]float64{}, receive: map[place]float64{}}
		j.tracks[c.ID] = t
	}
	process, pid := t.conn.Process, t.conn.PID
	t.conn = *c
	if t.conn.Process == "" {
		t.conn.Process, t.conn.PID = process, pid
	}
	for i, sock := range c.Carriers() {
		id, name := c.Subflows[i].ID, c.Subflows[i].Iface
		if t.flows[id] == nil {
			on := r.Ifaces[name]
			t.flows[id] = &flow{
				iface: name, local: sock.Local.String(), remote: sock.Remote.String(), dropsBefore: on.Drops, overlimits: on.Overlimits,
				netemBefore: on.Ways[stacknet.In].Dropped, netemOutBefore: on.Ways[stacknet.Out].Dropped,
			}
		}
		t.flows[id].info, t.flows[id].state = sock.TCP, sock.State
	}
	return t
}

// forget drops ended connections with the least data, so that the memory is bounded.
func (j *Judge) forget() {
	if len(j.tracks) <= tracksMost {
		return
	}
	var ended []string
	for id, t := range j.tracks {
		if !t.alive {
			ended = append(ended, id)
		}
	}
	sort.Slice(ended, func(a, b int) bool { return j.tracks[ended[a]].bytes() < j.tracks[ended[b]].bytes() })
	for _, id := range ended[:min(len(ended), len(j.tracks)-tracksMost)] {
		delete(j.tracks, id)
		j.forgotten++
	}
	if len(j.dropped) > 10*tracksMost {
		clear(j.dropped)
	}
	if len(j.known) > 10*tracksMost {
		clear(j.known)
	}
}

func (t *track) bytes() uint64 { return t.sent + t.received }

// step is the interval between two readings.
type step struct {
	took                 time.Duration
	was, now             *Reading
	stackCPU, gatewayCPU float64 // part of a core
}

// add assigns the interval to the limits of a connection. was is nil for a new connection.
func (s *step) add(t *track, c, was *live.Connection) {
	t.observed += s.took
	var sentWas, receivedWas sockdiag.Value
	old := map[string]sockdiag.Socket{}
	if was != nil {
		sentWas, receivedWas = was.BytesSent, was.BytesReceived
		for i, sock := range was.Carriers() {
			old[was.Subflows[i].ID] = sock
		}
	}
	sent, received := delta(c.BytesSent, sentWas), delta(c.BytesReceived, receivedWas)
	t.sent, t.received = t.sent+sent, t.received+received

	parts := []part{}
	for i, sock := range c.Carriers() {
		if sock.TCP == nil {
			continue
		}
		before := &sockdiag.TCPInfo{}
		if o, ok := old[c.Subflows[i].ID]; ok && o.TCP != nil {
			before = o.TCP
		}
		f := t.flows[c.Subflows[i].ID]
		p := part{flow: f, sock: sock, was: before, sent: delta(sock.TCP.BytesSent, before.BytesSent), received: delta(sock.TCP.BytesRecv, before.BytesRecv)}
		f.note(&p, s.took)
		if s.now.Ifaces[f.iface].Backlog > 0 {
			f.queued++
		}
		p.times = s.sending(&p, sent > 0)
		parts = append(parts, p)
	}
	s.dataLevel(c, was, parts)
	merge(t.send, parts, func(p *part) uint64 { return p.sent })
	s.receiving(t, c, parts, received)
}

// part is a subflow in a step.
type part struct {
	*flow
	sock           sockdiag.Socket
	was            *sockdiag.TCPInfo
	sent, received uint64
	times          map[Code]float64
	slow           string // interface of the subflow that holds this one back
}

// note records the figures that serve as evidence.
func (f *flow) note(p *part, took time.Duration) {
	i := p.sock.TCP
	f.sent, f.received = f.sent+p.sent, f.received+p.received
	if i.NotSent.N > 0 && i.NotSent.N < i.SndMSS.N && i.Unacked.N > 0 && i.Unacked.N < 3 && i.Cwnd.N > i.Unacked.N {
		f.held++
	}
	f.reordered += delta(i.ReordSeen, p.was.ReordSeen)
	f.duplicates += delta(i.DSACKDups, p.was.DSACKDups)
	f.retrans += delta(i.TotalRetrans, p.was.TotalRetrans)
	f.segments += delta(i.DataSegsOut, p.was.DataSegsOut)
	f.timeouts += delta(i.TotalRTO, p.was.TotalRTO)
	f.ooo += delta(i.RcvOOO, p.was.RcvOOO)
	f.arrived += delta(i.DataSegsIn, p.was.DataSegsIn)
	f.rtt, f.cwnd, f.rounds = f.rtt+float64(i.RTT.N), f.cwnd+float64(i.Cwnd.N), f.rounds+1
	if i.MinRTT.Known {
		f.minRTT = i.MinRTT.N
	}
	if i.SndWnd.Known {
		if f.rounds == 1 || i.SndWnd.N < f.wndLeast {
			f.wndLeast = i.SndWnd.N
		}
		f.wndMost = max(f.wndMost, i.SndWnd.N)
		f.wndMean += i.SndWnd.N
	}
	f.rcvWndMost = max(f.rcvWndMost, i.RcvWnd.N)
	f.mss, f.maxPacing, f.pacing = i.SndMSS.N, i.MaxPacingRate.N, i.PacingRate.N
	f.congestion, f.bbr = p.sock.Congestion, p.sock.BBR != nil
	if m := p.sock.Memory; m != nil {
		f.sndbuf, f.rcvbuf = m.Sndbuf.N, m.Rcvbuf.N
	}
	busy := min(float64(delta(i.Busy, p.was.Busy))/1e6, took.Seconds())
	f.busy, f.idle = f.busy+busy, f.idle+took.Seconds()-busy
}

// sending returns the time of each limit of a subflow in the direction out.
func (s *step) sending(p *part, moved bool) map[Code]float64 {
	now, all := p.sock.TCP, s.took.Seconds()
	busy := all
	switch {
	case now.Busy.Known:
		busy = min(float64(delta(now.Busy, p.was.Busy))/1e6, all)
	case now.Unacked.N == 0:
		busy = 0
	}
	window := min(float64(delta(now.RwndLimited, p.was.RwndLimited))/1e6, busy)
	buffer := min(float64(delta(now.SndbufLimited, p.was.SndbufLimited))/1e6, busy-window)
	times := map[Code]float64{PeerWindow: window, SendBuffer: buffer, Program: all - busy}
	times[s.flight(p)] += busy - window - buffer
	change := func(to Code, from ...Code) {
		for _, c := range from {
			times[to] += times[c]
			delete(times, c)
		}
	}
	switch on := s.now.Ifaces[p.iface]; {
	case !moved:
	case on.Gateway && s.gatewayCPU >= gatewayFull:
		change(Gateway, PeerWindow, SendBuffer, Program, Congestion)
		// It loses no packets, but TCP sends some again if it acknowledges late.
		if way := on.Ways[stacknet.Out]; !way.Drop && way.Netem.Loss == 0 {
			change(Gateway, Loss)
		}
	case s.stackCPU >= cpuFull && times[PathRate] < busy/2:
		change(CPU, SendBuffer, Program, Congestion)
	}
	if s.now.Ifaces[p.iface].Gateway {
		change(Gateway, PeerWindow)
	}
	return times
}

// flight returns the limit of a subflow that has data in flight and a buffer and a window
// that permit more.
func (s *step) flight(p *part) Code {
	i := p.sock.TCP
	on, before := s.now.Ifaces[p.iface], s.was.Ifaces[p.iface]
	out := on.Ways[stacknet.Out].Netem
	rate := float64(on.TxBytes-min(before.TxBytes, on.TxBytes)) * 8 / s.took.Seconds()
	own := float64(p.sent) * 8 / s.took.Seconds()
	again := delta(i.TotalRetrans, p.was.TotalRetrans)
	lost := i.CAState.N >= 3 || again > 0
	if p.sock.BBR != nil {
		lost = again > 0 && !tolerated(again, delta(i.DataSegsOut, p.was.DataSegsOut))
	}
	full := i.Unacked.N*10 >= i.Cwnd.N*8
	greedy := full || i.NotSent.N >= max(i.SndMSS.N, 1) // less waits for Nagle's algorithm, not for the window
	if p.sock.BBR != nil {
		greedy = greedy && !i.AppLimited // the window of BBR is small from time to time
	}
	switch {
	case out.Rate > 0 && rate >= rateFull*float64(out.Rate):
		return PathRate
	case i.MaxPacingRate.Known && own >= rateFull*8*float64(i.MaxPacingRate.N):
		return Pacing
	case on.Overlimits > before.Overlimits && on.Backlog > 0:
		return PathRate
	case on.Qdisc == "fq" && on.Backlog > 0 && p.sock.BBR == nil && !full:
		return Pacing
	case queued(i) && greedy && s.stackCPU < cpuFull:
		return PathRate
	case lost:
		return Loss
	case p.sock.BBR != nil && greedy && !full && own >= pacedFull*8*float64(i.PacingRate.N):
		return Pacing
	case i.NotSent.N > 0 && on.Backlog > 0 && !full && on.Qdisc != "fq":
		return PathRate
	case (!greedy || i.NotSent.N < i.SndMSS.N) && bufferFilled(p.sock.Memory):
		// The kernel does not count this time if the stack waits for room in the buffer
		// (supervise), or if one write exceeds the buffer and fills most of the window.
		return SendBuffer
	case greedy:
		return Congestion
	}
	return Program
}

// bufferFilled reports whether a send buffer is nearly full.
func bufferFilled(m *sockdiag.MemInfo) bool {
	return m != nil && m.Sndbuf.N > 0 && float64(m.WmemQueued.N) >= bufferFull*float64(m.Sndbuf.N)
}

// tolerated reports whether BBR ignores a loss of n segments: its rate depends on larger ones only.
func tolerated(n, of uint64) bool { return 10*n < of }

// queued reports whether the round-trip time shows a queue on the path.
func queued(i *sockdiag.TCPInfo) bool {
	if !i.RTT.Known || !i.MinRTT.Known || i.RTT.N < i.MinRTT.N {
		return false
	}
	more := time.Duration(i.RTT.N-i.MinRTT.N) * time.Microsecond
	return more >= queueLeast && i.RTT.N >= 2*i.MinRTT.N
}

// dataLevel corrects the times of MPTCP's subflows. If the window of the connection is full,
// neither the program nor a buffer is the cause. If a slower subflow has data in flight, the
// window is full because the others have sent what follows that data.
func (s *step) dataLevel(c, was *live.Connection, parts []part) {
	if c.Sockets.Proto != sockdiag.MPTCP || len(parts) == 0 || was == nil || outstanding(c) == 0 || outstanding(was) == 0 {
		return
	}
	fastest, window := uint64(math.MaxUint64), uint64(0)
	for k := range parts {
		i := parts[k].sock.TCP
		fastest, window = min(fastest, max(i.RTT.N, 1)), max(window, i.SndWnd.N)
	}
	if float64(outstanding(c)) < windowUsed*float64(window) {
		return
	}
	var slow *part
	for k := range parts {
		if i := parts[k].sock.TCP; i.Unacked.N > 0 && i.RTT.N >= slower*fastest && (slow == nil || i.RTT.N > slow.sock.TCP.RTT.N) {
			slow = &parts[k]
		}
	}
	for k := range parts {
		p, to := &parts[k], PeerWindow
		if slow != nil && p.sock.TCP.RTT.N*slower <= slow.sock.TCP.RTT.N {
			to, p.slow = SlowPath, slow.iface
		}
		for _, from := range []Code{Program, PeerWindow, SendBuffer} {
			if from != to {
				p.times[to] += p.times[from]
				delete(p.times, from)
			}
		}
	}
}

// outstanding returns the number of bytes that the peer has not acknowledged.
func outstanding(c *live.Connection) uint64 {
	if m := c.Sockets.MPTCP; m != nil && m.WriteSeq.Known && m.SndUna.Known && !m.Fallback {
		return m.WriteSeq.N - m.SndUna.N
	}
	return c.Sockets.SendQ.N
}

// merge adds the times of the subflows, weighted by the bytes that each carried.
func merge(to map[place]float64, parts []part, bytes func(*part) uint64) {
	var total uint64
	for k := range parts {
		total += bytes(&parts[k])
	}
	for k := range parts {
		weight := 1 / float64(len(parts))
		if total > 0 {
			weight = float64(bytes(&parts[k])) / float64(total)
		}
		for code, seconds := range parts[k].times {
			iface := parts[k].iface
			if code == SlowPath {
				iface = parts[k].slow
			}
			if seconds*weight > 0 {
				to[place{code, iface}] += seconds * weight
			}
		}
	}
}

// receiving assigns the interval to a limit of the direction in.
func (s *step) receiving(t *track, c *live.Connection, parts []part, received uint64) {
	t.recvQ = max(t.recvQ, c.Sockets.RecvQ.N)
	if len(parts) == 0 {
		return
	}
	p := slices.MaxFunc(parts, func(a, b part) int { return cmp.Compare(a.received, b.received) })
	i := p.sock.TCP
	on, before := s.now.Ifaces[p.iface], s.was.Ifaces[p.iface]
	in := on.Ways[stacknet.In].Netem
	rate := float64(on.RxBytes-min(before.RxBytes, on.RxBytes)) * 8 / s.took.Seconds()
	rtt := i.RcvRTT.N
	if rtt == 0 {
		rtt = i.RTT.N
	}
	perRTT := float64(p.received) / s.took.Seconds() * float64(rtt) / 1e6
	code := moving
	switch unread := c.Sockets.RecvQ.N; {
	case received > 0 && on.Gateway && s.gatewayCPU >= gatewayFull:
		code = Gateway
	case received > 0 && s.stackCPU >= cpuFull:
		code = CPU
	case unread > 0 && i.RcvWnd.Known && unread >= i.RcvWnd.N:
		code = Reader
	case received == 0:
		code = Peer
	case in.Rate > 0 && rate >= rateFull*float64(in.Rate):
		code = PathRate
	case delta(i.RcvOOO, p.was.RcvOOO) > 0:
		code = Loss
	case i.RcvWnd.N > 0 && perRTT >= windowFull*float64(i.RcvWnd.N):
		code = ReceiveBuffer
	}
	t.receive[place{code, p.iface}] += s.took.Seconds()
}
