// SPDX-License-Identifier: Apache-2.0

package top

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/live"
)

// panes draws an instance's tables with a given width.
type panes struct {
	width  int
	levels []rune // characters for graphs
	paint  text.Palette
}

// least is the width for which the tables are designed. A narrower terminal shows a part
// of them.
const least = 80

// wider returns the number of columns beyond least.
func (p panes) wider() int { return max(0, p.width-least) }

// fit cuts a line to the width. It removes trailing blanks, which cost time on a slow
// terminal line.
func (p panes) fit(s string) string { return cut(strings.TrimRight(s, " "), p.width) }

// instanceHead returns the heading of the list of instances; instanceLine returns a
// line.
func (p panes) instanceHead() string {
	return p.fit(p.instanceCells("  NAME", "STACK", "GRAPH", "STACK%", "PROG%", "SENT", "RECV", "RETR/s", "CONN"))
}

func (p panes) instanceCells(name, stack, graph, cpu, prog, sent, recv, retr, conn string) string {
	more := p.wider()
	return line(cell{name, 18 + more/2}, cell{stack, 7}, cell{graph, p.instanceGraph()}, cell{cpu, -6}, cell{prog, -6},
		cell{sent, -6}, cell{recv, -6}, cell{retr, -6}, cell{conn, -5})
}

// instanceGraph returns the width of an instance's graph.
func (p panes) instanceGraph() int { return 12 + p.wider() - p.wider()/2 }

func (p panes) instanceLine(i *followed, selected bool, most uint64, now time.Time) string {
	mark := "  "
	if selected {
		mark = "> "
	}
	name := mark + i.info.Name
	if i.err != nil {
		return p.fit(line(cell{name, 18 + p.wider()/2}, cell{i.info.Stack, 7}, cell{i.why(now), 53 + p.wider() - p.wider()/2}))
	}
	s := i.snapshot
	return p.fit(p.instanceCells(name, s.Instance.Stack, spark(i.history.Rates(""), most, p.instanceGraph(), p.levels),
		percent(s.CPU.Stack), percent(s.CPU.Target), bits(s.Totals.TxRate), bits(s.Totals.RxRate), perSecond(s.Totals.RetransRate), fmt.Sprint(s.Totals.Connections)))
}

// why returns a short reason why an instance has no new data.
func (i *followed) why(now time.Time) string {
	since := now.Sub(i.since).Truncate(time.Second)
	switch {
	case errors.Is(i.err, live.ErrEnded):
		return "has ended"
	case errors.Is(i.err, live.ErrStarting):
		return "is starting"
	case errors.Is(i.err, live.ErrPanicked):
		return "its kernel panicked; see lklctl dmesg"
	case errors.Is(i.err, live.ErrSilent):
		return fmt.Sprintf("no answer for %v", since)
	}
	return text.OneLine(i.err.Error())
}

// title returns the line above an instance's tables.
func (p panes) title(s *live.Snapshot, now time.Time) string {
	i := s.Instance
	words := []string{i.Name + ":", "Linux " + i.Release + ","}
	if i.Engine != "" {
		words = append(words, i.Engine+",")
	}
	if !i.Started.IsZero() {
		words = append(words, "up "+max(0, now.Sub(i.Started)).Truncate(time.Second).String()+",")
	}
	for _, n := range []struct {
		value live.Value
		one   string
	}{{s.Totals.Drops, "drop"}, {s.Totals.Resets, "reset"}} {
		if n.value.N > 0 {
			words = append(words, text.Plural(int(n.value.N), n.one)+",")
		}
	}
	command := i.Command
	if i.Pod != "" {
		command = "pod " + i.Pod // the command of the run only waits
	}
	return p.fit(strings.Join(append(words, command), " "))
}

// linkHead returns the heading of the table of interfaces; linkLines returns its
// lines.
func (p panes) linkHead() string {
	return p.fit(p.linkCells("IF", "STATE", "SENT", "RECV", "DROP", "GRAPH (bit/s)", "ADDRESS"))
}

func (p panes) linkCells(name, state, sent, recv, drop, graph, addr string) string {
	return line(cell{name, 8}, cell{state, 10}, cell{sent, -6}, cell{recv, -6}, cell{drop, -5}, cell{graph, p.linkGraph()}, cell{addr, 19})
}

func (p panes) linkGraph() int { return 20 + p.wider() }

func (p panes) linkLines(s *live.Snapshot, h *live.History) []string {
	links := shownLinks(s)
	var most uint64
	for _, l := range links {
		most = max(most, highest(p.linkGraph(), h.Rates(live.LinkKey(l.Name))))
	}
	var lines []string
	for _, l := range links {
		var dropped live.Value
		if l.RxDropped.Known && l.TxDropped.Known {
			dropped = live.Value{N: l.RxDropped.N + l.TxDropped.N, Known: true}
		}
		addr := absent
		if len(l.Addrs) > 0 {
			addr = l.Addrs[0]
		}
		graph := spark(h.Rates(live.LinkKey(l.Name)), most, p.linkGraph(), p.levels)
		lines = append(lines, p.fit(p.linkCells(l.Name, l.State, bits(l.TxRate), bits(l.RxRate), count(dropped), graph, addr)))
	}
	return lines
}

// shownLinks returns the interfaces to show. It omits lo, unless lo is the only
// interface or carries data.
func shownLinks(s *live.Snapshot) []live.Link {
	var links []live.Link
	for _, l := range s.Links {
		if l.Name != "lo" || len(s.Links) == 1 || l.TxRate.N > 0 {
			links = append(links, l)
		}
	}
	return links
}

// sortHeads contains the headings of the columns by which the table can be sorted.
var sortHeads = [columns]string{"BIT/S", "SENT", "RECV", "RETR", "CWND", "RTT", "PROCESS AND PEER"}

// connectionHead returns the heading of the table of connections and subflows;
// connectionLine returns a line.
func (p panes) connectionHead(by column, inverted bool) string {
	heads := sortHeads
	mark := "v"
	if inverted {
		mark = "^"
	}
	heads[by] += mark
	return p.fit(p.connectionCells("  "+heads[byPeer], "KIND", heads[byRTT], heads[byCwnd], heads[byRetrans], heads[bySent], heads[byReceived], heads[byRate]))
}

func (p panes) connectionCells(name, kind, rtt, cwnd, retr, sent, recv, graph string) string {
	return line(cell{name, p.nameWidth()}, cell{kind, 6}, cell{rtt, -6}, cell{cwnd, -5}, cell{retr, -5}, cell{sent, -6}, cell{recv, -6}, cell{graph, p.connectionGraph()})
}

func (p panes) nameWidth() int { return 29 + p.wider()/2 }

func (p panes) connectionGraph() int { return 10 + p.wider() - p.wider()/2 }

func (p panes) connectionLine(r row, h *live.History, most uint64, selected bool) string {
	mark := "  "
	if selected {
		mark = "> "
	}
	width := p.connectionGraph()
	if f := r.subflow; f != nil {
		branch, kind := "├ ", ""
		if r.last {
			branch = "└ "
		}
		if len(p.levels) > 0 && p.levels[1] == ascii[1] {
			branch = "- "
		}
		name := branch + f.Iface
		if f.State != "ESTAB" {
			name += " " + f.State
		}
		if f.Backup {
			kind = "backup"
		}
		return p.fit(p.connectionCells(mark+name+" "+f.Local, kind, millis(f.RTT), count(f.Cwnd), count(f.Retrans), bits(f.TxRate), bits(f.RxRate),
			spark(h.Rates(f.ID), most, width, p.levels)))
	}
	c := r.conn
	peer := " " + c.Remote
	if c.State != "ESTAB" {
		peer = " " + c.State + peer
	}
	// If there is not enough room, cut the process's name, because the peer is more
	// important.
	name := mark + cut(c.Process, max(4, p.nameWidth()-len(mark)-len(peer))) + peer
	rtt, cwnd := " ", " " // each subflow has its own values
	if len(c.Subflows) == 1 {
		rtt, cwnd = millis(c.Subflows[0].RTT), count(c.Subflows[0].Cwnd)
	}
	kind := c.Proto
	if c.Fallback {
		kind = "plain" // TCP, because the peer or the path does not support MPTCP
	}
	return p.fit(p.connectionCells(name, kind, rtt, cwnd, count(c.Retrans), bits(c.TxRate), bits(c.RxRate),
		spark(h.Rates(c.ID), most, width, p.levels)))
}

// highestOf returns the highest value in the graphs of some rows.
func (p panes) highestOf(all []row, h *live.History) (most uint64) {
	for _, r := range all {
		most = max(most, highest(p.connectionGraph(), h.Rates(r.conn.ID)))
	}
	return most
}
