// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/impair"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// Watcher takes readings of one instance. It is not safe for concurrent use.
type Watcher struct {
	conn  *stackconn.Conn
	info  *instance.Info
	live  *live.Collector
	drops *drops.Reader // nil if the stack does not report drops
	udp   *listener     // nil unless Listen was called

	ports   [2]uint16
	rcvMost uint64

	trackingMost uint64
}

// NewWatcher makes a Watcher that uses conn. The caller must close it, and still has to
// close conn.
func NewWatcher(ctx context.Context, conn *stackconn.Conn, info *instance.Info) (*Watcher, error) {
	w := &Watcher{conn: conn, info: info, live: live.New(conn, info)}
	w.settings(ctx)
	r, err := drops.Open(ctx, conn, drops.Drops)
	if errors.Is(err, drops.ErrUnsupported) {
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	w.drops = r
	return w, nil
}

// Listen adds UDP to the following readings.
func (w *Watcher) Listen(ctx context.Context) (err error) {
	w.udp, err = listen(ctx, w.conn, w.info.Engine)
	return err
}

// Close ends the use of the connection.
func (w *Watcher) Close() error {
	if w.udp != nil {
		w.udp.close()
	}
	if w.drops == nil {
		return nil
	}
	return w.drops.Close()
}

// Read takes a reading.
func (w *Watcher) Read(ctx context.Context) (*Reading, error) {
	s, err := w.live.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	r := &Reading{At: s.Time, Conns: s.Connections, Others: s.Others, Ifaces: map[string]Iface{}}
	r.CPU = w.usage(s.Connections)
	if r.CPU.Inside && r.CPU.Known {
		r.CPU.Stack = r.CPU.Target
	}
	for _, l := range s.Links {
		i := Iface{TxBytes: l.TxBytes.N, RxBytes: l.RxBytes.N}
		for _, own := range w.info.Interfaces {
			i.Gateway = i.Gateway || own.Name == l.Name && own.Type == config.DefaultType
		}
		r.Ifaces[l.Name] = i
	}
	if err := w.queues(ctx, r); err != nil {
		return nil, err
	}
	if protocols, err := counters.Protocols(ctx, w.conn); err == nil {
		for _, name := range []string{"TcpActiveOpens", "TcpPassiveOpens"} {
			v, _ := protocols.Get(name)
			r.Opened += uint64(v.Int())
		}
	}
	if w.drops != nil {
		if r.Drops, err = w.drops.Read(ctx); err != nil {
			return nil, err
		}
	}
	if w.udp != nil {
		if err := w.udp.add(ctx, r); err != nil {
			return nil, err
		}
	}
	r.Ports, r.RcvMost, r.TrackingMost = w.ports, w.rcvMost, w.trackingMost
	r.Tracking = drops.ReadTracking(ctx, w.conn)
	return r, nil
}

// settings reads the sysctls that evidence depends on. A stack without them leaves zeros.
func (w *Watcher) settings(ctx context.Context) {
	var ignored uint64
	for key, into := range map[string][]any{
		"net.ipv4.ip_local_port_range":   {&w.ports[0], &w.ports[1]},
		"net.netfilter.nf_conntrack_max": {&w.trackingMost},
		"net.ipv4.tcp_rmem":              {&ignored, &ignored, &w.rcvMost},
	} {
		if value, err := stacknet.GetSysctl(ctx, w.conn, key); err == nil {
			_, _ = fmt.Sscan(value, into...) // as above
		}
	}
}

// queues reads the queueing disciplines and the impairments.
func (w *Watcher) queues(ctx context.Context, r *Reading) error {
	set, err := counters.Devices(ctx, w.conn)
	if err != nil {
		return err
	}
	for i := range set {
		name, field, ok := strings.Cut(set[i].Name, ".qdisc.root.")
		on, known := r.Ifaces[name]
		if !ok || !known {
			continue
		}
		n := uint64(set[i].Value.Int())
		switch field {
		case "backlog":
			on.Backlog = n
		case "drops":
			on.Drops = n
		case "overlimits":
			on.Overlimits = n
		}
		for _, l := range set[i].Labels {
			if l.Name == "kind" {
				on.Qdisc = l.Value
			}
		}
		r.Ifaces[name] = on
	}
	if w.conn.Hello().ABI == ctlproto.CTL_ABI_HOST {
		return nil
	}
	p, err := impair.Open(ctx, w.conn)
	if err != nil {
		return err
	}
	defer p.Close()
	paths, err := p.List()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if on, ok := r.Ifaces[path.Name]; ok {
			on.Ways = path.Ways
			r.Ifaces[path.Name] = on
		}
	}
	return nil
}

// gatewayKernels returns the children of lklrun in which the TCP connections of gateways end.
func gatewayKernels(lklrun int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("%s/%d/task/*/children", procstat.Root, lklrun)) // the pattern is valid
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // fails if the thread has ended
		for _, child := range strings.Fields(string(children)) {
			args, _ := os.ReadFile(filepath.Join(procstat.Root, child, "cmdline")) // the same for the process
			if pid, err := strconv.Atoi(child); err == nil && strings.Contains(string(args), "\x00--gateway\x00") {
				all = append(all, pid)
			}
		}
	}
	return all
}

// usage reads the CPU time of the run's processes. It is unknown for a run on another
// machine.
func (w *Watcher) usage(conns []live.Connection) (u Usage) {
	host := int(w.conn.Hello().HostPID)
	u.Inside = w.info.Engine == config.EnginePreload
	if host == 0 {
		return u
	}
	var ok bool
	if u.Stack, u.StackWait, ok = scheduled(fmt.Sprintf("%s/%d/schedstat", procstat.Root, host)); !ok { // of the thread that runs the kernel
		return u
	}
	u.Known = true
	for _, pid := range append(gatewayKernels(w.info.PID), w.info.PID) {
		for _, thread := range threads(pid) {
			run, wait, _ := scheduled(thread)
			u.Gateway, u.GatewayWait = u.Gateway+run, u.GatewayWait+wait
		}
	}
	u.Target, u.Threads, u.Stopped = w.live.TargetCPU(), map[int]map[string]time.Duration{}, map[int]bool{}
	for i := range conns {
		for _, p := range conns[i].Sockets.Processes {
			stat, err := procstat.Read(procstat.Root, p.PID)
			u.Stopped[p.PID] = err == nil && stat.Stopped
		}
		pid := conns[i].PID
		if pid == 0 || u.Threads[pid] != nil {
			continue
		}
		u.Threads[pid] = map[string]time.Duration{}
		for _, thread := range threads(pid) {
			run, wait, _ := scheduled(thread)
			u.Threads[pid][thread] = run + wait
		}
	}
	return u
}

// threads returns the names of the files for scheduled of the threads of a process.
func threads(pid int) []string {
	all, _ := filepath.Glob(fmt.Sprintf("%s/%d/task/*/schedstat", procstat.Root, pid)) // the pattern is valid
	return all
}

// scheduled returns how long a thread ran, and how long it waited for a core
// (Documentation/scheduler/sched-stats.rst).
func scheduled(path string) (run, wait time.Duration, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	var ran, waited int64
	if _, err := fmt.Sscan(string(text), &ran, &waited); err != nil {
		return 0, 0, false
	}
	return time.Duration(ran), time.Duration(waited), true
}

// Every is the time between two readings of Observe.
const Every = 100 * time.Millisecond

// Observe takes readings for the time d, and reports. While a program waits for an answer over UDP,
// and no connection carries data, it continues until the time most: a resolver repeats a query only
// after five seconds. If the run ends earlier, the report covers the time until then.
func Observe(ctx context.Context, conn *stackconn.Conn, info *instance.Info, d, most time.Duration) (_ *Report, err error) {
	w, err := NewWatcher(ctx, conn, info)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := w.Close(); err == nil && conn.Err() == nil {
			err = cerr
		}
	}()
	if err := w.Listen(ctx); err != nil {
		return nil, err
	}
	j := &Judge{}
	tick := time.NewTicker(min(Every, d))
	defer tick.Stop()
	begin := time.Now()
	for over, open := false, false; !over; {
		r, err := w.Read(ctx)
		if errors.Is(err, live.ErrEnded) && j.last != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		j.Add(r)
		// A reading may have the end of a socket, and the next one the packets before it.
		took, was := r.At.Sub(begin), open
		open = j.open()
		over = took > d && (took > most || !open && !was)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-conn.Done():
			over = true
		case <-tick.C:
		}
	}
	if conn.Err() == nil {
		if err := w.udp.routes(ctx, info, j.last); err != nil {
			return nil, err
		}
	}
	rep := j.Report()
	rep.Instance = info.Name
	if conn.Err() != nil {
		return rep, nil
	}
	return rep, WhyNot(ctx, conn, info, rep)
}

// WhyNot adds the reasons for missing subflows and plain TCP.
func WhyNot(ctx context.Context, conn *stackconn.Conn, info *instance.Info, r *Report) error {
	conns, err := sockdiag.Connections(ctx, conn)
	if errors.Is(err, sockdiag.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	reasons, err := mptcpdiag.Explain(ctx, conn, conns, info.Interfaces)
	if err != nil {
		return err
	}
	for i := range r.Connections {
		for k := range conns {
			if conns[k].Cookie == r.Connections[i].Cookie {
				r.Connections[i].WhyNot = reasons[k]
			}
		}
	}
	return nil
}
