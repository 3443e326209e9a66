// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// questions handles the questions that lklctl sends.
type questions struct {
	rpc.Mux
	stop func() // nil: answering has not started yet
}

// serve starts to answer questions that arrive over conn.
func (q *questions) serve(conn *stackconn.Conn) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Serve(ctx, conn)
	}()
	q.stop = func() {
		cancel(errors.New("the run is ending"))
		<-done
	}
}

// end stops answering.
func (q *questions) end() {
	if q.stop != nil {
		q.stop()
	}
}

// startAsking starts to answer questions of lklctl. It is called when the
// target runs. Questions that arrived earlier have waited until now.
func (r *run) startAsking() {
	q := &r.asked.Mux
	q.End = r.stopServing
	rpc.Handle(q, rpc.Lease, r.links.leases.Ask)
	rpc.Handle(q, rpc.AddLink, r.links.addLink)
	rpc.Handle(q, rpc.DelLink, r.links.delLink)
	rpc.Handle(q, rpc.Packets, r.recorder.Ask)
	about := processes{int(r.conn.Hello().HostPID)}
	rpc.Handle(q, rpc.Holders, about.holders)
	rpc.Handle(q, rpc.Usage, about.usage)
	rpc.Handle(q, rpc.Gateways, r.links.gateways)
	rpc.Handle(q, rpc.Egress, r.links.egress)
	rpc.Handle(q, rpc.EgressRules, r.links.egressRules)
	rpc.Handle(q, rpc.EgressChange, r.links.egressChange)
	rpc.Handle(q, rpc.TunnelPeers, r.links.tunnelPeers)
	r.asked.serve(r.conn)
}

// gateways answers rpc.Gateways with the counters of all gateways.
func (v *links) gateways(context.Context, struct{}, *os.File) (map[string]map[string]uint64, error) {
	counts := map[string]map[string]uint64{}
	for _, l := range v.all() {
		if l.host.Counts != nil {
			counts[l.Name] = l.host.Counts()
		}
	}
	return counts, nil
}

// tunnelPeers answers rpc.TunnelPeers.
func (v *links) tunnelPeers(context.Context, struct{}, *os.File) (map[string][]rpc.TunnelPeer, error) {
	all := map[string][]rpc.TunnelPeer{}
	for _, l := range v.all() {
		if l.host.TunnelPeers != nil {
			all[l.Name] = l.host.TunnelPeers()
		}
	}
	return all, nil
}

// egress answers rpc.Egress. A run with rules has only one gateway.
func (v *links) egress(context.Context, struct{}, *os.File) (*egress.Account, error) {
	for _, l := range v.all() {
		if l.host.Egress != nil {
			return l.host.Egress(), nil
		}
	}
	return nil, nil
}

// egressChange answers rpc.EgressChange.
func (v *links) egressChange(_ context.Context, c egress.Change, _ *os.File) (none struct{}, err error) {
	var parsed [2][]config.Allow
	for n, rules := range [][]string{c.Add, c.Remove} {
		for _, rule := range rules {
			a, err := config.ParseAllow(rule)
			if err != nil {
				return none, rpc.Usagef("%v", err)
			}
			parsed[n] = append(parsed[n], a)
		}
	}
	for _, l := range v.all() {
		if l.host.ChangeEgress != nil {
			if err := l.host.ChangeEgress(parsed[0], parsed[1]); err != nil {
				return none, rpc.Usagef("%v", err)
			}
			return none, nil
		}
	}
	return none, rpc.Usagef("%v", egress.ErrNoRules)
}

// nameProcesses lets the logs of gateways find the processes of sockets.
func (v *links) nameProcesses(f *owners.Finder) {
	find := func(protocol string, from, to netip.AddrPort) (all []egress.Process, err error) {
		held, err := f.Processes(protocol, from, to)
		for _, p := range held[:min(len(held), processMost)] {
			all = append(all, egress.Process{PID: p.PID, Comm: p.Comm})
		}
		return all, err
	}
	for _, l := range v.all() {
		if l.host.NameProcesses != nil {
			l.host.NameProcesses(find)
		}
	}
}

// egressRules answers rpc.EgressRules.
func (v *links) egressRules(_ context.Context, from int, _ *os.File) (egress.Policy, error) {
	for _, l := range v.all() {
		if l.host.EgressRules != nil {
			return l.host.EgressRules(from), nil
		}
	}
	return egress.Policy{}, nil
}
