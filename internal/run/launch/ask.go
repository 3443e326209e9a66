// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"

	"github.com/lklrun/lklrun/internal/diag/ask"
)

// startAsking starts to answer questions of lklctl, now that the target runs.
// Earlier questions have waited.
func (r *run) startAsking() {
	r.asked.End = r.stopServing
	ask.Handle(&r.asked, ask.Lease, r.leases.Ask)
	ask.Handle(&r.asked, ask.AddLink, r.addLink)
	ask.Handle(&r.asked, ask.DelLink, r.delLink)
	ask.Handle(&r.asked, ask.Packets, r.recorder.Ask)
	ask.Handle(&r.asked, ask.Holders, r.askHolders)
	ask.Handle(&r.asked, ask.Usage, r.askUsage)
	ask.Handle(&r.asked, ask.Gateways, r.askGateways)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.asked.Serve(ctx, r.conn)
	}()
	r.stopAsking = func() {
		cancel(errors.New("the run is ending"))
		<-done
	}
}

// askGateways answers `lklctl counters`.
func (r *run) askGateways(context.Context, struct{}, *os.File) (map[string]map[string]uint64, error) {
	counts := map[string]map[string]uint64{}
	for _, l := range r.live.all() {
		if l.host.counts != nil {
			counts[l.Name] = l.host.counts()
		}
	}
	return counts, nil
}
