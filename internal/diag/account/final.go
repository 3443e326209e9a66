// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// Final holds the counters that lklhost reports at the target's end: the
// stack's MPTCP counters under their nstat(8) names, and the engine's counters
// (csrc/engine/supervise/engine.c, csrc/engine/call/task.c).
type Final struct {
	stats []stackconn.Stat
	value map[string]int64
}

// ParseFinal parses the text of the event. It returns nil if the text has no
// counters.
func ParseFinal(text string) (*Final, error) {
	stats, err := stackconn.ParseStats([]byte(text))
	if err != nil || len(stats) == 0 {
		return nil, err
	}
	return NewFinal(stats), nil
}

// NewFinal makes the account of a run from the counters so far.
func NewFinal(stats []stackconn.Stat) *Final {
	a := &Final{stats, map[string]int64{}}
	for _, s := range stats {
		// Keep the first value of each name. Names that processes
		// choose come last and must not replace others.
		if _, known := a.value[s.Name]; !known {
			a.value[s.Name] = s.Value
		}
	}
	return a
}

// Connections describes in one line the connections of each process, and how many subflows
// joined those over MPTCP.
func (a *Final) Connections() string {
	var parts []string
	all := Parse(a.stats)
	for n := range all.Processes {
		p := &all.Processes[n]
		p.Peers = slices.DeleteFunc(p.Peers, func(q Peer) bool { return q.Proto != "tcp" })
		if how := p.Connections(); how != "" {
			parts = append(parts, p.Command+": "+how+" with "+strings.Join(p.PeerNames(3), ", "))
		}
	}
	if len(parts) == 0 {
		return "no connection"
	}
	joined := a.value["MPTcpExtMPJoinSynAckRx"] + a.value["MPTcpExtMPJoinAckRx"]
	return strings.Join(append(parts, count(joined, "additional subflow")), "; ")
}

// Lines formats the statistics: one line for each process that created sockets,
// one for the total data, and one for MPTCP.
func (a *Final) Lines() []string {
	var lines []string
	all := Parse(a.stats)
	for n := range all.Processes {
		p := &all.Processes[n]
		who := fmt.Sprintf("%s(%d)", p.Command, p.PID)
		if p.PID == 0 {
			who = p.Command
		}
		if p.Stack > 0 {
			lines = append(lines, who+" made "+count(p.Stack, "socket")+" on the stack"+carried(p))
		}
		if p.Host > 0 {
			lines = append(lines, who+" had "+count(p.Host, "socket")+" on the host's stack")
		}
		if p.Refused > 0 {
			lines = append(lines, who+" was refused "+count(p.Refused, "socket")+" of a type that the stack does not support")
		}
		if p.Foreign > 0 {
			lines = append(lines, who+" was refused "+count(p.Foreign, "socket")+" of the host's network that it received from outside the run")
		}
	}
	for _, h := range all.Hosted {
		lines = append(lines, fmt.Sprintf("%s connected to %s over the host's stack (--host-net)", count(h.Sockets, "socket"), h.Addr))
	}
	v := a.value
	if v["sockets.stack"] == 0 && v["sockets.refused"] == 0 && v["sockets.foreign"] == 0 && v["sockets.host"] == 0 {
		return append(lines, "nothing used the stack")
	}
	lines = append(lines, fmt.Sprintf("total: %s, %d bytes received, %d sent; %d datagrams received, %d sent",
		count(v["sockets.stack"], "socket"), v["bytes.received"], v["bytes.sent"],
		v["datagrams.received"], v["datagrams.sent"]))
	if n := a.mptcp(); n > 0 {
		lines = append(lines, fmt.Sprintf("%s over MPTCP", count(n, "connection")))
	}
	return lines
}

// carried describes the data that a process's sockets carried, their peers and
// protocols.
func carried(p *Process) string {
	var parts []string
	if p.Received > 0 || p.Sent > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes received, %d sent", p.Received, p.Sent))
	}
	if peers := p.PeerNames(3); len(peers) > 0 {
		parts = append(parts, "with "+strings.Join(peers, ", "))
	}
	if how := p.Connections(); how != "" {
		parts = append(parts, "connections: "+how)
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "; ")
}

// Value returns the counter called name, or nil if there is none.
func (a *Final) Value(name string) *int64 {
	if a == nil {
		return nil
	}
	if n, ok := a.value[name]; ok {
		return &n
	}
	return nil
}

// mptcp returns the number of connections that negotiated MPTCP, outgoing and
// incoming.
func (a *Final) mptcp() int64 {
	return a.value["MPTcpExtMPCapableSYNACKRX"] + a.value["MPTcpExtMPCapableACKRX"]
}

// fallbacks lists the counters of connections that fell back to plain TCP,
// during the MPTCP handshake or later (net/mptcp/mib.h).
var fallbacks = []string{
	"MPCapableFallbackACK", "MPCapableFallbackSYNACK", "MPCapableSYNTXDrop", "MPCapableSYNTXDisabled",
	"MPFallbackTokenInit", "MPCapableDataFallback", "MD5SigFallback", "DssFallback",
	"SimultConnectFallback", "DSSCorruptionFallback", "InfiniteMapTx", "InfiniteMapRx",
}

// Unmet explains why a requirement (config.RequireStack or config.RequireMPTCP)
// is not met. It returns "" if it is met.
func (a *Final) Unmet(require string) string {
	switch {
	case require == "":
		return ""
	case a == nil:
		return "lklhost reported no statistics"
	case a.value["sockets.foreign"] > 0:
		return count(a.value["sockets.foreign"], "socket") + " of the host's network came from outside the run and were refused"
	case a.value["sockets.stack"] == 0 && a.value["sockets.host"] > 0:
		return "the program used no socket of the stack, but " + count(a.value["sockets.host"], "socket") + " of the host (--host-net)"
	case a.value["sockets.stack"] == 0:
		return "the program used no socket of the stack"
	case a.value["sockets.refused"] > 0:
		return count(a.value["sockets.refused"], "socket") + " of a type that the stack does not support"
	case require != config.RequireMPTCP:
		return ""
	}
	var fell []string
	for _, name := range fallbacks {
		if n := a.value["MPTcpExt"+name]; n > 0 {
			fell = append(fell, fmt.Sprintf("%s %d", name, n))
		}
	}
	plain := max(0, a.value["sockets.connected"]-a.value["MPTcpExtMPCapableSYNACKRX"]) +
		max(0, a.value["sockets.accepted"]-a.value["MPTcpExtMPCapableACKRX"])
	switch {
	case len(fell) > 0:
		return "MPTCP fell back to TCP (" + strings.Join(fell, ", ") + ")"
	case plain > 0:
		return count(plain, "connection") + " by TCP"
	case a.mptcp() == 0:
		return "there was no MPTCP connection"
	}
	return ""
}

// count formats a number together with its noun.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
