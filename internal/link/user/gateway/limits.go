// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// kind is a kind of resource of which a process has a limited number.
type kind int

const (
	udpPairs   kind = iota // pairs of UDP ports
	connecting             // connections that wait for the host's connect()
	carried                // established connections
	queries                // DNS queries that wait for an answer
	entering               // connections to published ports that wait for the stack
	senders                // senders of datagrams to published ports
	kinds
)

// reserved is the number of descriptors left for the rest of lklrun, and for
// sockets that are still being closed.
const reserved = 256

// about lists for each kind its counter, its maximum number, its share of the
// descriptors, and the message when the maximum is exceeded.
var about = [kinds]struct {
	counter string
	most    int
	part    int // 1/part of the descriptors; 0: it uses none, or the rest
	words   string
}{
	udpPairs:   {"udp_evicted", 4096, 4, "more than %d UDP port pairs at once; the least recently used ones expire"},
	connecting: {"connecting_evicted", 1024, 16, "more than %d connections wait for an answer; the oldest ones to the most frequent destination are dropped and start again with their next SYN"},
	carried:    {"connections_refused", 1 << 16, 0, "more than %d connections at once; further ones are refused"},
	queries:    {"queries_evicted", 256, 16, "more than %d DNS queries wait for an answer; the oldest ones fail"},
	entering:   {"publish_evicted", 1024, 8, "more than %d connections to published ports wait for the stack; the oldest ones from the most frequent address are reset"},
	senders:    {"publish_udp_evicted", 4096, 0, "more than %d peers send datagrams to published ports; the least recently active ones expire"},
}

// tables holds the active entries of all gateways of this process, because they
// share its descriptors.
var tables = sync.OnceValue(func() [kinds]*table {
	files := unix.Rlimit{Cur: 1024}
	// The Go runtime has raised the soft limit to the hard limit. It
	// restores the old limit for child processes (os, since Go 1.19).
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	var all [kinds]*table
	for k, n := range limits(int(min(files.Cur, 1<<20))) {
		all[k] = newTable(kind(k), n)
	}
	return all
})

// limits returns the maximum of each kind for a number of descriptors.
func limits(files int) (n [kinds]int) {
	files = max(files-reserved, files/2)
	left := files
	for k, a := range about {
		n[k] = a.most
		if a.part > 0 {
			n[k] = max(min(a.most, files/a.part), 1)
			left -= n[k]
		}
	}
	left -= n[connecting] // evicted connections, until the host has closed them
	n[carried] = max(min(left, n[carried]), 1)
	return n
}

// table holds the active entries of one kind.
type table struct {
	kind kind
	most int

	mu  sync.Mutex
	all map[*entry]struct{}
	per map[netip.Addr]int // number of entries by entry.peer
}

func newTable(k kind, most int) *table {
	return &table{kind: k, most: most, all: map[*entry]struct{}{}, per: map[netip.Addr]int{}}
}

// entry is an active entry of a table.
type entry struct {
	g    *Gateway
	peer netip.Addr // the peer whose share it counts for; invalid: none
	end  func()     // evicts it, without waiting
	last atomic.Int64
}

func (e *entry) touch() { e.last.Store(time.Now().UnixNano()) }

// add adds an entry. If the table is full, add evicts another entry.
func (t *table) add(e *entry) {
	e.touch()
	t.makeRoom()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(e)
}

// tryAdd adds an entry unless the table is full.
func (t *table) tryAdd(e *entry) bool {
	t.mu.Lock()
	full := len(t.all) >= t.most
	if !full {
		t.put(e)
	}
	t.mu.Unlock()
	if full {
		e.g.limited(t.kind)
	}
	return !full
}

// full reports whether the table is full.
func (t *table) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) >= t.most
}

// makeRoom evicts entries until there is room for one more.
func (t *table) makeRoom() {
	for {
		t.mu.Lock()
		if len(t.all) < t.most {
			t.mu.Unlock()
			return
		}
		e := t.oldest()
		t.drop(e)
		t.mu.Unlock()
		e.g.limited(t.kind)
		e.end()
	}
}

// remove removes an entry that has ended.
func (t *table) remove(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.all[e]; ok {
		t.drop(e)
	}
}

func (t *table) put(e *entry) {
	t.all[e] = struct{}{}
	t.per[e.peer]++
}

func (t *table) drop(e *entry) {
	delete(t.all, e)
	if t.per[e.peer]--; t.per[e.peer] == 0 {
		delete(t.per, e.peer)
	}
}

// oldest returns the least recently used entry of the peer that has the most
// entries. Thus a peer with many entries cannot evict the entries of others.
func (t *table) oldest() (v *entry) {
	most, peer := 0, netip.Addr{}
	for p, n := range t.per {
		if n > most {
			most, peer = n, p
		}
	}
	for e := range t.all {
		if e.peer == peer && (v == nil || e.last.Load() < v.last.Load()) {
			v = e
		}
	}
	return v
}

// limited counts an eviction or refusal, and warns the user the first time.
func (g *Gateway) limited(k kind) {
	if g.counts[k].Add(1) > 1 {
		return
	}
	t := tables()[k]
	words := "the user-mode gateway has " + fmt.Sprintf(about[k].words, t.most)
	if about[k].part > 0 && t.most < about[k].most || k == carried && t.most < about[k].most {
		words += "; a higher limit on open files (ulimit -Hn) raises this"
	}
	go g.warn(words) // the terminal may block
}

// Counts returns how often each of the gateway's limits was reached.
func (g *Gateway) Counts() map[string]uint64 {
	all := map[string]uint64{}
	for k, a := range about {
		all[a.counter] = g.counts[k].Load()
	}
	all["kernel"] = 0
	if g.theKernel() != nil {
		all["kernel"] = 1
	}
	return all
}
