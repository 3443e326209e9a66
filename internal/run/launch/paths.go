// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"

	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/paths"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// pathKeeper makes each link of the run a path of its own and keeps these paths
// up to date.
type pathKeeper struct{ *paths.Keeper }

// keepPaths makes the keeper of the links' paths.
func (v *links) keepPaths(ctx context.Context) {
	v.paths = &pathKeeper{paths.New(ctx, v.conn, v.wantedPaths, v.log)}
}

// Start creates the paths of the present links. The keeper ends with the
// context that it was created with, which is that of the start.
func (k *pathKeeper) Start(context.Context) error {
	if err := k.Keeper.Start(); err != nil {
		return fmt.Errorf("configuring the interfaces as separate paths: %w", err)
	}
	return nil
}

// wantedPaths returns the paths that the links need now.
func (v *links) wantedPaths() []paths.Want {
	var wants []paths.Want
	for _, l := range v.all() {
		w := wantedPath(l.Link)
		w.Cut = l.cut.Load()
		wants = append(wants, w)
	}
	return wants
}

func wantedPath(l *plan.Link) paths.Want {
	w := paths.Want{Name: stackDevice(l), Table: l.Table}
	if !l.Endpoint {
		return w
	}
	// An announced address (signal) is for the peer to connect to.
	w.Endpoint = stacknet.EndpointSubflow
	if l.Signal {
		w.Endpoint = stacknet.EndpointSignal
	}
	if l.Backup {
		w.Endpoint |= stacknet.EndpointBackup
	}
	if l.Fullmesh {
		w.Endpoint |= stacknet.EndpointFullmesh
	}
	return w
}
