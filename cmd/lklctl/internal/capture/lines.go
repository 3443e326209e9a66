// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/ui/tcpdump"
	"github.com/lklrun/lklrun/pkg/capture"
)

// lines prints packets as text or JSON, with tcpdump's description.
type lines struct {
	out         io.Writer
	json        bool
	stamps      int  // number of -t
	interfaces  bool // show the interface, and its instance if instances is set
	instances   bool
	first, last time.Time // packets

	tcpdump *tcpdump.Printer
	ended   chan struct{} // closed when tcpdump has ended and err is set
	err     error

	mu      sync.Mutex
	members []*capture.Member
	failed  error // error of a write to out
}

// newLines starts tcpdump. finish must be called at the end.
func newLines(c *verb.Call, o *captureOptions, several bool) (*lines, error) {
	l := &lines{
		out: c.Stdout, json: c.Output == cli.OutputJSON, stamps: o.stamps, instances: several,
		interfaces: several || len(o.interfaces) != 1 || o.interfaces[0] == capture.Any,
		ended:      make(chan struct{}),
	}
	var err error
	// Ctrl-C must not end tcpdump before it has printed the last packets.
	if l.tcpdump, err = tcpdump.Start(context.Background(), o.tcpdump(l.json)...); err != nil {
		return nil, fmt.Errorf("%w; install it, or write a file with -w FILE", err)
	}
	go func() {
		defer close(l.ended)
		l.err = l.print()
	}()
	return l, nil
}

// Interface records the interface.
func (l *lines) Interface(m *capture.Member) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = append(l.members, m)
	return nil
}

// member returns the interface of a packet.
func (l *lines) member(number int) *capture.Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members[number]
}

// Packets passes packets to tcpdump.
func (l *lines) Packets(packets []capture.Packet) error {
	err := l.tcpdump.Write(packets, func(number int) capture.LinkType { return l.member(number).LinkType })
	if err != nil { // tcpdump has ended and printed the reason
		if ferr := l.finish(); ferr != nil {
			err = ferr
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// finish waits until all packets are printed.
func (l *lines) finish() error {
	_ = l.tcpdump.End() // fails if it has ended already
	<-l.ended
	return l.err
}

// print prints tcpdump's lines until it ends. After a failed write, it discards them.
func (l *lines) print() error {
	var failed error
	for {
		line, p, err := l.tcpdump.Next()
		if errors.Is(err, io.EOF) {
			return failed
		}
		if err != nil {
			return err
		}
		if failed != nil {
			continue
		}
		if failed = l.line(line, p); failed != nil {
			l.mu.Lock()
			l.failed = failed
			l.mu.Unlock()
		}
	}
}

// line prints one of tcpdump's lines. p is nil unless the line is the first one of a
// packet.
func (l *lines) line(text string, p *capture.Packet) error {
	switch {
	case p == nil && l.json:
		return nil
	case p == nil:
		_, err := fmt.Fprintln(l.out, text)
		return err
	}
	m := l.member(p.Interface)
	if l.json {
		row := captureRow{
			Time: p.Time, Instance: m.Instance, Interface: m.Name, LengthBytes: p.Length, CapturedBytes: len(p.Data),
			Text: text, Comment: p.Comment,
		}
		if p.Dir != capture.Unknown {
			row.Direction = p.Dir.String()
		}
		if p.Owner != nil {
			row.PID, row.Process = p.Owner.PID, p.Owner.Comm
		}
		return json.NewEncoder(l.out).Encode(row)
	}
	var b strings.Builder
	b.WriteString(l.stamp(p.Time))
	if l.instances {
		b.WriteString(printable(m.Instance) + "/")
	}
	if l.interfaces {
		b.WriteString(printable(m.Name) + " ")
	}
	switch p.Dir {
	case capture.In:
		b.WriteString("In  ")
	case capture.Out:
		b.WriteString("Out ")
	}
	b.WriteString(text)
	if p.Comment != "" {
		b.WriteString("  [" + printable(p.Comment) + "]")
	}
	_, err := fmt.Fprintln(l.out, b.String())
	return err
}

// stamp returns a packet's time in the format that the number of -t flags selects.
func (l *lines) stamp(t time.Time) string {
	if l.first.IsZero() {
		l.first, l.last = t, t
	}
	before := l.last
	l.last = t
	switch l.stamps {
	case 0:
		return t.Local().Format("15:04:05.000000 ")
	case 1:
		return ""
	case 2:
		return fmt.Sprintf("%d.%06d ", t.Unix(), t.Nanosecond()/1000)
	case 3:
		return elapsed(t.Sub(before))
	case 4:
		return t.Local().Format("2006-01-02 15:04:05.000000 ")
	}
	return elapsed(t.Sub(l.first))
}

// elapsed formats a duration like tcpdump: " 00:00:01.000002 ".
func elapsed(d time.Duration) string {
	sign := " "
	if d < 0 {
		sign, d = "-", -d
	}
	return sign + time.Time{}.Add(d).Format("15:04:05.000000 ")
}

// printable makes external text safe for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
}
