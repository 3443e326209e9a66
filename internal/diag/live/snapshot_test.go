// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

func known(n uint64) Value { return Value{N: n, Known: true} }

func TestBitRate(t *testing.T) {
	for _, tt := range []struct {
		now, was Value
		took     time.Duration
		want     Value
	}{
		{known(1500), known(500), time.Second, known(8000)},
		{known(1500), known(500), 500 * time.Millisecond, known(16000)},
		{known(500), known(500), time.Second, known(0)},
		{known(499), known(500), time.Second, Value{}}, // the count decreased
		{Value{}, known(500), time.Second, Value{}},
		{known(500), Value{}, time.Second, Value{}},
		{known(500), known(0), 0, Value{}}, // the first snapshot
	} {
		if got := bitRate(tt.now, tt.was, tt.took); got != tt.want {
			t.Errorf("%v after %v in %v: %v, want %v", tt.now, tt.was, tt.took, got, tt.want)
		}
	}
	if f := perSecond(known(3), known(1), 4*time.Second); f == nil || *f != 0.5 {
		t.Errorf("2 in 4 s: %v", f)
	}
	if f := perSecond(known(1), known(3), time.Second); f != nil {
		t.Errorf("a counter that went back: %v", *f)
	}
}

func TestPercent(t *testing.T) {
	at := func(ms int, start uint64) procstat.Process {
		return procstat.Process{CPU: time.Duration(ms) * time.Millisecond, CPUKnown: true, Start: start}
	}
	was := map[int]procstat.Process{1: at(1000, 5), 2: at(9000, 5), 3: at(500, 5)}
	// Process 1 continues, 2 has ended and its PID was reused, 3 has ended, and 4 is
	// new.
	now := map[int]procstat.Process{1: at(1200, 5), 2: at(30, 99), 4: at(70, 100)}
	if f := percent(now, was, 2*time.Second); f == nil || *f != 15 {
		t.Errorf("%v, want 15", f)
	}
	if f := percent(now, was, 0); f != nil {
		t.Errorf("after the first look: %v", *f)
	}
	if f := percent(map[int]procstat.Process{1: {}}, was, time.Second); f != nil {
		t.Errorf("of a process that does not tell: %v", *f)
	}
}

// made returns a sample of n connections, where connection i has sent i times each bytes,
// and one MPTCP connection with two subflows.
func made(at time.Time, n int, each uint64) *sample {
	s := &sample{at: at, release: "6.12", amounts: map[uint64]amount{}, retrans: known(each)}
	s.links = []stacknet.LinkState{
		{Index: 2, Name: "eth0", Flags: unix.IFF_UP | unix.IFF_LOWER_UP, Counters: []stacknet.LinkCounter{{Name: "rx_bytes", N: 10 * each}, {Name: "tx_bytes", N: each}}},
		{Index: 1, Name: "lo", Flags: unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_LOOPBACK, Counters: []stacknet.LinkCounter{{Name: "rx_bytes", N: 1000 * each}}},
		{Index: 3, Name: "eth1", Flags: unix.IFF_UP},
	}
	s.addrs = []stacknet.Address{{IfIndex: 2, Prefix: netip.MustParsePrefix("10.0.0.2/24")}, {IfIndex: 3, Prefix: netip.MustParsePrefix("10.0.1.2/24")}}
	tcp := func(cookie, sent uint64, local string) sockdiag.Socket {
		return sockdiag.Socket{
			Proto: sockdiag.TCP, State: sockdiag.Established, Cookie: cookie,
			Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort("10.0.0.1:80"),
			TCP: &sockdiag.TCPInfo{BytesSent: known(sent), BytesRecv: known(0), TotalRetrans: known(1), PacingRate: known(1000)},
		}
	}
	for i := range n {
		s.conns = append(s.conns, sockdiag.Connection{Socket: tcp(uint64(i+0x1000), uint64(i)*each, fmt.Sprintf("10.0.0.2:%d", 1000+i))})
	}
	m := sockdiag.Connection{Socket: sockdiag.Socket{
		Proto: sockdiag.MPTCP, State: sockdiag.Established, Cookie: 0xabc,
		Local: netip.MustParseAddrPort("10.0.0.2:99"), Remote: netip.MustParseAddrPort("10.0.0.1:80"),
		MPTCP: &sockdiag.MPTCPInfo{Token: known(0x1234), BytesSent: known(1e9 * each), BytesRecv: known(5)},
	}}
	first, second := tcp(0xd, 6e8*each, "10.0.0.2:99"), tcp(0xe, 5e8*each, "10.0.1.2:98")
	first.Subflow = &sockdiag.Subflow{Flags: sockdiag.FlagCapableLocal}
	second.Subflow = &sockdiag.Subflow{Flags: sockdiag.FlagJoinLocal | sockdiag.FlagBackupLocal}
	m.Subflows = []sockdiag.Socket{second, first}
	s.conns = append(s.conns, m)
	for _, c := range s.conns {
		s.amounts[c.Cookie] = bytesOf(c)
		for _, f := range c.Subflows {
			s.amounts[f.Cookie] = bytesOfSubflow(f)
		}
	}
	return s
}

func TestSnapshot(t *testing.T) {
	info := &instance.Info{State: instance.State{Name: "web", Command: []string{"sh", "-c", "a b"}}}
	start := time.Now()
	was := made(start, 250, 1)

	s := newSnapshot(info, was, nil)
	if s.Interval != 0 || s.Totals.RetransRate != nil || s.CPU.Target != nil || s.Totals.TxRate.Known || s.Connections[0].TxRate.Known {
		t.Errorf("the first has rates: %+v", s)
	}
	if len(s.Connections) != MaxConnections || s.Totals.Connections != 251 || s.Totals.Omitted != 51 || s.Totals.Subflows != 2 {
		t.Errorf("%d listed, %+v", len(s.Connections), s.Totals)
	}

	s = newSnapshot(info, made(start.Add(2*time.Second), 250, 2), was)
	if c := s.Connections[0]; c.Token != "00001234" || c.TxRate != known(4e9) || c.RxRate != known(0) || c.Retrans != known(2) {
		t.Errorf("the busiest: %+v", c)
	} else if f := c.Subflows; len(f) != 2 || f[0].ID != "d" || f[0].Iface != "eth0" || f[0].Backup || f[1].Iface != "eth1" || !f[1].Backup || f[1].TxRate != known(2e9) || f[1].PacingRate != known(8000) {
		t.Errorf("its subflows: %+v", f)
	}
	if c := s.Connections[1]; c.ID != "10f9" || c.TxRate != known(4*249) || len(c.Subflows) != 1 || c.Subflows[0].ID != c.ID {
		t.Errorf("the next: %+v", c)
	}
	if n := s.Totals; n.TxRate != known(4) || n.RxRate != known(40) || n.RetransRate == nil || *n.RetransRate != 0.5 {
		t.Errorf("totals, without lo: %+v", n)
	}
	if l := s.Links; len(l) != 3 || l[0].Name != "lo" || l[1].State != "up" || l[2].State != "no carrier" || l[2].RxBytes.Known || l[2].TxRate.Known || l[1].Addrs[0] != "10.0.0.2/24" {
		t.Errorf("interfaces: %+v", l)
	}

	// All bytes of a new connection count as carried since the last snapshot.
	s = newSnapshot(info, made(start.Add(time.Second), 1, 2), &sample{at: start})
	if c := s.Connections[0]; c.TxRate != known(16e9) {
		t.Errorf("one that is new: %+v", c)
	}
	// A reused socket starts counting at zero.
	s = newSnapshot(info, was, made(start.Add(-time.Second), 250, 2))
	for _, c := range s.Connections {
		if c.TxRate.Known && c.TxRate.N != 0 {
			t.Errorf("went back: %+v", c)
		}
	}

	b, err := json.Marshal(newSnapshot(info, was, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"bit_s\":0", "null", "percent", "interval_s"} {
		if strings.Contains(string(b), absent) {
			t.Errorf("%s in the JSON of a first snapshot: %s", absent, b[:2000])
		}
	}
}

func TestHistory(t *testing.T) {
	h := NewHistory(3)
	for i := range uint64(5) {
		s := &Snapshot{Totals: Totals{TxRate: known(i), RxRate: known(100)}, Links: []Link{{Name: "eth0"}}}
		if i < 4 {
			s.Connections = []Connection{{ID: "1", TxRate: known(i), Subflows: []Subflow{{ID: "1"}, {ID: "2", RxRate: known(7)}}}}
		}
		if i == 3 {
			s.Connections[0].TxRate = Value{}
		}
		h.Add(s)
		if got := fmt.Sprint(h.Rates("1")); i == 3 && got != "[{1 true} {2 true} {0 false}]" {
			t.Errorf("a connection: %s", got)
		}
	}
	if got := fmt.Sprint(h.Rates("")); got != "[{102 true} {103 true} {104 true}]" {
		t.Errorf("the totals: %s", got)
	}
	if got := h.Rates(LinkKey("eth0")); len(got) != 3 || got[0].Known {
		t.Errorf("an interface without rates: %v", got)
	}
	if h.Rates("1") != nil || h.Rates("2") != nil || len(h.series) != 2 {
		t.Errorf("what is gone is remembered: %v", h.series)
	}
}

// The totals count each byte once: neither VLANs, whose bytes their device counts too, nor
// the helper devices of lklctl path, which the list does not contain.
func TestTotals(t *testing.T) {
	at := func(seconds int, bytes uint64) *sample {
		s := &sample{at: time.Unix(1000+int64(seconds), 0), opened: known(10 * bytes)}
		for n, kind := range []string{"", "vlan", "ifb"} {
			s.links = append(s.links, stacknet.LinkState{
				Index: n + 2, Name: []string{"eth0", "eth0.5", "eth0-out"}[n], Type: unix.ARPHRD_ETHER, Kind: kind,
				Counters: []stacknet.LinkCounter{{Name: "rx_bytes", N: bytes}, {Name: "tx_bytes", N: 3 * bytes}},
			})
		}
		return s
	}
	s := newSnapshot(&instance.Info{}, at(2, 200), at(0, 100))
	if s.Totals.RxRate != known(400) || s.Totals.TxRate != known(1200) || s.Totals.OpenedRate == nil || *s.Totals.OpenedRate != 500 {
		t.Errorf("totals: %+v", s.Totals)
	}
	if len(s.Links) != 2 || s.Links[1].Name != "eth0.5" || s.Links[1].RxRate != known(400) {
		t.Errorf("links: %+v", s.Links)
	}
}
