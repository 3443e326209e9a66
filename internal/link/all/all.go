// SPDX-License-Identifier: Apache-2.0

// Package all registers the drivers of all interface types, one line for each.
package all

import (
	_ "github.com/lklrun/lklrun/internal/link/fd"
	_ "github.com/lklrun/lklrun/internal/link/macvtap"
	_ "github.com/lklrun/lklrun/internal/link/packet"
	_ "github.com/lklrun/lklrun/internal/link/tap"
	_ "github.com/lklrun/lklrun/internal/link/udp"
	_ "github.com/lklrun/lklrun/internal/link/user"
	_ "github.com/lklrun/lklrun/internal/link/wg"
	_ "github.com/lklrun/lklrun/internal/link/wire"
)
