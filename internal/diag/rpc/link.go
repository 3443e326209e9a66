// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"net/netip"
	"time"
)

// Verbs about the interfaces of a run.
const (
	// AddLink adds an interface. For TypeFD, the question carries its
	// descriptor.
	AddLink = Verb[LinkSpec, LinkAdded]("link-add")
	// DelLink removes an interface and everything on the host that was
	// created for it.
	DelLink = Verb[LinkName, struct{}]("link-del")
	// TunnelPeers asks for the peers of tunnels, by interface.
	TunnelPeers = Verb[struct{}, map[string][]TunnelPeer]("tunnel-peers")
)

// LinkSpec is an interface in the form of --if.
type LinkSpec struct {
	Spec string `json:"spec"`
}

// LinkAdded is the answer to AddLink.
type LinkAdded struct {
	Name  string   `json:"name"` // interface name in the stack
	Notes []string `json:"notes,omitempty"`
}

// LinkName selects an interface by its name in the stack.
type LinkName struct {
	Name string `json:"name"`
}

// TunnelPeer is a peer of a WireGuard tunnel.
type TunnelPeer struct {
	PublicKey     string         `json:"public_key"`
	Endpoint      string         `json:"endpoint,omitempty"`      // ADDRESS:PORT to which lklrun sends now
	LastHandshake time.Time      `json:"last_handshake,omitzero"` // absent: none has succeeded
	Received      uint64         `json:"received_bytes"`          // in datagrams of the peer
	Sent          uint64         `json:"sent_bytes"`              // in datagrams to the peer
	AllowedIPs    []netip.Prefix `json:"allowed_ips"`             // the networks behind the peer
}

func (LinkSpec) waits() bool { return true }

func (LinkName) waits() bool { return true }
