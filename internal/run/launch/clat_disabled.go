// SPDX-License-Identifier: Apache-2.0

//go:build device

package launch

import "context"

type clats struct{}

// clatService returns none in the lklrun of a bundle, which has no interface type clat.
func clatService(*links, *liveLink) service { return nil }

func (v *links) awaitCLATs(context.Context) error { return nil }
