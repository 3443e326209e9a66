// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"encoding/json"
	"io"
	"net/netip"
	"sync"
	"time"
)

// Decision is one line of the log of decisions (--egress-log).
type Decision struct {
	Time     time.Time `json:"time"`
	Protocol string    `json:"protocol,omitempty"` // tcp, udp, dns for a query, icmp, or the number of an IP protocol
	Name     string    `json:"name,omitempty"`     // the queried name, or the name that led to the address
	Address  string    `json:"address,omitempty"`  // the destination
	Port     uint16    `json:"port,omitempty"`     // port of TCP and UDP
	Verdict  string    `json:"verdict"`            // allowed or refused; added or removed: a change of the rules
	Rule     string    `json:"rule,omitempty"`     // the rule that allows it or is changed, or "audit"
	Reason   string    `json:"reason,omitempty"`   // why it is refused

	Processes []Process `json:"processes,omitempty"`         // the processes that have the socket open
	Unknown   string    `json:"processes_unknown,omitempty"` // why they are not known
}

// Process is a process of the program.
type Process struct {
	PID  int    `json:"pid"`  // on the host
	Comm string `json:"comm"` // first 15 characters of its name, which it can choose
}

// Finder returns the processes that have a socket of the stack open, or an error if they are
// not known.
type Finder func(protocol string, from, to netip.AddrPort) ([]Process, error)

const (
	// logQueue is the number of decisions that wait for a slow reader of the log.
	logQueue = 4096

	// logMost bounds the bytes that a run writes, because the program chooses how many
	// decisions there are.
	logMost = 256 << 20

	// logLimit bounds the wait for the reader of a pipe at the end.
	logLimit = 2 * time.Second
)

// Log writes decisions as lines of JSON. It never makes its callers wait: if the reader of the
// log is too slow, decisions are only counted.
type Log struct {
	to    io.WriteCloser
	queue chan Decision
	done  chan struct{}

	mu      sync.Mutex
	closed  bool
	dropped int64 // since the last line that says so
}

// lost is the line that stands for decisions that are not in the log.
type lost struct {
	Time   time.Time `json:"time"`
	Lost   int64     `json:"lost"` // number of decisions
	Reason string    `json:"reason"`
}

// NewLog returns a log, which must be closed. failed is called, at most once, if to accepts no
// more output.
func NewLog(to io.WriteCloser, failed func(error)) *Log {
	l := &Log{to: to, queue: make(chan Decision, logQueue), done: make(chan struct{})}
	go l.write(failed)
	return l
}

func (l *Log) write(failed func(error)) {
	defer close(l.done)
	written, broken := 0, false
	put := func(v any) {
		line, err := json.Marshal(v)
		if err != nil || broken {
			return
		}
		n, err := l.to.Write(append(line, '\n'))
		if written += n; err != nil {
			broken = true
			failed(err)
		}
	}
	full := false
	for d := range l.queue {
		l.mu.Lock()
		dropped := l.dropped
		l.dropped = 0
		l.mu.Unlock()
		if dropped > 0 && !full {
			put(lost{d.Time, dropped, "the log is read too slowly"})
		}
		if written >= logMost {
			if !full {
				put(lost{d.Time, 1, "the log is full; this decision and all later ones are missing"})
			}
			full = true
			continue
		}
		put(d)
	}
	if l.dropped > 0 && !full { // nobody adds decisions any more
		put(lost{time.Now(), l.dropped, "the log is read too slowly"})
	}
}

// Add queues a decision.
func (l *Log) Add(d Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	select {
	case l.queue <- d:
	default:
		l.dropped++
	}
}

// Close writes the remaining decisions, within a limited time.
func (l *Log) Close() {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return
	}
	close(l.queue)
	select {
	case <-l.done:
	case <-time.After(logLimit):
	}
	l.to.Close()
}
