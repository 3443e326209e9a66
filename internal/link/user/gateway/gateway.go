// SPDX-License-Identifier: Apache-2.0

// Package gateway is the far end of an interface of type user. It is a router
// inside this process. Its other side consists of ordinary sockets of the host,
// so it needs no privileges. TCP and UDP end at the gateway, which forwards the
// data through host sockets.
//
// The router is gvisor.dev/gvisor's network stack. The stack is configured in
// advance with everything that a machine would request by DHCP. The build tag
// nogateway leaves the gateway out.
package gateway

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/pkg/config"
)

// ErrLeftOut reports that this lklrun was built without the gateway.
var ErrLeftOut = errors.New("this lklrun was built without the user-mode gateway; use --if tap:NAME or --if fd:N")

// DefaultMTU is large because the frames never reach a wire: a frame of any
// size costs one message between two processes.
const DefaultMTU = 65520

// Config describes the network between the stack and the gateway.
type Config struct {
	Address netip.Prefix `json:"address"` // of the stack
	Gateway netip.Addr   `json:"gw"`      // the router, which is also the name server
	Host    netip.Addr   `json:"host"`    // represents the host's own 127.0.0.1
	MTU     int          `json:"mtu"`

	// Address6, Gateway6 and Host6 are set if the host has IPv6. Host6
	// represents ::1.
	Address6 netip.Prefix `json:"address6,omitzero"`
	Gateway6 netip.Addr   `json:"gw6,omitzero"`
	Host6    netip.Addr   `json:"host6,omitzero"`

	Allow     []config.Allow    `json:"allow,omitempty"`      // the only destinations; empty: all, unless Egress is set
	Egress    string            `json:"egress,omitempty"`     // config.Run.Egress
	EgressLog string            `json:"egress_log,omitempty"` // config.Run.EgressLog
	Hosts     []config.HostName `json:"hosts,omitempty"`      // names of /etc/hosts that Allow names

	Proxy *config.Proxy `json:"-"` // the proxy for all connections; nil: none

	User *runas.User `json:"-"` // owner of the host's sockets, the user of the target; nil: that of this process

	// Kernel ends TCP connections in a kernel of its own process, from the first one on. nil:
	// this process ends them.
	Kernel *Kernel `json:"kernel,omitempty"`

	Publish []config.Publish `json:"publish,omitempty"` // ports of the host that lead to the stack's ports
}

// Kernel says how to start the kernel that ends TCP connections.
type Kernel struct {
	Must bool `json:"must,omitempty"` // an error if there can be none, instead of ending connections in this process

	Library string `json:"-"` // path of the stack library
	Dir     string `json:"-"` // a directory for its log
	Spin    int    `json:"-"` // microseconds for which it polls before it sleeps
}

// PublishError reports that a port of the host could not be opened.
type PublishError struct{ Err error }

// Error names the port and the cause.
func (e *PublishError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *PublishError) Unwrap() error { return e.Err }

// FlagError reports that the value of a flag is unusable, for example that the proxy has no
// address.
type FlagError struct {
	Flag string
	Err  error
}

// Error names the flag and the cause.
func (e *FlagError) Error() string { return e.Flag + ": " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *FlagError) Unwrap() error { return e.Err }

// restricted reports whether the gateway has rules.
func (c *Config) restricted() bool { return len(c.Allow) > 0 || c.Egress != "" }

// Default returns the network of the n-th gateway of a run, counted from 0.
func Default(n int) Config {
	net := byte(127 + n)
	return Config{
		Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, net, 2}), 24),
		Gateway: netip.AddrFrom4([4]byte{192, 168, net, 1}),
		Host:    netip.AddrFrom4([4]byte{192, 168, net, 254}),
		MTU:     DefaultMTU,
	}
}

// WithIPv6 adds the IPv6 network of the n-th gateway. It is a unique local
// network (RFC 4193), so that programs prefer IPv4 for a machine that has both
// (RFC 6724, 2.1).
func (c Config) WithIPv6(n int) Config {
	host := func(last byte) netip.Addr {
		return netip.AddrFrom16([16]byte{0xfd, 'l', 'k', 'l', 'r', 'u', 'n', byte(n), 15: last})
	}
	c.Address6 = netip.PrefixFrom(host(2), 64)
	c.Gateway6, c.Host6 = host(1), host(0xfe)
	return c
}

// ForAddress returns the network for a stack with the given address. The gateway is
// gw or the first free address, and the host is the last address.
func ForAddress(address netip.Prefix, gw netip.Addr) (Config, error) {
	if !address.Addr().Is4() || address.Bits() > 29 {
		return Config{}, fmt.Errorf("gateway for %s: the network has no room for the gateway's addresses; expected an IPv4 address with a prefix length of at most 29", address)
	}
	c := Config{Address: address, Gateway: gw, MTU: DefaultMTU}
	first := address.Masked().Addr().Next()
	for a := first; !c.Gateway.IsValid(); a = a.Next() {
		if a != address.Addr() {
			c.Gateway = a
		}
	}
	for a := config.Broadcast(address).Prev(); !c.Host.IsValid(); a = a.Prev() {
		if a != address.Addr() && a != c.Gateway {
			c.Host = a
		}
	}
	return c, nil
}
