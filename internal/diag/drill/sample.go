// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Limits of a timeline: samples of flows, and flows.
const (
	leastInterval   = 100 * time.Millisecond
	mostSamples     = 3000
	mostConnections = 256
	mostEvents      = 10000
)

// interval is the time between samples of the connections.
func (s *Script) interval() time.Duration { return max(leastInterval, s.End/mostSamples) }

// watcher follows the connections of a stack.
type watcher struct {
	conn    *stackconn.Conn
	began   time.Time
	t       *Timeline
	known   map[uint64]int    // connections, by cookie
	subflow map[uint64][2]int // subflows, by cookie: connection and subflow
	ifaces  map[netip.Addr]string
}

func newWatcher(conn *stackconn.Conn, instance string) *watcher {
	now := time.Now()
	return &watcher{
		conn: conn, began: now, known: map[uint64]int{}, subflow: map[uint64][2]int{}, ifaces: map[netip.Addr]string{},
		t: &Timeline{Instance: instance, Started: now, Times: []float64{}, Steps: []Done{}, Events: []Event{}, Connections: []Connection{}},
	}
}

func (w *watcher) now() float64 { return time.Since(w.began).Seconds() }

// look records what every connection has carried so far.
func (w *watcher) look(ctx context.Context) error {
	mptcp, err := sockdiag.List(ctx, w.conn, sockdiag.MPTCP)
	if err != nil {
		return err
	}
	tcp, err := sockdiag.List(ctx, w.conn, sockdiag.TCP)
	if err != nil {
		return err
	}
	w.t.Times = append(w.t.Times, w.now())
	conns := sockdiag.Tree(mptcp, tcp)
	part := map[uint64]bool{}
	for _, c := range conns {
		for _, s := range c.Subflows {
			part[s.Cookie] = true
		}
	}
	for _, s := range tcp {
		if !part[s.Cookie] && s.Subflow == nil {
			conns = append(conns, sockdiag.Connection{Socket: s, Subflows: []sockdiag.Socket{s}})
		}
	}
	fresh := []sockdiag.Socket{}
	for _, c := range conns {
		if _, known := w.known[c.Cookie]; !known && counted(c.Socket) {
			fresh = append(fresh, c.Socket)
		}
	}
	if len(fresh) > 0 {
		if err := w.about(ctx, fresh); err != nil {
			return err
		}
	}
	for _, c := range conns {
		w.note(c, fresh)
	}
	return nil
}

// counted reports whether a socket is a connection with counters.
func counted(s sockdiag.Socket) bool {
	switch s.State {
	case sockdiag.Listen, sockdiag.TimeWait, sockdiag.Close:
		return false
	}
	return s.Remote.Port() != 0
}

// about finds the owners of sockets and the addresses of the stack.
func (w *watcher) about(ctx context.Context, fresh []sockdiag.Socket) error {
	if err := owners.Attribute(ctx, w.conn, fresh); err != nil {
		return err
	}
	return w.addresses(ctx)
}

func (w *watcher) addresses(ctx context.Context) error {
	links, err := stacknet.Links(ctx, w.conn)
	if err != nil {
		return err
	}
	addrs, err := stacknet.Addresses(ctx, w.conn)
	if err != nil {
		return err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	for _, a := range addrs { // removed addresses are kept, for the subflows that use them
		w.ifaces[a.Prefix.Addr()] = names[a.IfIndex]
	}
	return nil
}

// note records the bytes of a connection.
func (w *watcher) note(c sockdiag.Connection, fresh []sockdiag.Socket) {
	if !counted(c.Socket) {
		return
	}
	n, known := w.known[c.Cookie]
	if !known {
		if len(w.t.Connections) == mostConnections {
			w.t.Omitted++
			w.known[c.Cookie] = -1
			return
		}
		n = len(w.t.Connections)
		w.known[c.Cookie] = n
		conn := Connection{Proto: string(c.Proto), Subflows: []Subflow{}}
		for _, s := range fresh {
			if s.Cookie == c.Cookie && len(s.Processes) > 0 {
				conn.Process, conn.PID = s.Processes[0].Comm, s.Processes[0].PID
			}
		}
		w.t.Connections = append(w.t.Connections, conn)
	}
	if n < 0 {
		return
	}
	conn := &w.t.Connections[n]
	var sum count
	var retrans *uint64
	for _, s := range c.Subflows {
		if counted(s) {
			w.noteSubflow(n, s, &sum, &retrans)
		}
	}
	if m := c.MPTCP; m != nil {
		conn.Fallback = m.Fallback
		if m.Token.Known {
			conn.Token = fmt.Sprintf("%08x", m.Token.N)
		}
		// The data level counts each byte once; Linux 6.5 and later reports it.
		if m.BytesAcked.Known && m.BytesRecv.Known && !m.Fallback {
			sum = count{m.BytesAcked.N, m.BytesRecv.N}
		}
	}
	w.add(&conn.Flow, c.Socket, sum)
	if retrans != nil {
		conn.Retrans = retrans
	}
}

// noteSubflow records the bytes of one subflow, and adds them to the sums.
func (w *watcher) noteSubflow(n int, s sockdiag.Socket, sum *count, retrans **uint64) {
	conn := &w.t.Connections[n]
	at, known := w.subflow[s.Cookie]
	if !known {
		at = [2]int{n, len(conn.Subflows)}
		w.subflow[s.Cookie] = at
		conn.Subflows = append(conn.Subflows, Subflow{Iface: w.ifaces[s.Local.Addr().Unmap()]})
	}
	if at[0] != n {
		return
	}
	f := &conn.Subflows[at[1]]
	if s.Subflow != nil {
		f.Backup = s.Subflow.Flags.Backup()
	}
	if s.TCP == nil {
		return
	}
	now := count{s.TCP.BytesAcked.N, s.TCP.BytesRecv.N}
	w.add(&f.Flow, s, now)
	sum.tx += now.tx
	sum.rx += now.rx
	if r := s.TCP.TotalRetrans; r.Known {
		f.Retrans = &r.N
	}
	// Subflows that have ended count, too.
	total := uint64(0)
	for i := range conn.Subflows {
		if r := conn.Subflows[i].Retrans; r != nil {
			total += *r
			*retrans = &total
		}
	}
}

// add records a count at the last sample time.
func (w *watcher) add(f *Flow, s sockdiag.Socket, now count) {
	n := len(w.t.Times) - 1
	if len(f.counts) == 0 {
		f.Local, f.Remote, f.first = s.Local.String(), s.Remote.String(), n
		if n == 0 { // it existed before
			f.base = now
		}
	}
	for len(f.counts) < n-f.first { // it was missing in a few samples
		f.counts = append(f.counts, f.counts[len(f.counts)-1])
	}
	f.counts = append(f.counts, now)
}
