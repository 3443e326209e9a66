// SPDX-License-Identifier: Apache-2.0

// Package counters reads all counters of a stack. It uses the names that users know: for
// protocols the names of nstat(8), for interfaces those of struct rtnl_link_stats64, for
// queueing disciplines those of tc(8). It computes the changes between two readings,
// explains each counter, and writes Prometheus' text format.
package counters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Kind tells how the value of a counter can change.
type Kind string

// Kinds, named as in Prometheus.
const (
	Count Kind = "counter" // only increases, until its object is recreated
	Gauge Kind = "gauge"   // increases and decreases, or is a setting
)

// Label is a label of a counter.
type Label struct{ Name, Value string }

// Counter is one number of a stack.
type Counter struct {
	Name   string // TcpActiveOpens, eth0.rx_bytes, eth0.qdisc.root.drops
	Base   string // the name for Explain: TcpActiveOpens, interface.rx_bytes, qdisc.drops
	Value  Value
	Kind   Kind
	Labels []Label // interface, qdisc, CPU or process that Base omits
}

// Set holds the counters of a stack at one moment, in a fixed order.
type Set []Counter

// Get returns the value of the counter called name.
func (s Set) Get(name string) (Value, bool) {
	for i := range s {
		if s[i].Name == name {
			return s[i].Value, true
		}
	}
	return Value{}, false
}

// Select returns the counters whose name matches one of patterns; see Match.
func (s Set) Select(patterns []string) Set {
	var some Set
	for i := range s {
		if Match(s[i].Name, patterns) {
			some = append(some, s[i])
		}
	}
	return some
}

// errForm is the error for text that a parser does not recognise.
var errForm = errors.New("unexpected format of the counters")

// softnetFile has counters of the kernel that do not distinguish network namespaces, as
// drops.CountsFile has.
const softnetFile = "/proc/net/softnet_stat"

// files are the files with counters.
var files = []struct {
	path  string
	parse func(string) (Set, error)
}{
	{"/proc/net/snmp", parsePaired},
	{"/proc/net/snmp6", parseSingle},
	{"/proc/net/netstat", parsePaired},
	{"/proc/net/sockstat", parseSockstat},
	{"/proc/net/sockstat6", parseSockstat},
	{softnetFile, parseSoftnet},
	{drops.CountsFile, parseDrops},
}

// Read reads the counters of all sources that the stack has. It reads the sources one
// after another, not at one instant. In a namespace that the target has made, it reads
// only the counters of that namespace.
func Read(ctx context.Context, c *stackconn.Conn) (Set, error) {
	var all Set
	for _, src := range files {
		if c.InNetns() && (src.path == softnetFile || src.path == drops.CountsFile) {
			continue // of all namespaces together
		}
		some, err := readFile(ctx, c, src.path, src.parse)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	devices, err := Devices(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("reading the counters of interfaces: %w", err)
	}
	all = append(all, devices...)
	if c.InNetns() {
		return all, nil
	}
	stats, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return append(all, engine(stats)...), nil
}

// Protocols reads only the counters of IP, ICMP, TCP and UDP (/proc/net/snmp). It is
// cheap enough for frequent use.
func Protocols(ctx context.Context, c *stackconn.Conn) (Set, error) {
	return readFile(ctx, c, "/proc/net/snmp", parsePaired)
}

// Protocols6 is like Protocols, for IPv6 (/proc/net/snmp6).
func Protocols6(ctx context.Context, c *stackconn.Conn) (Set, error) {
	return readFile(ctx, c, "/proc/net/snmp6", parseSingle)
}

// readFile reads a file of counters. If the file does not exist, the set is empty.
func readFile(ctx context.Context, c *stackconn.Conn, path string, parse func(string) (Set, error)) (Set, error) {
	b, err := c.ReadFile(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	some, err := parse(string(b))
	if err != nil {
		return nil, &fs.PathError{Op: "reading", Path: path, Err: err}
	}
	return some, nil
}

// engine returns the stack host's counters as a separate group. For a process or a peer,
// a counter's name contains text that the program chose (internal/diag/account). In Base,
// "process" replaces this text.
func engine(stats []stackconn.Stat) Set {
	var all Set
	for _, s := range stats {
		n := named("engine."+s.Name, integer(s.Value))
		whose, field, _ := strings.Cut(s.Name, ".peer ")
		switch n.Base {
		case "engine.process.peer":
			n.Labels = []Label{{"process", whose}, {"peer", field}}
		case "engine.hosted":
			n.Labels = []Label{{"address", strings.TrimPrefix(s.Name, "hosted.")}}
		default:
			if field, ok := strings.CutPrefix(n.Base, "engine.process."); ok {
				n.Labels = []Label{{"process", strings.TrimSuffix(s.Name, "."+field)}}
			}
		}
		all = append(all, n)
	}
	return all
}

// Gateways returns the counters of user-mode gateways by interface. lklrun maintains
// them.
func Gateways(counts map[string]map[string]uint64) Set {
	var all Set
	for _, link := range slices.Sorted(maps.Keys(counts)) {
		for _, name := range slices.Sorted(maps.Keys(counts[link])) {
			all = append(all, based(link+".gateway."+name, "gateway."+name, unsigned(counts[link][name]), Label{"interface", link}))
		}
	}
	return all
}

// named makes a counter from its name alone.
func named(name string, v Value, labels ...Label) Counter {
	base := BaseOf(name)
	if typ, ok := strings.CutPrefix(name, strings.TrimSuffix(base, "N")); ok && base != name {
		labels = append(labels, Label{"type", typ}) // type of an ICMP message
	}
	return based(name, base, v, labels...)
}

// Labelled makes a counter that has labels in place of a longer name.
func Labelled(base string, n uint64, labels ...Label) Counter {
	name := base
	for _, l := range labels {
		name += "." + l.Value
	}
	return based(name, base, unsigned(n), labels...)
}

func based(name, base string, v Value, labels ...Label) Counter {
	return Counter{Name: name, Base: base, Value: v, Kind: kindOf(base), Labels: labels}
}

func kindOf(base string) Kind {
	if gauges[base] || strings.HasPrefix(base, "sockstat.") {
		return Gauge
	}
	return Count
}

// BaseOf removes the interface, qdisc or process from a counter's name.
func BaseOf(name string) string {
	switch {
	case strings.HasPrefix(name, "engine.proc."), strings.HasPrefix(name, "engine.ended."):
		if i := strings.LastIndex(name, ".peer "); i >= 0 {
			return "engine.process.peer"
		}
		return "engine.process" + name[strings.LastIndexByte(name, '.'):]
	case strings.HasPrefix(name, "engine.hosted.") && name != "engine.hosted.elsewhere":
		return "engine.hosted"
	case strings.HasPrefix(name, "engine."), strings.HasPrefix(name, "sockstat."),
		strings.HasPrefix(name, "softnet."), strings.HasPrefix(name, "qdisc."), strings.HasPrefix(name, "interface."):
		return name
	case strings.HasPrefix(name, "gateway."):
		return name
	case dropsBase(name) != "":
		return dropsBase(name)
	case strings.Contains(name, ".gateway."):
		return name[strings.Index(name, ".gateway.")+1:]
	case strings.Contains(name, ".qdisc."):
		return "qdisc" + name[strings.LastIndexByte(name, '.'):]
	case strings.HasPrefix(name, "softnet") && strings.Contains(name, "."):
		return "softnet" + name[strings.LastIndexByte(name, '.'):]
	case strings.Contains(name, "."):
		return "interface" + name[strings.LastIndexByte(name, '.'):]
	}
	// ICMP messages are counted by type: IcmpMsgInType3, Icmp6OutType133.
	if i := strings.LastIndex(name, "Type"); i > 0 && strings.HasPrefix(name, "Icmp") {
		if digits := name[i+len("Type"):]; digits != "" && strings.Trim(digits, "0123456789") == "" {
			return name[:i] + "TypeN"
		}
	}
	return name
}

// gauges are the bases whose values can decrease, in addition to those of sockstat. In
// the SNMP groups these are settings, or a number of connections (RFC 2012,
// net/mptcp/mib.c).
var gauges = set(`
	IpForwarding IpDefaultTTL
	TcpRtoAlgorithm TcpRtoMin TcpRtoMax TcpMaxConn TcpCurrEstab MPTcpExtMPCurrEstab
	softnet.backlog softnet.input_backlog softnet.process_backlog
	qdisc.qlen qdisc.backlog
	qdisc.flows qdisc.inactive_flows qdisc.throttled_flows qdisc.time_next_delayed_flow_ns qdisc.unthrottle_latency_ns
	qdisc.band0_pkts qdisc.band1_pkts qdisc.band2_pkts
	qdisc.maxpacket qdisc.new_flows_len qdisc.old_flows_len qdisc.memory_used
	qdisc.count qdisc.lastcount qdisc.ldelay_us qdisc.dropping qdisc.drop_next_us
	connections.open connections.retransmitted connections.rtt_most_us connections.rtt_us connections.segments
	engine.sockets.open engine.sockets.peers engine.control.watchers engine.control.shared_netns
`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
