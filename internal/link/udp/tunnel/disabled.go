// SPDX-License-Identifier: Apache-2.0

//go:build nogateway

package tunnel

import (
	"context"
	"net/netip"
	"os"
)

// Available reports whether this lklrun includes tunnels.
const Available = false

// Tunnel is one end of a tunnel. This build has none.
type Tunnel struct{ Blind bool }

// Connect returns ErrLeftOut.
func Connect(context.Context, Config) (*Tunnel, *os.File, error) { return nil, nil, ErrLeftOut }

// Listen returns ErrLeftOut.
func Listen(Config) (*Tunnel, *os.File, error) { return nil, nil, ErrLeftOut }

// ListenTun returns ErrLeftOut.
func ListenTun(Config, string) (*Tunnel, error) { return nil, ErrLeftOut }

// Route returns ErrLeftOut.
func Route(context.Context, netip.AddrPort, string) (int, error) { return 0, ErrLeftOut }

// CheckVia returns ErrLeftOut.
func CheckVia(context.Context) error { return ErrLeftOut }

// Close does nothing.
func (*Tunnel) Close() {}

// Done returns a channel that is never closed.
func (*Tunnel) Done() <-chan struct{} { return nil }
