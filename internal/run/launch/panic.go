// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"

	"github.com/lklrun/lklrun/internal/run/postmortem"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// samplers returns the service that samples the stack for a bundle. It returns
// nil if the run uses the host's kernel.
func samplers(r *run) service {
	if r.plan.Stack.Library == "" {
		return nil
	}
	r.sampler = postmortem.NewSampler(r.conn, r.log)
	return r.sampler
}

// gather builds the bundle of a panicked kernel.
func (r *run) gather(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	r.post = postmortem.Gather(ctx, postmortem.Run{
		Conn: r.conn, Dir: r.dir, State: r.files.now(), Look: r.sampler.Last(), Packets: r.recorder.AddPackets,
	}, why)
}

// gatherLate is like gather, for a panic that made a step of the start fail.
func (r *run) gatherLate(ctx context.Context) {
	if r.post != nil || r.conn == nil || r.dir == nil || r.host.Unresponsive {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if h, err := r.conn.Refresh(ctx); err == nil && h.State == ctlproto.CTL_STATE_PANICKED {
		r.gather(ctx, "the stack's kernel panicked")
	}
}

// keepBundle writes the bundle after all other changes are undone, so that a
// slow disk delays nothing else. The path of the bundle is reported together
// with the panic.
func (r *run) keepBundle(err error) {
	var p *PanicError
	if r.post == nil || !errors.As(err, &p) {
		return
	}
	path, kerr := r.post.Keep()
	p.Bundle = path
	if kerr != nil {
		p.NoBundle = kerr.Error()
	}
}
