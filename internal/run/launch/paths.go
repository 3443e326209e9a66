// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"

	"github.com/lklrun/lklrun/internal/stack/paths"
)

// pathKeeper maintains a separate path for each link of the run.
type pathKeeper struct{ *paths.Keeper }

// keepPaths creates the pathKeeper.
func (v *links) keepPaths(ctx context.Context) {
	v.paths = &pathKeeper{paths.New(ctx, v.conn, v.wantedPaths, v.log)}
}

// Start creates the paths of the current links. The keeper ends with the context
// of the start, with which it was created.
func (k *pathKeeper) Start(context.Context) error {
	if err := k.Keeper.Start(); err != nil {
		return fmt.Errorf("configuring the interfaces as separate paths: %w", err)
	}
	return nil
}

// wantedPaths returns the paths that the current links need.
func (v *links) wantedPaths() []paths.Want {
	var wants []paths.Want
	for _, l := range v.all() {
		w := l.Path()
		w.Cut = l.cut.Load()
		wants = append(wants, w)
	}
	return wants
}
