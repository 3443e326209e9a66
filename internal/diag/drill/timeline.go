// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"time"
)

// Timeline describes what each connection did while a script ran. Times are in seconds
// since the script's start.
type Timeline struct {
	Instance string    `json:"instance"`   // the instance's name
	Started  time.Time `json:"started"`    // when the script began
	Seconds  float64   `json:"duration_s"` // how long it was looked on
	Times    []float64 `json:"times_s"`    // when the connections were looked at; the rates are between two of these

	Steps       []Done       `json:"steps"`             // in their order
	Events      []Event      `json:"events"`            // of MPTCP: connections, addresses, subflows that came and went
	Connections []Connection `json:"connections"`       // in the order in which they were seen
	Omitted     int          `json:"connections_more"`  // further ones, which were not followed
	Lost        int          `json:"events_lost"`       // events that were not kept, as there were too many
	Stopped     string       `json:"stopped,omitempty"` // why it ended before its time
}

// Done is a step that was made.
type Done struct {
	Mark    string  `json:"mark"`            // a letter, by which the rows refer to it
	Planned float64 `json:"planned_s"`       // when it should be made
	At      float64 `json:"at_s"`            // when it had been
	Iface   string  `json:"if"`              // the interface
	Step    string  `json:"step"`            // its words
	Error   string  `json:"error,omitempty"` // why it could not be made
}

// Event is an event of an MPTCP connection or one of its subflows.
type Event struct {
	At     float64 `json:"at_s"`             // seconds from the start
	Kind   string  `json:"event"`            // as ip-mptcp(8) monitor says: SF_ESTABLISHED, SF_CLOSED, ...
	Token  string  `json:"token"`            // of the connection, 8 hexadecimal digits
	Iface  string  `json:"if,omitempty"`     // of the subflow
	Local  string  `json:"local,omitempty"`  // its addresses
	Remote string  `json:"remote,omitempty"` // its addresses
	Reason string  `json:"reason,omitempty"` // why it ended, where that is known
}

// Flow describes what a connection, or a subflow, carried during the script.
type Flow struct {
	Local    string     `json:"local"`             // ADDRESS:PORT
	Remote   string     `json:"remote"`            // ADDRESS:PORT
	Appeared float64    `json:"appeared_s"`        // when it was seen first
	Ended    *float64   `json:"ended_s,omitempty"` // when it was seen no more
	Sent     uint64     `json:"bytes_sent"`        // that were acknowledged
	Received uint64     `json:"bytes_received"`    // same for received bytes
	Retrans  *uint64    `json:"retrans,omitempty"` // segments that were sent again
	TxRates  []*float64 `json:"tx_bit_s"`          // acknowledged, by times_s; null: it was not there
	RxRates  []*float64 `json:"rx_bit_s"`          // received, same form
	Phases   []Phase    `json:"phases"`            // from one step to the next

	counts []count // by sample, starting with first
	first  int     // the first sample in which it existed
	base   count   // what it had carried before
}

// Phase describes a flow from one step to the next.
type Phase struct {
	After string   `json:"after"`              // the mark of the step; empty: before the first
	TX    *float64 `json:"tx_bit_s,omitempty"` // on average, while it was there
	RX    *float64 `json:"rx_bit_s,omitempty"` // received, same unit
	Stall *float64 `json:"stall_s,omitempty"`  // the longest time without progress that began in it
}

// Connection is a connection with its subflows.
type Connection struct {
	Flow
	Proto    string    `json:"proto"`                // mptcp or tcp
	Process  string    `json:"process,omitempty"`    // whose it is
	PID      int       `json:"pid,omitempty"`        // of the process
	Token    string    `json:"token,omitempty"`      // of an MPTCP connection, 8 hexadecimal digits
	Fallback bool      `json:"fallback,omitempty"`   // it became plain TCP
	Stall    float64   `json:"longest_stall_s"`      // the longest time without a byte between two that came
	StallAt  float64   `json:"longest_stall_at_s"`   // when it began
	Standing *float64  `json:"standing_s,omitempty"` // how long it had had no progress at the end
	Subflows []Subflow `json:"subflows"`             // of a TCP connection: itself
}

// Subflow is one of a connection's TCP sockets.
type Subflow struct {
	Flow
	Iface  string `json:"if,omitempty"`     // its interface
	Backup bool   `json:"backup,omitempty"` // it carries nothing as long as others do
}

// count is what a flow had carried at a sample.
type count struct{ tx, rx uint64 }

// there reports whether the flow existed at sample n.
func (f *Flow) there(n int) bool { return n >= f.first && n < f.first+len(f.counts) }

// at returns the count at sample n; before or after its life, the nearest one.
func (f *Flow) at(n int) count {
	switch {
	case n < f.first || len(f.counts) == 0:
		return f.base
	case !f.there(n):
		return f.counts[len(f.counts)-1]
	}
	return f.counts[n-f.first]
}

// rate is the rate in bit/s between the samples from and to; nil if it did not exist.
func (f *Flow) rate(times []float64, from, to int) (tx, rx *float64) {
	// A new flow has carried its bytes since the sample before.
	first := max(from, f.first-1)
	last := min(to, f.first+len(f.counts)-1)
	if last <= first || first < 0 {
		return nil, nil
	}
	a, b, took := f.at(first), f.at(last), times[last]-times[first]
	if took <= 0 {
		return nil, nil
	}
	bits := func(a, b uint64) *float64 {
		r := float64(max(a, b)-a) * 8 / took
		return &r
	}
	return bits(a.tx, b.tx), bits(a.rx, b.rx)
}

// finish computes the results of a flow from its counts.
func (f *Flow) finish(t *Timeline) {
	n := len(t.Times)
	end := f.at(n)
	f.Sent, f.Received = max(end.tx, f.base.tx)-f.base.tx, max(end.rx, f.base.rx)-f.base.rx
	f.Appeared = t.Times[f.first]
	if last := f.first + len(f.counts); last < n {
		f.Ended = &t.Times[last]
	}
	f.TxRates, f.RxRates = make([]*float64, n), make([]*float64, n)
	for i := 1; i < n; i++ {
		f.TxRates[i], f.RxRates[i] = f.rate(t.Times, i-1, i)
	}
	f.Phases = []Phase{}
	stalls := f.stalls()
	for _, p := range t.phases() {
		phase := Phase{After: p.mark}
		phase.TX, phase.RX = f.rate(t.Times, p.from, p.to)
		for _, s := range stalls {
			if s.from >= p.from && s.from < p.to && (phase.Stall == nil || s.took(t.Times) > *phase.Stall) {
				took := s.took(t.Times)
				phase.Stall = &took
			}
		}
		f.Phases = append(f.Phases, phase)
	}
}

// span is a time interval.
type span struct {
	mark     string
	from, to int
}

func (s span) took(times []float64) float64 { return times[s.to] - times[s.from] }

// phases are the intervals between steps.
func (t *Timeline) phases() []span {
	if len(t.Times) == 0 {
		return nil
	}
	last := len(t.Times) - 1
	all := []span{{"", 0, last}}
	for _, d := range t.Steps {
		n := 0
		for n < last && t.Times[n] < d.At {
			n++
		}
		all[len(all)-1].to = n
		all = append(all, span{d.Mark, n, last})
	}
	return all
}

// stalls are the intervals without progress that are longer than one sample.
func (f *Flow) stalls() []span {
	var all []span
	last := -1
	for n := max(f.first, 1); f.there(n); n++ {
		if f.at(n) == f.at(n-1) {
			continue
		}
		if last >= 0 && n-last > 1 {
			all = append(all, span{"", last, n})
		}
		last = n
	}
	return all
}

// standing is the time without progress at the end; nil if the flow has ended or never
// made progress.
func (f *Flow) standing(times []float64) *float64 {
	last := len(times) - 1
	if !f.there(last) {
		return nil
	}
	for n := last; n > 0 && f.there(n); n-- {
		if f.at(n) != f.at(n-1) {
			if took := times[last] - times[n]; n < last-1 {
				return &took
			}
			return nil
		}
	}
	return nil
}

// finish computes all results from the counts.
func (t *Timeline) finish() {
	if len(t.Times) == 0 {
		return
	}
	for i := range t.Connections {
		c := &t.Connections[i]
		c.finish(t)
		for _, s := range c.stalls() {
			if took := s.took(t.Times); took > c.Stall {
				c.Stall, c.StallAt = took, t.Times[s.from]
			}
		}
		c.Standing = c.standing(t.Times)
		for k := range c.Subflows {
			c.Subflows[k].finish(t)
		}
	}
}
