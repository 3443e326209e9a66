// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// least is the smallest share that a report contains.
const least = 0.01

// lossLeast is the smallest share of lost segments that explains a small congestion window.
const lossLeast = 0.001

// Report explains the connections that were observed so far.
func (j *Judge) Report() *Report {
	r := &Report{Connections: []Connection{}, Findings: []Finding{}, Unseen: j.forgotten, udp: j.last != nil && j.last.UDP != nil}
	if j.last == nil {
		return r
	}
	r.Seconds = rounded(j.last.At.Sub(j.first.At).Seconds())
	var begun int64
	for _, id := range slices.Sorted(maps.Keys(j.tracks)) {
		t := j.tracks[id]
		if !slices.ContainsFunc(j.first.Conns, func(c live.Connection) bool { return c.ID == id }) {
			begun++
		}
		if t.observed > 0 {
			r.Connections = append(r.Connections, j.explain(t))
		}
	}
	r.Unseen += max(0, int64(j.last.Opened-j.first.Opened)-begun-j.forgotten)
	sort.SliceStable(r.Connections, func(i, k int) bool { return order(&r.Connections[i], &r.Connections[k]) < 0 })
	r.Findings = j.findings()
	r.Describe(false)
	return r
}

// Describe sets the text of the report to its findings, or to that of its first connection. If
// the connections are a selection, the first one comes before the findings, which may concern
// others.
func (r *Report) Describe(selection bool) {
	udp := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == NameServer || f.Code == Datagrams })
	switch {
	case len(r.Connections) > 0 && (selection || udp && r.Connections[0].rank() == 0):
		r.Text = r.Connections[0].Text
		for _, f := range r.Findings {
			r.Text += " " + f.Text
		}
	case len(r.Findings) > 0:
		r.Text = r.Findings[0].Text
		for _, f := range r.Findings[1:] {
			r.Text += " " + f.Text
		}
	case len(r.Connections) > 0:
		r.Text = r.Connections[0].Text
	case r.Unseen > 0:
		r.Text = fmt.Sprintf("%s began and ended too fast to be observed, so nothing is known about their limits.", text.Plural(int(r.Unseen), "connection"))
	default:
		r.Text = "There was no TCP connection, so nothing limits one."
		if r.udp {
			r.Text = "There was no TCP connection, and no program waits for an answer over UDP."
		}
	}
}

func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

// explain judges one connection.
func (j *Judge) explain(t *track) Connection {
	c := Connection{
		Proto: t.conn.Proto, Local: t.conn.Local, Remote: t.conn.Remote, Process: t.conn.Process, PID: t.conn.PID, Token: t.conn.Token,
		Seconds: rounded(t.observed.Seconds()), BytesSent: t.sent, BytesReceived: t.received,
		Direction: Sends, Interfaces: []string{}, Limits: []Limit{}, socket: t.conn, Cookie: t.conn.Sockets.Cookie,
	}
	bytes := t.sent
	if t.received > t.sent || t.received == t.sent && t.recvQ > 0 {
		c.Direction, bytes = Receives, t.received
	}
	c.Rate = uint64(float64(8*bytes) / t.observed.Seconds())
	for _, f := range t.flows {
		if f.iface != "" && !slices.Contains(c.Interfaces, f.iface) {
			c.Interfaces = append(c.Interfaces, f.iface)
		}
	}
	slices.Sort(c.Interfaces)
	v := view{j, t, c.Direction}
	shares, at := v.shares()
	for code, share := range shares {
		if share < least {
			continue
		}
		l := Limit{Code: code, Share: math.Round(share*100) / 100}
		if located(code) {
			l.Interface = at[code]
		}
		l.Evidence, l.Remedy = v.evidence(&l), v.remedy(&l)
		c.Limits = append(c.Limits, l)
	}
	if k := v.diagnose(); k != nil {
		c.Limits = []Limit{{Code: k.code, Share: 1, Evidence: k.evidence(&v), Remedy: k.remedy(&v)}}
		c.Text = fmt.Sprintf("%s Evidence: %s. Next: %s.", k.sentence(&v), strings.Join(c.Limits[0].Evidence, "; "), strings.Join(c.Limits[0].Remedy, "; "))
		return c
	}
	sort.Slice(c.Limits, func(i, j int) bool {
		a, b := &c.Limits[i], &c.Limits[j]
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Code, b.Code)) < 0
	})
	c.describe(&v)
	return c
}

// view is a connection in the direction of most of its data.
type view struct {
	*Judge
	t         *track
	direction string
}

func (v *view) times() map[place]float64 {
	if v.direction == Receives {
		return v.t.receive
	}
	return v.t.send
}

// shares returns the part of the time of each limit, and the interface where it applied most.
func (v *view) shares() (all map[Code]float64, at map[Code]string) {
	all, at = map[Code]float64{}, map[Code]string{}
	if t := v.t; t.sent+t.received == 0 && t.recvQ == 0 && outstanding(&t.conn) == 0 {
		return map[Code]float64{Idle: 1}, at
	}
	each := map[string]map[Code]float64{}
	for p, seconds := range v.times() {
		if each[p.iface] == nil {
			each[p.iface] = map[Code]float64{}
		}
		each[p.iface][p.code] += seconds / v.t.observed.Seconds()
	}
	most := map[Code]float64{}
	for _, iface := range slices.Sorted(maps.Keys(each)) {
		v.settle(iface, each[iface])
		for code, share := range each[iface] {
			all[code] += share
			if share > most[code] {
				most[code], at[code] = share, iface
			}
		}
	}
	return all, at
}

// settle replaces the limits over an interface by the causes that the whole observation shows.
func (v *view) settle(iface string, all map[Code]float64) {
	f, on := v.of(iface), v.last.Ifaces[iface]
	become := func(to, from Code) {
		all[to] += all[from]
		delete(all, from)
	}
	if v.direction == Receives {
		if f.ooo > 0 && float64(f.ooo) >= lossLeast*float64(f.arrived) {
			become(Loss, moving)
		} else {
			become(Peer, moving)
		}
		return
	}
	if f.bbr && f.maxPacing == 0 {
		become(PathRate, Pacing) // BBR paces at the rate of the path
	}
	if f.reorders() && on.Ways[stacknet.Out].Netem.Rate == 0 && on.Overlimits == f.overlimits {
		become(Loss, PathRate) // packets that overtake each other have different round-trip times
	}
	// After a loss, the window is small because of the loss, unless hardly anything was lost.
	switch {
	case f.segments > 0 && float64(f.lost()) < lossLeast*float64(f.segments), f.bbr && tolerated(f.retrans, f.segments):
		become(Congestion, Loss)
	case f.retrans == 0:
	case all[PathRate] > all[Loss]:
		become(PathRate, Congestion)
	default:
		become(Loss, Congestion)
	}
}

// located reports whether a limit applies at an interface.
func located(code Code) bool {
	return slices.Contains([]Code{Loss, PathRate, SlowPath, Gateway, Congestion, Pacing}, code)
}

// main returns the subflow with the most data.
func (v *view) main() *flow { return v.of("") }

// of returns the subflow with the most data over an interface; empty: over any.
func (v *view) of(iface string) *flow {
	var best *flow
	for _, id := range slices.Sorted(maps.Keys(v.t.flows)) {
		f := v.t.flows[id]
		if iface == "" || f.iface == iface {
			if best == nil || f.sent+f.received > best.sent+best.received {
				best = f
			}
		}
	}
	if best == nil {
		return &flow{}
	}
	return best
}

// cores returns the average usage of cores between the first reading and the last one.
func (j *Judge) cores() (stack, waits, gateway, target float64, known bool) {
	a, b := j.first.CPU, j.last.CPU
	took := j.last.At.Sub(j.first.At).Seconds()
	if !a.Known || !b.Known || took <= 0 {
		return 0, 0, 0, 0, false
	}
	return (b.Stack - a.Stack).Seconds() / took, (b.StackWait - a.StackWait).Seconds() / took,
		(b.Gateway - a.Gateway + b.GatewayWait - a.GatewayWait).Seconds() / took, (b.Target - a.Target).Seconds() / took, true
}

// waitsForCore reports whether the stack's thread waits for a core longer than it uses one.
func (v *view) waitsForCore() bool {
	stack, waits, _, _, _ := v.cores()
	return waits > stack
}

// computes reports whether a thread of the connection's process had hardly any idle time.
func (v *view) computes() bool {
	took := v.last.At.Sub(v.first.At).Seconds()
	for thread, now := range v.last.CPU.Threads[v.t.conn.PID] {
		if was, ok := v.first.CPU.Threads[v.t.conn.PID][thread]; ok && (now-was).Seconds() >= cpuFull*took {
			return took > 0
		}
	}
	return false
}

// lacksCPU is a cause of a program that is slow.
const lacksCPU = ", probably for lack of CPU time: one of its threads has no idle time"

func (f *flow) mean(sum float64) float64 { return sum / max(f.rounds, 1) }

func percent(share float64) string {
	p := 100 * share
	if p > 0 && p < 10 {
		return fmt.Sprintf("%.1f%%", p)
	}
	return fmt.Sprintf("%.0f%%", p)
}

// evidence lists the observations that show a limit.
func (v *view) evidence(l *Limit) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	f, on := v.of(l.Interface), v.last.Ifaces[l.Interface]
	rtt, window := f.mean(f.rtt), f.mean(float64(f.wndMean))
	stack, waits, gateway, target, known := v.cores()
	switch l.Code {
	case Idle:
		add("no data in either direction")
	case Program:
		if f.idle > f.busy {
			add("no data to send for %s of the time", percent(f.idle/(f.idle+f.busy)))
		} else {
			add("all that it has sent is in flight, and the window of %.0f segments permits more: it waits for answers", f.mean(f.cwnd))
			add("a round trip takes %s", text.Millis(uint64(rtt)))
		}
		if known {
			add("the program uses %s of a core", percent(target))
		}
	case Reader:
		add("up to %s wait for the program to read them", text.Scaled(float64(v.t.recvQ), "B"))
		if known {
			add("the program uses %s of a core", percent(target))
		}
	case SendBuffer:
		add("the send buffer is %s", text.Scaled(float64(f.sndbuf), "B"))
		add("a round trip takes %s", text.Millis(uint64(rtt)))
	case ReceiveBuffer:
		add("the advertised window is at most %s", text.Scaled(float64(f.rcvWndMost), "B"))
		add("the receive buffer is %s", text.Scaled(float64(f.rcvbuf), "B"))
		if v.sysctl(f) {
			add("net.ipv4.tcp_rmem permits no more")
		}
	case PeerWindow:
		add("the peer's window is %s", between(f.wndLeast, f.wndMost))
		if f.wndLeast < f.wndMost {
			add("on average, it is %s", text.Scaled(window, "B"))
		}
		add("a round trip takes %s", text.Millis(uint64(rtt)))
	case Peer:
		add("the peer sends no more; this side's window is open (up to %s)", text.Scaled(float64(f.rcvWndMost), "B"))
	case Congestion:
		add("the congestion window of %s is full: %.0f segments on average", f.congestion, f.mean(f.cwnd))
		add("a round trip takes %s", text.Millis(uint64(rtt)))
		switch {
		case f.retrans == 0:
			add("no segment was lost")
		case 2*f.lost() <= f.retrans:
			add("%d of %d segments were retransmitted, and the peer received %d twice: these were late, not lost", f.retrans, f.segments, f.duplicates)
		default:
			add("%d of %d segments were retransmitted, too few to matter", f.retrans, f.segments)
		}
	case Pacing:
		if v.byQdisc(f, on) {
			add("the queueing discipline fq of %s holds packets back: %s wait in it", l.Interface, text.Scaled(float64(on.Backlog), "B"))
		} else {
			add("the program limits pacing to %s (SO_MAX_PACING_RATE)", text.Scaled(8*float64(f.maxPacing), "bit/s"))
		}
	case Loss:
		all = append(all, v.lost(f, on)...)
	case PathRate:
		all = append(all, v.queue(f, on, l.Interface)...)
	case SlowPath:
		add("a round trip over %s takes %s, over %s %s", l.Interface, text.Millis(uint64(rtt)), v.main().iface, text.Millis(uint64(v.main().mean(v.main().rtt))))
		add("%s carries %s of the bytes, and the other subflows wait for them", l.Interface, percent(float64(f.sent)/max(1, float64(v.t.sent))))
	case CPU:
		add("the thread of the stack uses %s of a core", percent(stack))
		if waits >= 0.05 {
			add("it waits for a core for %s of the time", percent(waits))
		}
		add("the program uses %s of a core", percent(target))
	case Gateway:
		add("the gateway, in lklrun and a kernel of its own, uses or waits for %s of a core", percent(gateway))
		if f.wndMost > 0 && v.direction == Sends {
			add("the gateway's window is %s", between(f.wndLeast, f.wndMost))
		}
	}
	return all
}

// between formats a range of sizes.
func between(least, most uint64) string {
	if least == most {
		return text.Scaled(float64(most), "B")
	}
	return text.Scaled(float64(least), "B") + " to " + text.Scaled(float64(most), "B")
}

// lost says how much was lost, and where.
func (v *view) lost(f *flow, on Iface) (all []string) {
	way, word, before := stacknet.Out, "retransmitted", f.netemOutBefore
	n, of := f.retrans, f.segments
	if v.direction == Receives {
		way, word, before = stacknet.In, "out of order, behind missing or late ones", f.netemBefore
		n, of = f.ooo, f.arrived
	}
	all = append(all, fmt.Sprintf("%d of %d segments were %s (%s)", n, of, word, percent(float64(n)/float64(max(of, 1)))))
	if f.timeouts > 0 {
		all = append(all, fmt.Sprintf("%s of the retransmission timer", text.Plural(int(f.timeouts), "timeout")))
	}
	if v.direction == Sends {
		all = append(all, fmt.Sprintf("the congestion window is only %.0f segments, at a round trip of %s", f.mean(f.cwnd), text.Millis(uint64(f.mean(f.rtt)))))
	}
	if f.reordered > 0 {
		all = append(all, fmt.Sprintf("segments overtook each other %s, and the peer received %d twice", text.Plural(int(f.reordered), "time"), f.duplicates))
	}
	imp := on.Ways[way]
	switch reasons := v.reasons(f); {
	case imp.Drop:
		all = append(all, fmt.Sprintf("lklctl path drops all packets of %s, direction %v", f.iface, way))
	case imp.Netem.Loss > 0:
		all = append(all, fmt.Sprintf("lklctl path drops %s of the packets of %s, direction %v: %d during this time", percent(imp.Netem.Loss), f.iface, way, imp.Dropped-before))
	case len(reasons) > 0:
		all = append(all, reasons...)
	case on.Drops > f.dropsBefore && way == stacknet.Out:
		all = append(all, fmt.Sprintf("the queue of %s (%s) dropped %d packets", f.iface, on.Qdisc, on.Drops-f.dropsBefore))
	case v.lossyWire(on):
		all = append(all, fmt.Sprintf("lklctl path drops %s of the packets that arrive over %s; probably the other end of this wire drops as many of those that are sent", percent(on.Ways[stacknet.In].Netem.Loss), f.iface))
	case v.late(f, on):
		all = append(all, fmt.Sprintf("the stack dropped none of them: they overtook each other beyond %s", f.iface))
	case v.direction == Receives:
		all = append(all, fmt.Sprintf("the stack dropped none of them, so they were lost or delayed beyond %s", f.iface))
	default:
		all = append(all, fmt.Sprintf("the stack dropped none of them, so they were lost beyond %s", f.iface))
	}
	return all
}

// lossyWire reports whether packets arrive over an impaired path, which is impaired in the other
// direction, too, if it is a wire of a lab.
func (v *view) lossyWire(on Iface) bool {
	return v.direction == Sends && (on.Ways[stacknet.In].Drop || on.Ways[stacknet.In].Netem.Loss > 0)
}

// reasons lists why the stack dropped packets of a connection.
func (v *view) reasons(f *flow) (all []string) {
	a, b := v.t.conn.Local, v.t.conn.Remote
	counts := map[string]uint64{}
	for d, n := range v.dropped {
		ours := d.local == a && d.remote == b || d.local == b && d.remote == a || d.remote == f.remote
		if ours && !usual(d.reason) {
			counts[d.reason] += n
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("the stack dropped %d packets: %s (%s)", counts[reason], reason, drops.Meaning(reason)))
	}
	return all
}

// queue says where the queue is, and how long.
func (v *view) queue(f *flow, on Iface, iface string) (all []string) {
	way := stacknet.Out
	if v.direction == Receives {
		way = stacknet.In
	}
	switch {
	case on.Ways[way].Netem.Rate > 0:
		all = append(all, fmt.Sprintf("lklctl path limits %s to %s, direction %v", iface, text.Scaled(float64(on.Ways[way].Netem.Rate), "bit/s"), way))
	case f.bbr && f.pacing > 0 && v.direction == Sends:
		all = append(all, fmt.Sprintf("%s paces at %s, its estimate of the path's rate", f.congestion, text.Scaled(8*float64(f.pacing), "bit/s")))
	case on.Overlimits > f.overlimits:
		all = append(all, fmt.Sprintf("the queueing discipline %s of %s delays packets: %s wait in it", on.Qdisc, iface, text.Scaled(float64(on.Backlog), "B")))
	case f.queued > f.rounds/2:
		all = append(all, fmt.Sprintf("the queue is in the stack: %s wait in %s of %s", text.Scaled(float64(on.Backlog), "B"), on.Qdisc, iface))
	default:
		all = append(all, fmt.Sprintf("the queue is not in the stack, but beyond %s, or the peer has too little CPU time to acknowledge; lklctl explain on the peer tells which", iface))
	}
	if rtt := uint64(f.mean(f.rtt)); v.direction == Sends && rtt > f.minRTT {
		all = append(all, fmt.Sprintf("a round trip takes %s, and at least %s without the queue", text.Millis(rtt), text.Millis(f.minRTT)))
	}
	if f.retrans > 0 {
		all = append(all, fmt.Sprintf("%d of %d segments were lost in the full queue", f.retrans, f.segments))
	}
	return all
}

// bloat is the factor between the round-trip time and its minimum that deserves a remedy.
const bloat = 4

// remedy lists what to change.
func (v *view) remedy(l *Limit) []string {
	f, on := v.of(l.Interface), v.last.Ifaces[l.Interface]
	window := uint64(f.mean(f.rtt)) // of 1 Gbit/s, in units of 125 bytes
	switch l.Code {
	case Program:
		if v.computes() {
			return []string{"make the program compute less for each byte, or in further threads"}
		}
		if v.asks(f) {
			return []string{"send further requests before the answer arrives (pipelining), use several connections, or bring the ends closer together"}
		}
		return []string{"send sooner or more at a time, if the program can"}
	case Reader:
		return []string{"make the program read faster, or read in a thread of its own"}
	case SendBuffer:
		return []string{
			"remove SO_SNDBUF from the program, so that the kernel sizes the buffer",
			"or raise net.ipv4.tcp_wmem: lklctl sysctl -w net.ipv4.tcp_wmem='4096 262144 16777216'",
		}
	case ReceiveBuffer:
		if v.sysctl(f) {
			return []string{"raise net.ipv4.tcp_rmem: lklctl sysctl -w net.ipv4.tcp_rmem='4096 262144 33554432'"}
		}
		return []string{
			"remove SO_RCVBUF from the program, so that the kernel sizes the buffer",
			"or raise net.ipv4.tcp_rmem: lklctl sysctl -w net.ipv4.tcp_rmem='4096 262144 33554432'",
		}
	case PeerWindow:
		if v.starved(f) {
			return []string{"make the program on " + v.t.conn.Remote + " read faster; top -H there, or lklctl explain if it runs under lklrun, tells what it lacks: CPU time, if one of its threads uses a whole core"}
		}
		return []string{fmt.Sprintf("on the peer, remove SO_RCVBUF or raise net.ipv4.tcp_rmem: 1Gbit/s needs a window of %s at this round-trip time", text.Scaled(125*float64(window), "B"))}
	case Peer:
		if other, ok := v.local(); ok {
			return []string{"look at the other end, which is in this stack" + program(other) + ": lklctl explain sport = :" + fmt.Sprint(v.peer().Port())}
		}
		if on.Gateway || v.gatewayed() {
			return []string{"look at the host's connection behind the gateway: ss -ti on the host"}
		}
		return []string{"ask the peer, which knows its own limits: lklctl explain if it runs under lklrun, or ss -ti there"}
	case Congestion:
		remedy := []string{"nothing, if the transfer is short: the window still grows"}
		if !f.bbr {
			remedy = append(remedy, "for a long path, try another algorithm: lklrun --stack bbr")
		}
		return remedy
	case Pacing:
		if v.byQdisc(f, on) {
			return []string{"raise the maxrate of fq, which lklctl exec -- tc qdisc show dev " + l.Interface + " prints"}
		}
		return []string{"raise or remove SO_MAX_PACING_RATE in the program"}
	case Loss:
		way := stacknet.Out
		if v.direction == Receives {
			way = stacknet.In
		}
		if i := on.Ways[way]; i.Drop || i.Netem.Loss > 0 {
			return []string{"lklctl path " + l.Interface + " clear"}
		}
		if v.lossyWire(on) {
			return []string{fmt.Sprintf("the end that receives applies the loss of a wire: lklctl -n NODE path INTERFACE clear, with the node that is the next hop to %v", v.peer().Addr())}
		}
		if v.late(f, on) {
			return []string{"nothing, if the rate suffices: the receiver puts the segments in order", "else repair the path, for example a bond or a radio link that does not keep the order"}
		}
		if f.bbr {
			return []string{"repair the path or use another one"}
		}
		remedy := []string{"repair the path or use another one", "if the loss is not congestion, try an algorithm that tolerates it: lklrun --stack bbr"}
		if v.direction == Receives {
			remedy = append(remedy, "to tell loss from reordering, run lklctl explain or ss -ti on the sender")
		}
		return remedy
	case PathRate:
		remedy := []string{}
		if on.Ways[stacknet.Out].Netem.Rate > 0 || on.Ways[stacknet.In].Netem.Rate > 0 {
			remedy = append(remedy, "lklctl path "+l.Interface+" clear")
		} else {
			remedy = append(remedy, "use a faster path, or add a second one with MPTCP: lklrun --stack mptcp with two --if")
		}
		if v.direction == Sends && !f.bbr && f.mean(f.rtt) >= bloat*float64(f.minRTT) {
			remedy = append(remedy, "the queue is too long (bufferbloat); shorten it with fq_codel or cake, or keep it short from here: lklrun --stack bbr")
		}
		return remedy
	case SlowPath:
		return []string{fmt.Sprintf("use %s only if no other path works: --if ...,backup", l.Interface), "or raise the receive buffer of the peer (net.ipv4.tcp_rmem), so that it can hold what waits for the slow path"}
	case CPU:
		if v.last.CPU.Inside {
			return []string{"give the program its own core; with --engine supervise, the stack has a thread of its own"}
		}
		cores := "give the run more or faster cores, and check that nothing else uses them"
		if v.waitsForCore() {
			return []string{cores}
		}
		return []string{cores, "use a larger MTU, or --engine preload if the program permits it"}
	case Gateway:
		return []string{"replace --if user by --if tap:NAME,nat or --if raw:DEV, which have no gateway", "look at the host's connection behind the gateway: ss -ti on the host"}
	}
	return nil
}

// sysctl reports whether the receive buffer is as large as the sysctl permits.
func (v *view) sysctl(f *flow) bool { return v.last.RcvMost > 0 && f.rcvbuf == v.last.RcvMost }

// overtakes reports whether segments overtook each other at least half as often as TCP sent
// some again. If it is rarer, the loss limits the connection. Single events also occur without
// reordering.
func (f *flow) overtakes() bool { return f.reordered > 2 && 2*f.reordered >= f.retrans }

// lost returns the number of segments that were sent again because they were lost. Without
// reordering, the peer receives a segment twice if its acknowledgement is late.
func (f *flow) lost() uint64 {
	if f.overtakes() {
		return f.retrans
	}
	return f.retrans - min(f.retrans, f.duplicates)
}

// reorders reports whether segments overtook each other so often that what TCP sent again had
// mostly not been lost.
func (f *flow) reorders() bool {
	return f.reordered > 0 && f.reordered*20 >= f.segments && 2*f.duplicates >= f.retrans
}

// late reports whether segments arrive late and are not lost.
func (v *view) late(f *flow, on Iface) bool {
	if v.direction == Receives {
		return on.Ways[stacknet.In].Netem.Jitter > 0 && on.Ways[stacknet.In].Netem.Loss == 0
	}
	return f.overtakes() && 2*f.duplicates >= f.retrans
}

// byQdisc reports whether fq, and not the program or BBR, paces a subflow.
func (v *view) byQdisc(f *flow, on Iface) bool {
	return on.Qdisc == "fq" && f.maxPacing == 0 && !f.bbr
}

// starved reports whether the peer's window shrinks because its program does not read. A
// small buffer whose data is read has a window of constant size.
// The kernel also enlarges a window during a transfer, so only a window near zero counts.
func (v *view) starved(f *flow) bool {
	return f.wndLeast < 4*f.mss && f.wndLeast*8 < f.wndMost || f.wndMost < f.mss
}

// asks reports whether the program waits most of the time for what it has sent, to which the
// peer answers.
func (v *view) asks(f *flow) bool {
	return v.direction == Sends && f.busy >= f.idle && v.t.received > 0
}

// program names the process of a connection, if it is known.
func program(c *live.Connection) string {
	if c == nil || c.Process == "" {
		return ""
	}
	return fmt.Sprintf(" (%s(%d))", c.Process, c.PID)
}

// gatewayed reports whether the gateway ends the connection.
func (v *view) gatewayed() bool {
	if _, ok := v.local(); ok {
		return false
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(v.t.flows)), func(f *flow) bool { return v.last.Ifaces[f.iface].Gateway })
}

// headline returns the sentence that names the limit.
func (v *view) headline(l *Limit) string {
	f, share := v.of(l.Interface), percent(l.Share)
	who := v.subject()
	at := ""
	if l.Interface != "" {
		at = " over " + l.Interface
	}
	switch l.Code {
	case Idle:
		return fmt.Sprintf("Nothing limits %s: it was idle.", who)
	case Program:
		if v.computes() {
			return fmt.Sprintf("The program limits %s, %s of the time: it gives the stack too little to send%s.", who, share, lacksCPU)
		}
		if v.asks(f) {
			return fmt.Sprintf("The program limits %s, %s of the time: it sends a request and waits for the answer, at least a round trip of %s. The network would carry more.", who, share, text.Millis(uint64(f.mean(f.rtt))))
		}
		return fmt.Sprintf("The program limits %s, %s of the time: it gives the stack too little to send. The network would carry more.", who, share)
	case Reader:
		if v.computes() {
			return fmt.Sprintf("The program limits %s, %s of the time: it reads too slowly, and the receive window closes%s.", who, share, lacksCPU)
		}
		return fmt.Sprintf("The program limits %s, %s of the time: it reads too slowly, and the receive window closes.", who, share)
	case SendBuffer:
		return fmt.Sprintf("The send buffer limits %s, %s of the time: it is too small for what the path can hold.", who, share)
	case ReceiveBuffer:
		if v.sysctl(f) {
			return fmt.Sprintf("The maximum of net.ipv4.tcp_rmem limits %s, %s of the time: the window that this side advertises is too small for the round-trip time.", who, share)
		}
		return fmt.Sprintf("The receive buffer limits %s, %s of the time: the window that this side advertises is too small for the round-trip time.", who, share)
	case PeerWindow:
		if v.starved(f) {
			return fmt.Sprintf("The peer limits %s, %s of the time: its program reads too slowly, because it lacks CPU time or waits for something else, and its window closes.", who, share)
		}
		return fmt.Sprintf("The peer's receive window limits %s, %s of the time: it is too small for the round-trip time.", who, share)
	case Peer:
		return fmt.Sprintf("The peer, or the path from it, limits %s, %s of the time. This side could receive more.", who, share)
	case Congestion:
		return fmt.Sprintf("The congestion window limits %s%s, %s of the time. Loss is not the cause.", who, at, share)
	case Pacing:
		by := ""
		if v.byQdisc(f, v.last.Ifaces[l.Interface]) {
			by = " by fq"
		}
		return fmt.Sprintf("Pacing%s limits %s%s, %s of the time.", by, who, at, share)
	case Loss:
		on := v.last.Ifaces[l.Interface]
		if v.late(f, on) {
			return fmt.Sprintf("Reordering limits %s%s, %s of the time: segments that overtake each other look like lost ones.", who, at, share)
		}
		if v.direction == Sends && f.overtakes() {
			return fmt.Sprintf("Packet loss and reordering limit %s%s, %s of the time.", who, at, share)
		}
		if in := on.Ways[stacknet.In]; v.direction == Receives && !in.Drop && in.Netem.Loss == 0 && len(v.reasons(f)) == 0 {
			return fmt.Sprintf("Packet loss or reordering limits %s%s, %s of the time.", who, at, share)
		}
		return fmt.Sprintf("Packet loss limits %s%s, %s of the time.", who, at, share)
	case PathRate:
		more := ""
		if rtt := f.mean(f.rtt); v.direction == Sends && rtt >= bloat*float64(f.minRTT) && rtt > float64(f.minRTT) {
			more = fmt.Sprintf(" Its queue adds %s to each round trip (bufferbloat).", text.Millis(uint64(rtt)-f.minRTT))
		}
		return fmt.Sprintf("The path's rate limits %s%s, %s of the time.%s", who, at, share, more)
	case SlowPath:
		return fmt.Sprintf("The slow path over %s limits %s, %s of the time: the other subflows wait for data that is on its way there.", l.Interface, who, share)
	case CPU:
		if v.last.CPU.Inside {
			return fmt.Sprintf("The CPU limits %s, %s of the time: the program, which contains the stack, has no idle time.", who, share)
		}
		if v.waitsForCore() {
			return fmt.Sprintf("The CPU limits %s, %s of the time: the thread of the stack waits for a core, because others use all of them.", who, share)
		}
		return fmt.Sprintf("The CPU limits %s, %s of the time: the thread of the stack has no idle time.", who, share)
	case Gateway:
		if _, _, busy, _, known := v.cores(); known && busy < gatewayFull {
			return fmt.Sprintf("The connection behind lklrun's gateway limits %s%s, %s of the time: the gateway takes no more data.", who, at, share)
		}
		return fmt.Sprintf("The gateway in lklrun limits %s%s, %s of the time: its CPU time is used up.", who, at, share)
	}
	return ""
}

// subject names a connection in a sentence.
func (v *view) subject() string {
	c := &v.t.conn
	preposition := "to"
	if v.direction == Receives {
		preposition = "from"
	}
	kind := "the connection"
	if c.Token != "" {
		kind = "the MPTCP connection"
	}
	who := kind + " " + preposition + " " + c.Remote
	if c.Process != "" {
		who = fmt.Sprintf("%s(%d)'s%s", c.Process, c.PID, strings.TrimPrefix(who, "the"))
	}
	return who
}

// describe sets the text of a connection.
func (c *Connection) describe(v *view) {
	if len(c.Limits) == 0 {
		c.Text = fmt.Sprintf("No limit of %s is known.", v.subject())
		return
	}
	l := &c.Limits[0]
	parts := []string{v.headline(l)}
	if l.Code != Idle {
		verb := "sends"
		if c.Direction == Receives {
			verb = "receives"
		}
		facts := append([]string{fmt.Sprintf("It %s %s", verb, text.Scaled(float64(c.Rate), "bit/s"))}, l.Evidence...)
		parts = append(parts, strings.Join(facts, "; ")+".")
	}
	if len(l.Remedy) > 0 {
		parts = append(parts, "To change that: "+strings.Join(l.Remedy, "; ")+".")
	}
	c.Text = strings.Join(parts, " ")
}
