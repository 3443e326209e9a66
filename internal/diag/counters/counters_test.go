// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

var parsers = map[string]func(string) (Set, error){
	"paired": parsePaired, "single": parseSingle, "sockstat": parseSockstat, "softnet": parseSoftnet,
}

func TestParsers(t *testing.T) {
	for name, parse := range parsers {
		for _, text := range []string{"x", "Tcp: A B\nTcp: 1\nlo: 1\n", "Tcp: A\nUdp: 1\nlo: x", "a\nb\nc: 1 2 3\n", "u v w x\n"} {
			if got, err := parse(text); err == nil {
				t.Errorf("%s read %q as %v", name, text, got)
			}
		}
	}
	var all Set
	for _, src := range []struct{ parser, text string }{
		{"paired", "Ip: Forwarding TTL\nIp: 1 64\nTcp: MaxConn\nTcp: -1\n"},
		{"single", "Icmp6OutType135    \t12\n"},
		{"sockstat", "sockets: used 7\nTCP: inuse 2 mem 3\n"},
		{"softnet", "0000000a 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000005 00000001 00000002 00000003\n"},
	} {
		some, err := parsers[src.parser](src.text)
		if err != nil {
			t.Fatal(src.parser, err)
		}
		all = append(all, some...)
	}
	for name, want := range map[string]struct {
		value, base string
		kind        Kind
	}{
		"IpForwarding":              {"1", "IpForwarding", Gauge},
		"IpTTL":                     {"64", "IpTTL", Count},
		"TcpMaxConn":                {"-1", "TcpMaxConn", Gauge},
		"Icmp6OutType135":           {"12", "Icmp6OutTypeN", Count},
		"sockstat.sockets_used":     {"7", "sockstat.sockets_used", Gauge},
		"sockstat.TCP_mem":          {"3", "sockstat.TCP_mem", Gauge},
		"softnet1.processed":        {"10", "softnet.processed", Count},
		"softnet1.process_backlog":  {"3", "softnet.process_backlog", Gauge},
		"softnet1.flow_limit_count": {"0", "softnet.flow_limit_count", Count},
	} {
		i := slices.IndexFunc(all, func(c Counter) bool { return c.Name == name })
		if i < 0 || all[i].Value.String() != want.value || all[i].Base != want.base || all[i].Kind != want.kind {
			t.Errorf("%s: %+v, want %v", name, all, want)
		}
	}
}

// link makes an RTM_NEWLINK with two statistics.
func link(t *testing.T, index uint32, name string) netlink.Message {
	t.Helper()
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], index)
	b = append(b, encode(t, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		stats := binary.NativeEndian.AppendUint64(nil, 5)
		ae.Bytes(unix.IFLA_STATS64, binary.NativeEndian.AppendUint64(stats, 1<<63))
		ae.Uint32(unix.IFLA_CARRIER_CHANGES, 2)
	})...)
	return netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: b}
}

func encode(t *testing.T, fill func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// qdiscMessage makes an RTM_NEWQDISC for the interface with this index.
func qdiscMessage(t *testing.T, index, handle, parent uint32, kind string, app []byte) []byte {
	t.Helper()
	b := make([]byte, sizeofTcMsg)
	binary.NativeEndian.PutUint32(b[4:], index)
	binary.NativeEndian.PutUint32(b[8:], handle)
	binary.NativeEndian.PutUint32(b[12:], parent)
	stats := encode(t, func(ae *netlink.AttributeEncoder) {
		basic := binary.NativeEndian.AppendUint64(nil, 1000)
		ae.Bytes(tcaStatsBasic, binary.NativeEndian.AppendUint32(basic, 10))
		ae.Uint64(tcaStatsPkt64, 1<<32+10)
		var queue []byte
		for n := range 5 {
			queue = binary.NativeEndian.AppendUint32(queue, uint32(n))
		}
		ae.Bytes(tcaStatsQueue, queue)
		if app != nil {
			ae.Bytes(tcaStatsApp, app)
		}
	})
	return append(b, encode(t, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.TCA_KIND, kind)
		ae.Bytes(unix.TCA_STATS2, stats)
	})...)
}

func TestDevices(t *testing.T) {
	l, err := stacknet.ParseLink(link(t, 2, "eth0.7"))
	if err != nil || l.Name != "eth0.7" {
		t.Fatal(l, err)
	}
	all, names := ofLink(l), map[uint32]string{2: l.Name}
	for _, m := range [][]byte{
		qdiscMessage(t, 2, 0x80010000, 0xFFFFFFFF, "fq", binary.NativeEndian.AppendUint64(nil, 9)), // from an old kernel
		qdiscMessage(t, 2, 0, 0x10002, "pfifo", nil),
		qdiscMessage(t, 2, 0xFFFF0000, 0xFFFFFFF1, "ingress", nil),
		qdiscMessage(t, 3, 0, 0xFFFFFFFF, "pfifo", nil), // belongs to an interface that was added later
	} {
		some, err := parseQdisc(m, names)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	for name, want := range map[string]string{
		"eth0.7.rx_packets": "5", "eth0.7.tx_packets": "9223372036854775808", "eth0.7.carrier_changes": "2",
		"eth0.7.qdisc.root.bytes": "1000", "eth0.7.qdisc.root.packets": "4294967306", "eth0.7.qdisc.root.drops": "2",
		"eth0.7.qdisc.root.gc_flows": "9", "eth0.7.qdisc.1:2.overlimits": "4", "eth0.7.qdisc.ingress.qlen": "0",
	} {
		if v, ok := all.Get(name); !ok || v.String() != want {
			t.Errorf("%s: %v %v, want %s", name, v, ok, want)
		}
	}
	for _, gone := range []string{"eth0.7.rx_bytes", "eth0.7.qdisc.root.throttled", "eth0.7.qdisc.1:2.gc_flows"} {
		if v, ok := all.Get(gone); ok {
			t.Errorf("%s is not known, and shown as %v", gone, v)
		}
	}
	for _, c := range all {
		if _, ok := Explain(c.Base); !ok || BaseOf(c.Name) != c.Base {
			t.Errorf("%s: base %s", c.Name, c.Base)
		}
	}
}

func TestEngine(t *testing.T) {
	all := engine(engineStats)
	want := []string{"engine.sockets.open", "engine.process.received", "engine.process.peer", "engine.process.fallback-peer", "engine.hosted", "engine.hosted.elsewhere"}
	for i, c := range all {
		if _, ok := Explain(c.Name); c.Base != want[i] || !ok {
			t.Errorf("%s: base %s, explained %v", c.Name, c.Base, ok)
		}
	}
}

func TestChanges(t *testing.T) {
	count := func(name, value string) Counter {
		v, err := ParseValue(value)
		if err != nil {
			t.Fatal(err)
		}
		return named(name, v)
	}
	start := time.Unix(1000, 0)
	before := Take(Set{count("TcpInSegs", "10"), count("TcpCurrEstab", "5"), count("TcpOutSegs", "18446744073709551615"), count("TcpOutRsts", "9")}, start)
	path := t.TempDir() + "/counters.json"
	if _, ok, err := Load(path); ok || err != nil {
		t.Errorf("none yet: %v, %v", ok, err)
	}
	if err := before.Store(path); err != nil {
		t.Fatal(err)
	}
	before, ok, err := Load(path)
	if err != nil || !ok || !before.Time.Equal(start) {
		t.Fatalf("%v %v %v", before, ok, err)
	}
	now := Set{count("TcpInSegs", "15"), count("TcpCurrEstab", "3"), count("TcpOutSegs", "18446744073709551615"), count("TcpOutRsts", "2"), count("TcpInErrs", "4"), count("IpForwarding", "2")}
	got := before.Since(now, start.Add(2*time.Second))
	for i, want := range []struct {
		difference int64
		rate       string
	}{{5, "2.5"}, {-2, "null"}, {0, "0"}, {2, "1"}, {4, "2"}, {0, "null"}} {
		rate, _ := json.Marshal(got[i].PerSecond)
		if got[i].Difference != want.difference || string(rate) != want.rate {
			t.Errorf("%s: %d, %s a second, want %v", got[i].Name, got[i].Difference, rate, want)
		}
	}
	for _, c := range (Reading{}).Since(now, start) {
		if c.PerSecond != nil || c.Kind == Gauge && c.Difference != 0 {
			t.Errorf("without an earlier reading: %s %+v", c.Name, c.Change)
		}
	}
}

// The file must be sorted, contain sentences, and refer only to existing
// counters.
func TestExplanations(t *testing.T) {
	var keys []string
	for line := range strings.Lines(explainText) {
		if !strings.HasPrefix(line, "#") {
			keys = append(keys, strings.Split(line, "\t")[0])
		}
	}
	if !slices.IsSorted(keys) {
		t.Error("explain.txt is not sorted (LC_ALL=C sort)")
	}
	all := ExplainAll(nil)
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.Name] {
			t.Errorf("%s is explained twice", e.Name)
		}
		seen[e.Name] = true
		if !strings.HasSuffix(e.Meaning, ".") || len(e.Meaning) > 240 {
			t.Errorf("%s: no short sentence: %s", e.Name, e.Meaning)
		}
		for _, r := range e.Related {
			if _, ok := Explain(r); !ok {
				t.Errorf("%s: related %s is not explained", e.Name, r)
			}
		}
	}
	for base := range gauges {
		if !seen[base] {
			t.Errorf("gauge %s is not explained", base)
		}
	}
	if got := ExplainAll([]string{"eth0.qdisc.1:2.drops"}); len(got) != 1 || got[0].Name != "qdisc.drops" {
		t.Errorf("of one qdisc: %v", got)
	}
	if got := ExplainAll([]string{"mptcpext*join*hmac*"}); len(got) != 2 {
		t.Errorf("a pattern: %v", got)
	}
	if got := ExplainAll([]string{"NoSuch"}); got != nil {
		t.Errorf("none: %v", got)
	}
}

func FuzzCounters(f *testing.F) {
	f.Add("Ip: Forwarding TTL\nIp: 1 64\nTcp: MaxConn\nTcp: -1\n")
	f.Add("Ip6InReceives                   \t12\n")
	f.Add("sockets: used 7\nTCP: inuse 2 mem 3\n")
	f.Add("0000000a 00000001 00000002\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range parsers {
			all, err := parse(text)
			if err != nil {
				continue
			}
			for _, c := range all {
				if b, err := json.Marshal(c.Value); err != nil || !json.Valid(b) {
					t.Errorf("%q is no JSON: %s, %v", text, b, err)
				}
			}
		}
	})
}

func FuzzDevices(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseQdisc(b, map[uint32]string{0: "eth0"})
	})
}
