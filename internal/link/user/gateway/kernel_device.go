// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway && device

package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
)

// kernel is a kernel that ends TCP connections. Devices have none.
type kernel struct{}

func (g *Gateway) startKernel(_ context.Context, router *os.File) (*kernel, *os.File, error) {
	router.Close() // nil is no problem
	return nil, nil, errors.New("lklrun on a device has none; remove linux")
}

func (*kernel) close() {}

func (*kernel) enter(context.Context, netip.Addr, netip.AddrPort, *net.TCPConn) error {
	return errors.ErrUnsupported
}

// PID returns 0.
func (*Gateway) PID() int { return 0 }
