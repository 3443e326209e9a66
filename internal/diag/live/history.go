// SPDX-License-Identifier: Apache-2.0

package live

// History keeps the last values of several series, by key, to draw them as lines. The
// number of values per series is limited. History drops series that are not in the last
// snapshot.
type History struct {
	length int
	series map[string]*ring
	round  int
}

type ring struct {
	values []Value // a ring buffer once it is full
	next   int
	round  int // round of the last value
}

// NewHistory makes a History that keeps at most length values per series.
func NewHistory(length int) *History {
	return &History{length: length, series: map[string]*ring{}}
}

// Add adds a snapshot: the rates of its interfaces (key LinkKey), of the listed
// connections and their subflows (key ID), and of the totals (key ""). It drops series
// that are not in the snapshot.
func (h *History) Add(s *Snapshot) {
	h.round++
	h.put("", s.Totals.TxRate, s.Totals.RxRate)
	for _, l := range s.Links {
		h.put(LinkKey(l.Name), l.TxRate, l.RxRate)
	}
	for _, c := range s.Connections {
		h.put(c.ID, c.TxRate, c.RxRate)
		for _, f := range c.Subflows {
			if f.ID != c.ID {
				h.put(f.ID, f.TxRate, f.RxRate)
			}
		}
	}
	for key, r := range h.series {
		if r.round != h.round {
			delete(h.series, key)
		}
	}
}

// LinkKey returns the key of an interface's series.
func LinkKey(name string) string { return "link " + name }

// put adds the sum of two rates to the series with the given key.
func (h *History) put(key string, tx, rx Value) {
	r := h.series[key]
	if r == nil {
		r = &ring{}
		h.series[key] = r
	}
	r.round = h.round
	v := plus(tx, rx)
	if len(r.values) < h.length {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % h.length
}

// Rates returns the values of a series in bits per second, sent plus received, the oldest
// first.
func (h *History) Rates(key string) []Value {
	r := h.series[key]
	if r == nil {
		return nil
	}
	return append(append([]Value{}, r.values[r.next:]...), r.values[:r.next]...)
}
