// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

var update = flag.Bool("update", false, "update the golden file")

func known(n uint64) sockdiag.Value { return sockdiag.Known(n) }

const (
	local  = "10.0.0.1:40000"
	remote = "10.0.0.2:443"
	every  = 100 * time.Millisecond
)

// made makes n readings of one connection over eth0. change sets what differs at reading k.
func made(n int, change func(k uint64, i *sockdiag.TCPInfo, r *Reading)) *Judge {
	j := &Judge{}
	for k := range uint64(n) {
		i := &sockdiag.TCPInfo{
			RTT: known(20000), MinRTT: known(20000), Cwnd: known(40), Unacked: known(10), SndMSS: known(1448), SndWnd: known(60000), RcvWnd: known(60000),
			Busy: known(k * 100000), RwndLimited: known(0), SndbufLimited: known(0), TotalRetrans: known(0), RcvOOO: known(0),
			BytesSent: known(k * 125000), BytesRecv: known(0), DataSegsOut: known(k * 90), DataSegsIn: known(0),
		}
		sock := sockdiag.Socket{Proto: sockdiag.TCP, State: sockdiag.Established, Congestion: "cubic", TCP: i, Cookie: 7, Processes: []sockdiag.Process{{PID: 42, Comm: "curl"}},
			Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), Memory: &sockdiag.MemInfo{Sndbuf: known(87040), Rcvbuf: known(131072)}}
		r := &Reading{At: time.Unix(1000, 0).Add(time.Duration(k) * every), Ifaces: map[string]Iface{"eth0": {Qdisc: "fq_codel"}},
			CPU: Usage{Known: true, Stack: time.Duration(k) * every / 10, Gateway: time.Duration(k) * every / 100, Target: time.Duration(k) * every / 20}}
		change(k, i, r)
		if i.PacingRate.Known {
			sock.BBR, sock.Congestion = &sockdiag.BBRInfo{}, "bbr"
		}
		c := live.Connection{ID: "7", Proto: "tcp", Local: local, Remote: remote, Process: "curl", PID: 42, BytesSent: i.BytesSent, BytesReceived: i.BytesRecv,
			Subflows: []live.Subflow{{ID: "7", Iface: "eth0"}}}
		if len(r.Conns) == 1 { // change has set the queue or the buffers
			sock.RecvQ = r.Conns[0].Sockets.RecvQ
			if m := r.Conns[0].Sockets.Memory; m != nil {
				sock.Memory = m
			}
		}
		c.Sockets.Socket = sock
		r.Conns = []live.Connection{c}
		j.Add(r)
	}
	return j
}

// on changes the interface of a reading.
func on(r *Reading, change func(*Iface)) {
	i := r.Ifaces["eth0"]
	change(&i)
	r.Ifaces["eth0"] = i
}

// cases are made-up situations, each with the limit that must come first.
var cases = []struct {
	name   string
	want   Code
	change func(k uint64, i *sockdiag.TCPInfo, r *Reading)
}{
	{"program", Program, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) { i.Busy = known(k * 5000) }},
	{"answers", Program, func(uint64, *sockdiag.TCPInfo, *Reading) {}},
	{"idle", Idle, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Busy, i.BytesSent, i.Unacked = known(0), known(0), known(0)
	}},
	{"send buffer of the kernel", SendBuffer, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) { i.SndbufLimited = known(k * 90000) }},
	{"large writes into a small send buffer", SendBuffer, func(_ uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.Unacked = known(38)
		r.Conns = []live.Connection{{Sockets: sockdiag.Connection{Socket: sockdiag.Socket{Memory: &sockdiag.MemInfo{Sndbuf: known(16384), WmemQueued: known(60000)}}}}}
	}},
	{"a full send buffer, and data that the window holds back", Congestion, func(_ uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.Unacked, i.NotSent = known(40), known(99999)
		r.Conns = []live.Connection{{Sockets: sockdiag.Connection{Socket: sockdiag.Socket{Memory: &sockdiag.MemInfo{Sndbuf: known(150000), WmemQueued: known(160000)}}}}}
	}},
	{"slow peer", PeerWindow, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.RwndLimited, i.SndWnd = known(k*80000), known(k%3*30000)
	}},
	{"small window", PeerWindow, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) { i.RwndLimited = known(k * 80000) }},
	{"less than a segment waits for an acknowledgement", Program, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.BytesSent, i.RTT, i.MinRTT, i.Unacked, i.NotSent = known(k*90000), known(31000), known(30000), known(1), known(1000)
	}},
	{"congestion window", Congestion, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) { i.Unacked, i.NotSent = known(40), known(99999) }},
	{"congestion window, and one lost segment", Congestion, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Unacked, i.TotalRetrans, i.CAState = known(40), known(min(1, k/10)), known(3)
	}},
	{"late acknowledgements", Congestion, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.TotalRetrans, i.DSACKDups, i.Unacked, i.NotSent = known(k), known(k), known(40), known(99999)
	}},
	{"pacing", Pacing, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) { i.MaxPacingRate = known(1250000) }},
	{"loss beyond", Loss, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.TotalRetrans, i.Unacked, i.NotSent = known(k/2), known(40), known(99999)
	}},
	{"loss in the stack", Loss, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.TotalRetrans, i.Unacked, i.NotSent = known(k), known(40), known(99999)
		r.Drops = []drops.Record{{Kind: drops.Drop, Reason: "NEIGH_FAILED", Interface: "eth0", Time: r.At.Add(-time.Millisecond), Source: netip.MustParseAddrPort(local), Destination: netip.MustParseAddrPort(remote)}}
	}},
	{"loss by lklctl path", Loss, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.TotalRetrans, i.Unacked, i.NotSent = known(k), known(40), known(99999)
		on(r, func(f *Iface) {
			f.Ways[stacknet.Out] = stacknet.Impairment{Netem: stacknet.Netem{Loss: 0.01}, Dropped: uint32(k)}
		})
	}},
	{"bufferbloat", PathRate, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.RTT, i.TotalRetrans, i.Unacked, i.NotSent = known(400000), known(k/10), known(40), known(99999)
	}},
	{"rate of lklctl path", PathRate, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		on(r, func(f *Iface) {
			f.TxBytes, f.Ways[stacknet.Out].Netem.Rate = k*125000, 10000000
		})
	}},
	{"cpu", CPU, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		r.CPU.Stack, r.CPU.StackWait = time.Duration(k)*every*8/10, time.Duration(k)*every*2/10
	}},
	{"a core that others use", CPU, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		r.CPU.Stack, r.CPU.StackWait = time.Duration(k)*every*1/10, time.Duration(k)*every*9/10
	}},
	{"gateway", Gateway, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		on(r, func(f *Iface) { f.Gateway = true })
		r.CPU.Gateway = time.Duration(k) * every * 9 / 10
	}},
	{"late acknowledgements of the gateway", Gateway, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		on(r, func(f *Iface) { f.Gateway = true })
		r.CPU.Gateway = time.Duration(k) * every * 9 / 10
		i.TotalRetrans, i.Unacked, i.NotSent = known(k), known(40), known(99999)
	}},
	{"loss on the way to the gateway", Loss, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		on(r, func(f *Iface) { f.Gateway, f.Ways[stacknet.Out].Netem.Loss = true, 0.01 })
		r.CPU.Gateway = time.Duration(k) * every * 9 / 10
		i.TotalRetrans, i.Unacked, i.NotSent = known(k), known(40), known(99999)
	}},
	{"behind the gateway", Gateway, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		on(r, func(f *Iface) { f.Gateway = true })
		i.RwndLimited = known(k * 90000)
	}},
	{"slow reader", Reader, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		receives(k, i)
		i.RcvWnd = known(1000)
		r.Conns = []live.Connection{{Sockets: sockdiag.Connection{Socket: sockdiag.Socket{RecvQ: known(64000)}}}}
	}},
	{"small receive buffer", ReceiveBuffer, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		receives(k, i)
		i.RcvWnd = known(26000)
	}},
	{"loss on the way here", Loss, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		receives(k, i)
		i.RcvWnd, i.RcvOOO = known(900000), known(k/3*5)
	}},
	{"unanswered", Silent, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Retransmits, i.BytesAcked, i.LastAck = known(3), known(100000), known(4000)
	}},
	{"unanswered once", Program, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Retransmits, i.BytesAcked = known(1), known(100000)
	}},
	{"black hole", PathMTU, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Retransmits, i.BytesAcked, i.LastAck, i.PMTU = known(3), known(1), known(4000), known(1500)
	}},
	{"small requests, then a black hole", PathMTU, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Retransmits, i.LastAck, i.PMTU = known(3), known(4000), known(1500)
		i.BytesSent, i.BytesAcked, i.Delivered, i.BytesRetrans = known(10000+13*1448), known(10000), known(50), known(3*1448)
	}},
	{"large data, then no answer", Silent, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Retransmits, i.LastAck, i.PMTU = known(3), known(4000), known(1500)
		i.BytesSent, i.BytesAcked, i.Delivered, i.BytesRetrans = known(100000+13*1448), known(100000), known(70), known(3*1448)
	}},
	{"small data, then no answer", Silent, func(_ uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Retransmits, i.LastAck, i.PMTU, i.Unacked = known(3), known(4000), known(1500), known(1)
		i.BytesSent, i.BytesAcked, i.Delivered, i.BytesRetrans = known(10400), known(10000), known(50), known(300)
	}},
	{"the stack's own drops", OwnDrop, func(_ uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.Retransmits, i.BytesAcked, i.LastAck = known(3), known(100000), known(4000)
		r.Drops = []drops.Record{{Kind: drops.Drop, Reason: "NETFILTER_DROP", Meaning: drops.Meaning("NETFILTER_DROP"), Interface: "eth0", Time: r.At, Source: netip.MustParseAddrPort(local), Destination: netip.MustParseAddrPort(remote)}}
	}},
	{"two small writes", Nagle, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.BytesSent, i.RTT, i.MinRTT, i.Unacked, i.NotSent = known(k*9000), known(40000), known(100), known(1), known(80)
	}},
	{"two small writes over a long path", Nagle, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.BytesSent, i.RTT, i.MinRTT, i.Unacked, i.NotSent = known(k*9000), known(40000), known(38000), known(1), known(80)
	}},
	{"small writes that do not wait", Program, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.BytesSent, i.RTT, i.MinRTT, i.Unacked = known(k*9000), known(12000), known(10000), known(2)
	}},
	{"requests and answers", Program, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.BytesSent, i.BytesRecv, i.RTT, i.MinRTT, i.Unacked = known(k*90), known(k*80), known(52000), known(50000), known(1)
	}},
	{"a stopped program", Stopped, func(_ uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.Busy, i.BytesSent = known(0), known(80)
		r.CPU.Stopped = map[int]bool{42: true}
	}},
	{"a program that was stopped", Program, func(k uint64, _ *sockdiag.TCPInfo, r *Reading) {
		r.CPU.Stopped = map[int]bool{42: k < 3}
	}},
	{"no answer", Answer, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Busy, i.BytesSent, i.Unacked, i.LastSent, i.LastRecv = known(0), known(80), known(0), known(4000), known(4100)
	}},
	{"an answer", Idle, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.Busy, i.BytesSent, i.BytesRecv, i.Unacked, i.LastSent, i.LastRecv = known(0), known(80), known(80), known(0), known(4100), known(4000)
	}},
	{"a lossy wire", Loss, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.TotalRetrans, i.Unacked, i.NotSent = known(k), known(40), known(99999)
		on(r, func(f *Iface) { f.Ways[stacknet.In].Netem.Loss = 0.01 })
	}},
	{"reordering", Loss, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.TotalRetrans, i.Unacked, i.NotSent, i.ReordSeen, i.DSACKDups = known(k), known(40), known(99999), known(k), known(k)
	}},
	{"loss, and one segment that overtook others", Loss, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.TotalRetrans, i.Unacked, i.NotSent, i.ReordSeen, i.DSACKDups = known(k), known(40), known(99999), known(min(k, 1)), known(k*3/4)
	}},
	{"reordering, with other round-trip times", Loss, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.RTT, i.TotalRetrans, i.Unacked, i.NotSent, i.ReordSeen, i.DSACKDups = known(45000), known(k/2), known(40), known(99999), known(9*k), known(k/2)
	}},
	{"a long round trip that this connection does not cause", Program, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		i.RTT, i.Unacked = known(60000), known(2)
	}},
	{"BBR with little data", Program, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) { bbr(i) }},
	{"BBR and a slow path", PathRate, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		bbr(i)
		i.NotSent = known(99999)
		if k%2 == 0 {
			i.RTT = known(45000)
		}
		on(r, func(f *Iface) { f.Qdisc, f.Backlog = "fq", 6000 })
	}},
	{"BBR and some loss", Congestion, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		bbr(i)
		i.NotSent, i.TotalRetrans, i.PacingRate = known(99999), known(k), known(1<<40)
		on(r, func(f *Iface) { f.Qdisc = "fq" })
	}},
	{"BBR and much loss", Loss, func(k uint64, i *sockdiag.TCPInfo, r *Reading) {
		bbr(i)
		i.NotSent, i.TotalRetrans = known(99999), known(k*20)
	}},
	{"fq, and a full congestion window", Congestion, func(_ uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.NotSent, i.Unacked = known(99999), known(40)
		on(r, func(f *Iface) { f.Qdisc, f.Backlog = "fq", 30000 })
	}},
	{"pacing by fq", Pacing, func(_ uint64, i *sockdiag.TCPInfo, r *Reading) {
		i.NotSent = known(99999)
		on(r, func(f *Iface) { f.Qdisc, f.Backlog = "fq", 30000 })
	}},
	{"peer", Peer, func(k uint64, i *sockdiag.TCPInfo, _ *Reading) {
		receives(k, i)
		i.RcvWnd = known(900000)
	}},
}

// bbr makes BBR pace a connection at the rate at which it sends.
func bbr(i *sockdiag.TCPInfo) { i.PacingRate = known(1250000) }

// receives turns the connection around.
func receives(k uint64, i *sockdiag.TCPInfo) {
	i.Busy, i.BytesSent, i.BytesRecv, i.DataSegsOut, i.DataSegsIn, i.RcvRTT = known(0), known(0), known(k*125000), known(0), known(k*90), known(20000)
}

// TestJudge checks the first limit of each made-up situation, and the words of all.
func TestJudge(t *testing.T) {
	var b strings.Builder
	for _, tt := range cases {
		r := made(21, tt.change).Report()
		if len(r.Connections) != 1 || len(r.Connections[0].Limits) == 0 {
			t.Errorf("%s: %+v", tt.name, r)
			continue
		}
		c := r.Connections[0]
		if l := c.Limits[0]; l.Code != tt.want || l.Share < 0.5 {
			t.Errorf("%s: the first limit is %s, %.2f of the time; want %s", tt.name, l.Code, l.Share, tt.want)
		}
		var sum float64
		for _, l := range c.Limits {
			sum += l.Share
		}
		if sum < 0.97 || sum > 1.03 {
			t.Errorf("%s: the shares add up to %v", tt.name, sum)
		}
		fmt.Fprintf(&b, "%s\n\n    %s\n\n", tt.name, strings.ReplaceAll(c.Text, ". ", ".\n    "))
	}
	golden(t, "testdata/texts.golden", b.String())
}

// golden compares text with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +now):\n%s", path, diff)
	}
}

// An MPTCP connection whose window is full waits for the slow path.
func TestJudgeSlowPath(t *testing.T) {
	for _, inFlight := range []uint64{0, 5} {
		j := &Judge{}
		for k := range uint64(21) {
			c := live.Connection{ID: "1", Proto: "mptcp", Remote: remote, Token: "00000001", BytesSent: known(k * 125000)}
			c.Sockets.Proto = sockdiag.MPTCP
			c.Sockets.MPTCP = &sockdiag.MPTCPInfo{WriteSeq: known(k*125000 + 60000), SndUna: known(k * 125000)}
			for n, i := range []*sockdiag.TCPInfo{
				{RTT: known(10000), Busy: known(k * 30000), BytesSent: known(k * 120000)},
				{RTT: known(500000), Busy: known(k * 100000), Unacked: known(inFlight), BytesSent: known(k * 5000)},
			} {
				i.SndWnd, i.Cwnd, i.SndMSS = known(65000), known(40), known(1448)
				id := fmt.Sprint(n)
				c.Subflows = append(c.Subflows, live.Subflow{ID: id, Iface: "eth" + id})
				c.Sockets.Subflows = append(c.Sockets.Subflows, sockdiag.Socket{Proto: sockdiag.TCP, TCP: i, Iface: "eth" + id})
			}
			j.Add(&Reading{At: time.Unix(1000, 0).Add(time.Duration(k) * every), Conns: []live.Connection{c}})
		}
		want := map[uint64]Code{0: PeerWindow, 5: SlowPath}[inFlight]
		l := j.Report().Connections[0].Limits[0]
		if l.Code != want || want == SlowPath && l.Interface != "eth1" {
			t.Errorf("with %d segments on the slow path: %+v, want %s", inFlight, l, want)
		}
	}
}

// A subflow without loss does not hide the loss of another one.
func TestJudgeLossySubflow(t *testing.T) {
	j := &Judge{}
	for k := range uint64(21) {
		c := live.Connection{ID: "1", Proto: "mptcp", Remote: remote, Token: "00000001", BytesSent: known(k * 20000)}
		c.Sockets.Proto = sockdiag.MPTCP
		for n, retrans := range []uint64{0, k} {
			id := fmt.Sprint(n)
			c.Subflows = append(c.Subflows, live.Subflow{ID: id, Iface: "eth" + id})
			c.Sockets.Subflows = append(c.Sockets.Subflows, sockdiag.Socket{Proto: sockdiag.TCP, Iface: "eth" + id, TCP: &sockdiag.TCPInfo{
				RTT: known(10000), MinRTT: known(10000), Busy: known(k * 100000 * uint64(n)), BytesSent: known(k * 10000), DataSegsOut: known(k * 10), TotalRetrans: known(retrans),
				SndMSS: known(1448), Cwnd: known(10), Unacked: known(10 * uint64(n))}})
		}
		j.Add(&Reading{At: time.Unix(1000, 0).Add(time.Duration(k) * every), Conns: []live.Connection{c}})
	}
	limits := j.Report().Connections[0].Limits
	if l := limits[0]; l.Code != Loss && limits[1].Code != Loss || slices.ContainsFunc(limits, func(l Limit) bool { return l.Code == Congestion }) {
		t.Errorf("%+v", limits)
	}
}

// A selected connection comes before causes that may concern others.
func TestDescribeSelection(t *testing.T) {
	r := made(21, func(uint64, *sockdiag.TCPInfo, *Reading) {}).Report()
	r.Findings = []Finding{{ListenerFull, "A listener is full."}}
	for selection, first := range map[bool]string{false: "A listener", true: "The program limits curl"} {
		if r.Describe(selection); !strings.HasPrefix(r.Text, first) || !strings.Contains(r.Text, "A listener is full.") {
			t.Errorf("selection %v: %s", selection, r.Text)
		}
	}
}

// The memory of a Judge is bounded, and a report names what it has not seen.
func TestJudgeForgets(t *testing.T) {
	j := &Judge{}
	for k := range 3 * tracksMost {
		c := live.Connection{ID: fmt.Sprint(k), Proto: "tcp", Remote: remote, BytesSent: known(uint64(k))}
		j.Add(&Reading{At: time.Unix(1000+int64(k), 0), Conns: []live.Connection{c}, Opened: uint64(k)})
	}
	r := j.Report()
	if len(j.tracks) > tracksMost || len(r.Connections) > tracksMost || r.Unseen < tracksMost {
		t.Errorf("%d tracks, %d connections, %d unseen", len(j.tracks), len(r.Connections), r.Unseen)
	}
	if s := r.Shortened(); len(s.Connections) != recordedMost {
		t.Errorf("an answer has %d connections", len(s.Connections))
	}
	if r := (&Judge{}).Report(); r.Connections == nil || len(r.Connections) != 0 {
		t.Errorf("without a reading: %+v", r)
	}
}
