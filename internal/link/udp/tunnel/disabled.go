// SPDX-License-Identifier: Apache-2.0

//go:build nogateway

package tunnel

import (
	"context"
	"net/netip"
	"os"

	"github.com/lklrun/lklrun/internal/diag/rpc"
)

// Available reports whether this lklrun includes tunnels.
const Available = false

// Tunnel is one end of a tunnel. This build has none.
type Tunnel struct{ Blind bool }

// Connect returns ErrLeftOut.
func Connect(context.Context, Config) (*Tunnel, *os.File, error) { return nil, nil, ErrLeftOut }

// Join returns ErrLeftOut.
func Join(context.Context, Config) (*Tunnel, *os.File, error) { return nil, nil, ErrLeftOut }

// Listen returns ErrLeftOut.
func Listen(Config) (*Tunnel, *os.File, error) { return nil, nil, ErrLeftOut }

// ListenTun returns ErrLeftOut.
func ListenTun(Config, string) (*Tunnel, error) { return nil, ErrLeftOut }

// Way is a way to the other end of a tunnel.
type Way struct {
	Remote netip.AddrPort
	Room   int
}

// Find returns ErrLeftOut.
func Find(context.Context, string, string) ([]Way, error) { return nil, ErrLeftOut }

// CheckPort returns ErrLeftOut.
func CheckPort(context.Context, uint16) error { return ErrLeftOut }

// CheckVia returns ErrLeftOut.
func CheckVia(context.Context) error { return ErrLeftOut }

// Close does nothing.
func (*Tunnel) Close() {}

// Peers returns nothing.
func (*Tunnel) Peers() []rpc.TunnelPeer { return nil }

// Done returns a channel that is never closed.
func (*Tunnel) Done() <-chan struct{} { return nil }
