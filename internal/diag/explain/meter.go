// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"sort"
	"time"

	"github.com/lklrun/lklrun/internal/diag/counters"
)

// Meter makes counters of readings of one stack: the quality of the open connections, and
// the time for which each limit applied. Their labels are interfaces, directions and limits,
// so their number does not grow with that of the connections. The zero value is ready to use.
type Meter struct {
	last    *Reading
	limited map[limited]time.Duration
}

// limited identifies a limit of all connections together.
type limited struct {
	direction string
	code      Code
	iface     string
}

// Add adds a reading, and returns the counters at its time. The limits are those that a
// report about the time since the previous reading has.
func (m *Meter) Add(r *Reading) counters.Set {
	if m.limited == nil {
		m.limited = map[limited]time.Duration{}
	}
	if m.last != nil {
		var j Judge
		j.Add(m.last)
		j.Add(r)
		for _, c := range j.Report().Connections {
			for _, l := range c.Limits {
				m.limited[limited{c.Direction, l.Code, l.Interface}] += time.Duration(l.Share * c.Seconds * float64(time.Second))
			}
		}
	}
	m.last = r
	set := quality(r)
	for l, took := range m.limited {
		set = append(set, counters.Labelled("connections.limited_us", uint64(took.Microseconds()),
			counters.Label{Name: "direction", Value: l.direction}, counters.Label{Name: "limit", Value: string(l.code)}, counters.Label{Name: "interface", Value: l.iface}))
	}
	sort.SliceStable(set, func(i, j int) bool { return set[i].Name < set[j].Name })
	return set
}

// quality returns gauges of the open TCP connections and subflows over each interface.
func quality(r *Reading) counters.Set {
	type sums struct{ open, rtt, rttMost, segments, retransmitted uint64 }
	all := map[string]*sums{}
	for name := range r.Ifaces {
		all[name] = &sums{}
	}
	for i := range r.Conns {
		c := &r.Conns[i]
		for k, sock := range c.Carriers() {
			on := all[c.Subflows[k].Iface]
			if sock.TCP == nil || on == nil {
				continue
			}
			on.open++
			on.rtt += sock.TCP.RTT.N
			on.rttMost = max(on.rttMost, sock.TCP.RTT.N)
			on.segments += sock.TCP.DataSegsOut.N
			on.retransmitted += sock.TCP.TotalRetrans.N
		}
	}
	var set counters.Set
	for name, on := range all {
		add := func(base string, n uint64) {
			set = append(set, counters.Labelled("connections."+base, n, counters.Label{Name: "interface", Value: name}))
		}
		add("open", on.open)
		add("segments", on.segments)
		add("retransmitted", on.retransmitted)
		if on.open > 0 {
			add("rtt_us", on.rtt/on.open)
			add("rtt_most_us", on.rttMost)
		}
	}
	return set
}
