// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"

	"github.com/lklrun/lklrun/internal/diag/ask"
	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// questions handles the questions that lklctl sends.
type questions struct {
	ask.Mux
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
	ask.Handle(q, ask.Lease, r.links.leases.Ask)
	ask.Handle(q, ask.AddLink, r.links.addLink)
	ask.Handle(q, ask.DelLink, r.links.delLink)
	ask.Handle(q, ask.Packets, r.recorder.Ask)
	about := processes{int(r.conn.Hello().HostPID)}
	ask.Handle(q, ask.Holders, about.holders)
	ask.Handle(q, ask.Usage, about.usage)
	ask.Handle(q, ask.Gateways, r.links.gateways)
	ask.Handle(q, ask.Egress, r.links.egress)
	r.asked.serve(r.conn)
}

// gateways answers ask.Gateways with the counters of all gateways.
func (v *links) gateways(context.Context, struct{}, *os.File) (map[string]map[string]uint64, error) {
	counts := map[string]map[string]uint64{}
	for _, l := range v.all() {
		if l.host.Counts != nil {
			counts[l.Name] = l.host.Counts()
		}
	}
	return counts, nil
}

// egress answers ask.Egress. A run with rules has only one gateway.
func (v *links) egress(context.Context, struct{}, *os.File) (*egress.Account, error) {
	for _, l := range v.all() {
		if l.host.Egress != nil {
			return l.host.Egress(), nil
		}
	}
	return nil, nil
}
