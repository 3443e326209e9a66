// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/test/kit"
)

// numbers are counters by their lklctl names.
type numbers map[string]int64

// counters returns the counters that lklctl prints.
func (b *busy) counters() numbers {
	b.Helper()
	return parseJSON[numbers](b.T, b.ctl("counters", "-o", "json"))
}

func parseJSON[V any](t *testing.T, text string) (v V) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// nstat returns what nstat(8) -asz -j prints.
func (b *busy) nstat() numbers {
	b.Helper()
	return parseJSON[map[string]numbers](b.T, b.ctl("exec", "--", "nstat", "-asz", "-j"))["kernel"]
}

// ipLink returns what ip(8) prints about interfaces, by the names in struct
// rtnl_link_stats64. -s -s shows all of them.
func (b *busy) ipLink() numbers {
	b.Helper()
	type half map[string]int64
	all := numbers{}
	for _, l := range parseJSON[[]struct {
		Name  string                `json:"ifname"`
		Stats struct{ Rx, Tx half } `json:"stats64"`
	}](b.T, b.ctl("exec", "--", "ip", "-s", "-s", "-j", "link")) {
		plain := map[string]string{"rx multicast": "multicast", "tx collisions": "collisions", "tx carrier_changes": "carrier_changes"}
		for way, h := range map[string]half{"rx": l.Stats.Rx, "tx": l.Stats.Tx} {
			for field, n := range h {
				name, known := plain[way+" "+field]
				if !known {
					name = way + "_" + field
				}
				all[l.Name+"."+name] = n
			}
		}
	}
	return all
}

// tcQdisc returns what tc(8) prints about qdiscs, including some counters of fq.
func (b *busy) tcQdisc() numbers {
	b.Helper()
	all := numbers{}
	for _, q := range parseJSON[[]map[string]any](b.T, b.ctl("exec", "--", "tc", "-s", "-j", "qdisc")) {
		place, _ := q["parent"].(string)
		if q["root"] == true {
			place = "root"
		}
		own := map[string]string{"inactive": "inactive_flows", "gc": "gc_flows"} // only fq has these
		for _, field := range []string{"bytes", "packets", "drops", "overlimits", "requeues", "backlog", "qlen", "flows", "inactive", "gc"} {
			if n, ok := q[field].(float64); ok {
				all[fmt.Sprintf("%s.qdisc.%s.%s", q["dev"], place, cmp.Or(own[field], field))] = int64(n)
			}
		}
	}
	return all
}

// netTools returns what netstat(8) -s of net-tools prints, for the counters that have
// the same names.
func (b *busy) netTools() numbers {
	b.Helper()
	names := map[string]string{
		"total packets received": "IpInReceives", "incoming packets delivered": "IpInDelivers", "requests sent out": "IpOutRequests",
		"active connection openings": "TcpActiveOpens", "passive connection openings": "TcpPassiveOpens", "segments received": "TcpInSegs",
		"segments sent out": "TcpOutSegs", "segments retransmitted": "TcpRetransSegs", "resets sent": "TcpOutRsts", "packets received": "UdpInDatagrams",
		"connections established": "TcpCurrEstab",
	}
	all := numbers{}
	for _, l := range kit.Lines(b.ctl("exec", "--", "netstat", "-s")) {
		n, words, _ := strings.Cut(strings.TrimSpace(l), " ")
		if name, ok := names[words]; ok {
			all[name], _ = strconv.ParseInt(n, 10, 64)
		}
	}
	return all
}

// TestCountersAgree checks that each counter in another tool's output lies between the
// values that lklctl prints before and after. A gauge is compared only if lklctl's two
// values are equal. Even then it may have changed in between.
func TestCountersAgree(t *testing.T) {
	t.Parallel()
	kit.Need(t, "nstat", "netstat", "tc", "ip")
	b := newBusy(t, "supervise")
	b.ctl("exec", "--", "tc", "qdisc", "replace", "dev", "eth1", "root", "fq")
	for tool, ask := range map[string]struct {
		say   func() numbers
		least int
	}{"nstat": {b.nstat, 350}, "ip -s -s link": {b.ipLink, 40}, "tc -s qdisc": {b.tcQdisc, 24}, "netstat -s": {b.netTools, 10}} {
		var gauges []string
		if !kit.Within(kit.Limit, func() bool {
			gauges = b.agree(tool, ask.say, ask.least)
			return len(gauges) == 0
		}) {
			t.Error(strings.Join(gauges, "\n"))
		}
	}
	b.end()
}

// agree compares the output of a tool with lklctl's values before and after, and
// returns the gauges that differ.
func (b *busy) agree(tool string, say func() numbers, least int) (gauges []string) {
	b.Helper()
	before := b.counters()
	theirs := say()
	after := b.counters()
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		low, was := before[name]
		high, is := after[name]
		n := theirs[name]
		differs := fmt.Sprintf("%s: %s says %d, lklctl %d before and %d after", name, tool, n, low, high)
		switch {
		case !was || !is:
			if nstatAlone(name) {
				continue
			}
			b.Errorf("%s has %s, lklctl counters has not", tool, name)
		case low > high: // a gauge that is changing
		case isGauge(name) && low != high:
		case low <= n && n <= high:
		case isGauge(name):
			gauges = append(gauges, differs)
		default:
			b.Error(differs)
		}
		compared++
	}
	if compared < least {
		b.Errorf("%s: %d counters compared, want %d: %v", tool, compared, least, theirs)
	}
	return gauges
}

// nstatAlone reports whether nstat(8) computes this counter from others.
func nstatAlone(name string) bool { return strings.HasPrefix(name, "IcmpMsg") }

func isGauge(name string) bool {
	e, ok := counters.Explain(name)
	return ok && e.Kind == counters.Gauge
}

// TestCountersExplained checks, with each engine, that every counter of a running stack
// has an explanation and appears in each output format.
func TestCountersExplained(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBusy(t, engine)
			all := b.counters()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if _, ok := counters.Explain(name); !ok {
					t.Errorf("%s is not explained", name)
				}
			}
			for _, name := range []string{"TcpInSegs", "MPTcpExtMPJoinSynAckRx", "eth1.rx_bytes", "eth0.qdisc.root.bytes", "softnet0.processed", "sockstat.TCP_inuse", "engine.sockets.open"} {
				if all[name] == 0 && name != "MPTcpExtMPJoinSynAckRx" {
					t.Errorf("%s is %d on a busy stack", name, all[name])
				}
			}
			if said := b.ctl("counters", "-d", "eth?.?x_bytes"); !strings.Contains(said, "PER SECOND") {
				t.Errorf("-d: %s", said)
			}
			said := b.ctl("counters", "-o", "prom")
			for _, want := range []string{
				fmt.Sprintf("lklrun_interface_rx_bytes_total{instance=%q,interface=\"eth1\"} ", b.Instance),
				"# HELP lklrun_TcpInSegs_total Segments received",
			} {
				if !strings.Contains(said, want) {
					t.Errorf("-o prom lacks %s", want)
				}
			}
			b.end()
		})
	}
}
