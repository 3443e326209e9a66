// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway && device

package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"

	"github.com/lklrun/lklrun/internal/link/ring"
)

// kernel is a kernel that ends TCP connections. Devices have none.
type kernel struct{}

// CheckKernel returns an error.
func CheckKernel() error { return errors.New("lklrun on a device has no kernel for them") }

func (*Gateway) startKernel(context.Context, *os.File) (*os.File, error) { return nil, CheckKernel() }

func (*Gateway) insertKernel(context.Context, *ring.End) *ring.End { return nil }

func (*kernel) close() {}

func (*kernel) enter(context.Context, netip.Addr, netip.AddrPort, *net.TCPConn) error {
	return errors.ErrUnsupported
}

// PID returns 0.
func (*Gateway) PID() int { return 0 }
