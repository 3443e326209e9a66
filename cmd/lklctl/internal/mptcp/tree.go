// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/sockets"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

func writeMPTCP(w io.Writer, conns []connection, detail bool) error {
	b := page{columns: cli.Columns(w)}
	paint := text.Paint(w)
	for i, c := range conns {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(headline(c) + "\n")
		wrap(&b, 2, 2, commas(totals(c)))
		if detail {
			wrap(&b, 2, 2, commas(dataLevel(c)))
		}
		if err := writeSubflows(&b, c, detail); err != nil {
			return err
		}
		for _, r := range c.why {
			text := page{columns: b.columns}
			writeReason(&text, r)
			for line := range strings.Lines(text.String()) {
				b.WriteString(paint.Yellow(strings.TrimSuffix(line, "\n")) + "\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// headline describes a connection: its process, its addresses and its protocol.
func headline(c connection) string {
	words := []string{sockets.LocalAddr(c.Socket)}
	if c.State != sockdiag.Listen {
		words = append(words, "->", sockets.RemoteAddr(c.Socket))
	}
	words = append(words, c.State.String())
	if p := sockets.FirstProcess(c.Processes); p != "" {
		words = append(words, p)
	}
	if fellBack(c) {
		words = append(words, "- plain TCP")
	}
	return strings.Join(words, " ")
}

// facts is the list of named values in a line. Absent values are omitted.
type facts []string

func (f *facts) add(format, value string) {
	if value != "" {
		*f = append(*f, fmt.Sprintf(format, value))
	}
}

// some is like add, for values that matter only if they are not 0.
func (f *facts) some(format string, v sockdiag.Value, form func(sockdiag.Value) string) {
	if v.N > 0 {
		f.add(format, form(v))
	}
}

// joined joins the facts so that no line break falls within one.
func (f facts) joined(by string) string {
	for i := range f {
		f[i] = strings.ReplaceAll(f[i], " ", "\u00a0")
	}
	return strings.Join(f, by)
}

func commas(f facts) string { return f.joined(", ") }

// totals returns the connection's own line, with the values for all subflows
// together.
func totals(c connection) facts {
	var f facts
	if p := c.Proc; p != nil {
		f.add("token %s", sockets.Token(p.Token))
		f.add("the peer's %s", sockets.Token(p.RemoteToken))
		if p.Subflows.Known {
			f = append(f, text.Plural(int(p.Subflows.N), "subflow"))
		}
		f.some("unacknowledged %s", c.SendQ, sockets.Bytes)
		f.some("unread %s", c.RecvQ, sockets.Bytes)
		return f
	}
	i := c.MPTCP
	if i == nil || c.State == sockdiag.Listen {
		return nil
	}
	if !fellBack(c) {
		f.add("token %s", sockets.Token(i.Token))
		f = append(f, text.Plural(len(c.Subflows), "subflow"))
	}
	f.add("sent %s", sockets.Bytes(i.BytesSent))
	f.add("received %s", sockets.Bytes(i.BytesRecv))
	f.some("unacknowledged %s", unacked(c), sockets.Bytes)
	f.some("unread %s", c.RecvQ, sockets.Bytes)
	f.some("reinjected %s", i.BytesRetrans, sockets.Bytes)
	return f
}

// dataLevel returns the additional values of -v for a connection.
func dataLevel(c connection) facts {
	i := c.MPTCP
	if i == nil || c.State == sockdiag.Listen {
		return nil
	}
	var f facts
	of := func(what string, n, most sockdiag.Value) {
		if n.Known && most.Known {
			f = append(f, fmt.Sprintf("%s %d of %d", what, n.N, most.N))
		}
	}
	if !fellBack(c) {
		of("joined", i.Subflows, i.SubflowsMax)
		of("endpoints used", i.LocalUsed, i.LocalMax)
		of("addresses accepted", i.Accepted, i.AcceptedMax)
		f.some("addresses announced %s", i.Signalled, sockets.Number)
		f.some("checksums%.0s", i.Checksum, sockets.Number)
		f.add("data acknowledged %s", sockets.Bytes(i.BytesAcked))
	}
	f.add("send queue %s", sockets.Bytes(c.SendQ))
	f.add("last sent %s ago", sockets.Milliseconds(i.LastSent))
	f.add("last received %s ago", sockets.Milliseconds(i.LastRecv))
	f.add("last acknowledged %s ago", sockets.Milliseconds(i.LastAck))
	return f
}

// subflowDetail returns the additional values of -v for a subflow.
func subflowDetail(s sockdiag.Socket) facts {
	var f facts
	if x := s.Subflow; x != nil {
		if x.ID.Known && x.RemoteID.Known {
			f = append(f, fmt.Sprintf("address %d to %d", x.ID.N, x.RemoteID.N))
		}
		f = append(f, x.Flags.Names()...)
	}
	f.add("%s", s.Congestion)
	if i := s.TCP; i != nil {
		f.add("rtt var %s", sockets.Micros(i.RTTVar))
		f.add("min %s", sockets.Micros(i.MinRTT))
		f.add("rto %s", sockets.Micros(i.RTO))
		f.add("ssthresh %s", sockets.Number(i.Ssthresh))
		f.add("mss %s", sockets.Number(i.SndMSS))
		f.some("in flight %s", i.Unacked, sockets.Number)
		f.some("lost %s", i.Lost, sockets.Number)
		f.some("not sent %s", i.NotSent, sockets.Bytes)
		f.add("pacing %s", sockets.Rate(i.PacingRate))
		f.add("delivery %s", sockets.Rate(i.DeliveryRate))
		f.add("last sent %s ago", sockets.Milliseconds(i.LastSent))
		f.add("last received %s ago", sockets.Milliseconds(i.LastRecv))
	}
	return f
}

func writeSubflows(b *page, c connection, detail bool) error {
	if len(c.Subflows) == 0 {
		return nil
	}
	t := cli.NewTable("IF", "LOCAL", "PEER", "STATE", ">RTT", ">CWND", ">SENT", ">RECV", ">RETR").Indent(2).Narrow()
	for _, s := range c.Subflows {
		i := s.TCP
		if i == nil || s.State == sockdiag.Listen { // these values have no meaning for a listener
			i = &sockdiag.TCPInfo{}
		}
		t.Row(s.Iface, sockets.LocalAddr(s), sockets.RemoteAddr(s), s.State.String(), sockets.Micros(i.RTT), sockets.Number(i.Cwnd),
			sockets.Bytes(i.BytesSent), sockets.Bytes(i.BytesRecv), sockets.Number(i.TotalRetrans))
		below := page{columns: b.columns}
		if s.Subflow != nil && s.Subflow.Flags.Backup() {
			wrap(&below, 6, 6, "backup")
		}
		if detail {
			wrap(&below, 6, 6, commas(subflowDetail(s)))
		}
		t.Below(below.String())
	}
	return t.Write(b)
}

// writeReason writes why something is missing, and the remedy.
func writeReason(b *page, r mptcpdiag.Reason) {
	what := "plain TCP"
	if r.Iface != "" {
		what = "no subflow on " + r.Iface
		if r.Address != "" {
			what += " (" + r.Address + ")"
		}
	}
	wrap(b, 2, 4, what+": "+r.Text)
	if r.Remedy != "" {
		wrap(b, 4, 6, "remedy: "+r.Remedy)
	}
}

// page is text for an output with that many columns; 0: no limit.
type page struct {
	strings.Builder
	columns int
}

// Columns returns the number of columns.
func (p *page) Columns() int { return p.columns }

// wrap writes text in lines that fit in the columns of b. It indents the first line by
// first blanks and the others by rest. It does not break lines at U+00A0 (no-break
// space).
func wrap(b *page, first, rest int, text string) {
	at := 0
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }) {
		n := utf8.RuneCountInString(word)
		word = strings.ReplaceAll(word, "\u00a0", " ")
		switch {
		case at == 0:
			b.WriteString(strings.Repeat(" ", first))
			at = first
		case b.columns > 0 && at+1+n > b.columns:
			b.WriteString("\n" + strings.Repeat(" ", rest))
			at = rest
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	if at > 0 {
		b.WriteByte('\n')
	}
}
