// SPDX-License-Identifier: Apache-2.0

//go:build nogateway

package gateway

import (
	"context"
	"log/slog"
	"os"
)

// Available says that this lklrun has the gateway.
const Available = false

// Gateway is a running gateway; there is none in this build.
type Gateway struct{}

// Start says that the gateway was left out.
func Start(context.Context, Config, *slog.Logger, func(string)) (*Gateway, *os.File, error) {
	return nil, nil, ErrLeftOut
}

// Counts are none.
func (*Gateway) Counts() map[string]uint64 { return nil }

// Close does nothing.
func (*Gateway) Close() {}
