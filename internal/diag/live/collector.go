// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// SnapshotLimit bounds the time to take one snapshot.
const SnapshotLimit = 5 * time.Second

// Reasons why a snapshot is missing.
var (
	// ErrEnded means that the instance has ended, or is about to.
	ErrEnded = errors.New("the instance has ended")
	// ErrPanicked means that the kernel of the stack has panicked.
	ErrPanicked = errors.New("its stack's kernel has died")
	// ErrSilent means that the stack did not answer in time, because it is stopped or
	// busy.
	ErrSilent = errors.New("the stack does not answer")
)

// Collector takes snapshots of one instance. It is not safe for concurrent use.
type Collector struct {
	conn *stackconn.Conn
	info *instance.Info
	last *sample
	// processes caches the processes of connections, by socket cookie.
	processes map[uint64][]sockdiag.Process
	round     int
}

// ownersEvery is the number of snapshots for which the processes of connections are
// cached. They are looked up again because a socket may be passed to another process.
const ownersEvery = 10

// sample is the data that is read for one snapshot.
type sample struct {
	at      time.Time
	release string

	links  []stacknet.LinkState
	addrs  []stacknet.Address
	conns  []sockdiag.Connection // plain TCP connections have no subflows
	others []sockdiag.Socket     // those that listen or are in TIME-WAIT

	retrans Value
	drops   Value
	resets  Value // sent and received
	opened  Value // TCP connections, since boot
	cpu     cpuSample
	amounts map[uint64]amount // byte counts of all sockets, by cookie
}

// New makes a Collector that uses conn. The caller still has to close conn.
func New(conn *stackconn.Conn, info *instance.Info) *Collector {
	return &Collector{conn: conn, info: info}
}

// Snapshot takes a snapshot of the instance within SnapshotLimit. Rates cover the time
// since the last successful Snapshot. The error is ErrEnded, ErrPanicked or ErrSilent if
// one of them applies.
func (c *Collector) Snapshot(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, SnapshotLimit, fmt.Errorf("%w within %v", ErrSilent, SnapshotLimit))
	defer cancel()
	now, err := c.read(ctx)
	if err != nil {
		return nil, c.reason(ctx, err)
	}
	s := newSnapshot(c.info, now, c.last)
	if err := c.attribute(ctx, s, now); err != nil {
		return nil, c.reason(ctx, err)
	}
	c.last = now
	c.round++
	return s, nil
}

// TargetCPU returns the CPU time that the program and its children have used up to the last
// snapshot.
func (c *Collector) TargetCPU() (used time.Duration) {
	if c.last != nil {
		for _, p := range c.last.cpu.target {
			used += p.CPU
		}
	}
	return used
}

// reason determines why the stack did not answer.
func (c *Collector) reason(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, stackconn.ErrClosed), errors.Is(err, syscall.ESHUTDOWN):
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case errors.Is(err, stackconn.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrSilent, err)
	case ctx.Err() != nil:
		return err
	}
	if h, herr := c.conn.Refresh(ctx); herr == nil && h.State == ctlproto.CTL_STATE_PANICKED {
		return fmt.Errorf("%w: %w", ErrPanicked, err)
	}
	return err
}

// read queries the stack for its connections, and the host for the instance's processes.
func (c *Collector) read(ctx context.Context) (*sample, error) {
	s := &sample{at: time.Now(), release: c.conn.Hello().Release}
	n, err := stacknet.Open(ctx, c.conn)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	if s.links, err = n.Links(); err != nil {
		return nil, err
	}
	if s.addrs, err = n.Addresses(); err != nil {
		return nil, err
	}
	if s.conns, s.others, err = connections(ctx, c.conn); err != nil {
		return nil, err
	}
	protocols, err := counters.Protocols(ctx, c.conn)
	if err != nil {
		return nil, err
	}
	if v, ok := protocols.Get("TcpRetransSegs"); ok {
		s.retrans = sockdiag.Known(uint64(v.Int()))
	}
	for _, name := range []string{"TcpActiveOpens", "TcpPassiveOpens"} {
		if v, ok := protocols.Get(name); ok {
			s.opened = plus(s.opened, sockdiag.Known(uint64(v.Int())))
		}
	}
	if err := s.readDrops(ctx, c.conn); err != nil {
		return nil, err
	}
	if s.cpu, err = readCPU(ctx, c.conn, c.info); err != nil {
		return nil, err
	}
	s.amounts = map[uint64]amount{}
	for _, conn := range s.conns {
		s.amounts[conn.Cookie] = bytesOf(conn)
		for _, f := range conn.Subflows {
			s.amounts[f.Cookie] = bytesOfSubflow(f)
		}
	}
	return s, nil
}

// connections lists the MPTCP connections with their subflows, and the TCP connections
// that are not subflows. Without MPTCP, a stack has only the latter. others are the sockets of
// TCP that listen or are in TIME-WAIT.
func connections(ctx context.Context, conn *stackconn.Conn) (all []sockdiag.Connection, others []sockdiag.Socket, err error) {
	mptcp, err := sockdiag.List(ctx, conn, sockdiag.MPTCP)
	if err != nil && !errors.Is(err, sockdiag.ErrUnsupported) {
		return nil, nil, err
	}
	tcp, err := sockdiag.List(ctx, conn, sockdiag.TCP)
	if err != nil {
		return nil, nil, err
	}
	joined := map[uint64]bool{}
	for _, c := range sockdiag.Tree(mptcp, tcp) {
		for _, f := range c.Subflows {
			joined[f.Cookie] = true
		}
		if connected(c.Socket) {
			all = append(all, c)
		}
	}
	for _, s := range tcp {
		// A subflow that remains from an ended MPTCP connection is not a
		// connection of the program.
		if s.Subflow == nil && !joined[s.Cookie] && connected(s) {
			all = append(all, sockdiag.Connection{Socket: s})
		}
		if s.State == sockdiag.Listen || s.State == sockdiag.TimeWait {
			others = append(others, s)
		}
	}
	return all, others, nil
}

// connected reports whether a socket belongs to a connection, or to one that is being
// established. A socket in TIME-WAIT does not belong to one, because it only waits for
// late segments.
func connected(s sockdiag.Socket) bool {
	return s.State != sockdiag.Listen && s.State != sockdiag.Close && s.State != sockdiag.TimeWait
}

// attribute sets the processes of the listed connections.
func (c *Collector) attribute(ctx context.Context, s *Snapshot, now *sample) error {
	fresh := c.processes == nil || c.round%ownersEvery == 0
	for i := range s.Connections {
		if _, ok := c.processes[s.Connections[i].Sockets.Cookie]; !ok {
			fresh = true
		}
	}
	if fresh {
		sockets := make([]sockdiag.Socket, len(now.conns))
		for i, conn := range now.conns {
			sockets[i] = conn.Socket
		}
		if err := owners.Attribute(ctx, c.conn, sockets); err != nil {
			return err
		}
		c.processes = make(map[uint64][]sockdiag.Process, len(sockets))
		for _, sock := range sockets {
			c.processes[sock.Cookie] = sock.Processes
		}
	}
	for i := range s.Connections {
		conn := &s.Connections[i]
		conn.Sockets.Processes = c.processes[conn.Sockets.Cookie]
		if p := conn.Sockets.Processes; len(p) > 0 {
			conn.Process, conn.PID = p[0].Comm, p[0].PID
		}
	}
	return nil
}

// readDrops reads how many packets were dropped and how many connections were reset. Frames for
// other machines are no loss. A kernel that does not report them leaves both absent.
func (s *sample) readDrops(ctx context.Context, conn *stackconn.Conn) error {
	counts, err := drops.Counts(ctx, conn)
	if errors.Is(err, drops.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	s.drops, s.resets = sockdiag.Known(0), sockdiag.Known(0)
	for _, c := range counts {
		switch c.Kind {
		case drops.Drop:
			if c.Reason != drops.OtherHost {
				s.drops.N += c.Count
			}
		case drops.ResetSent, drops.ResetReceived:
			s.resets.N += c.Count
		}
	}
	return nil
}

// LinkSampler samples only the interfaces of one instance, which costs less than a
// Snapshot. It is not safe for concurrent use.
type LinkSampler struct {
	conn *stackconn.Conn
	last map[int]amount // byte counts of the last sample, by interface index
	at   time.Time
}

// NewLinkSampler makes a LinkSampler that uses conn. The caller still has to close conn.
func NewLinkSampler(conn *stackconn.Conn) *LinkSampler { return &LinkSampler{conn: conn} }

// Sample returns the interfaces, ordered by index. Rates cover the time since the last
// successful Sample.
func (s *LinkSampler) Sample(ctx context.Context) ([]Link, error) {
	n, err := stacknet.Open(ctx, s.conn)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	at := time.Now()
	links, err := n.Links()
	if err != nil {
		return nil, err
	}
	addrs, err := n.Addresses()
	if err != nil {
		return nil, err
	}
	var took time.Duration
	if s.last != nil {
		took = at.Sub(s.at)
	}
	all := newLinks(links, addrs, s.last, took)
	s.at, s.last = at, map[int]amount{}
	for _, l := range links {
		s.last[l.Index] = bytesOfLink(l)
	}
	return all, nil
}
