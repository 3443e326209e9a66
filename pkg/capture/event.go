// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Event is something that a stack reports about its packets, such as that it dropped one.
type Event struct {
	Time    time.Time
	Message string
	Fields  []Field
}

// Field is a named value of an Event. Names have the form of journal fields: A-Z, 0-9, _.
type Field struct{ Name, Value string }

// Reporter is a Stack that reports events.
type Reporter interface {
	// Events passes events to handle until ctx ends or the stack has ended, including those
	// up to that moment. names and filter are those of a Take.
	Events(ctx context.Context, names []string, filter string, handle func([]Event)) error
}

// EventHandler is a Handler that also receives events. Events arrive up to some 100 ms
// after packets of the same time.
type EventHandler interface {
	Events([]Event) error
}

// blockJournal is a systemd Journal Export Block (draft-ietf-opsawg-pcapng). Wireshark shows
// it in the list of packets. Programs that do not know it skip it.
const blockJournal = 9

// WriteEvent writes an event as a systemd Journal Export Block.
func (p *Pcapng) WriteEvent(e *Event) error {
	var b strings.Builder
	fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\nMESSAGE=%s\nSYSLOG_IDENTIFIER=lklrun\nPRIORITY=6\n", e.Time.UnixMicro(), line(e.Message))
	for _, f := range e.Fields {
		if f.Value != "" {
			fmt.Fprintf(&b, "%s=%s\n", f.Name, line(f.Value))
		}
	}
	p.begin(blockJournal)
	p.bytes([]byte(b.String()))
	return p.end()
}

// line replaces the characters that would end a field.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, s)
}
