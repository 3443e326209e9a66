// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries IP packets in UDP. Each tunnel is a device of
// WireGuard (golang.zx2c4.com/wireguard), which authenticates and encrypts the
// packets. WireGuard does not answer a datagram unless its sender knows a key.
//
// The build tag nogateway leaves the implementation out.
package tunnel

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/lklrun/lklrun/internal/link/udp/keys"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// ErrLeftOut reports that this lklrun was built without tunnels.
var ErrLeftOut = errors.New("this lklrun was built without tunnels in UDP; use another interface type")

// Config describes one end of a tunnel.
type Config struct {
	Keys *keys.File
	MTU  int
	Log  *slog.Logger

	// Remote is the address of the gateway, and Via the device through which
	// the datagrams leave; "": as the host's routes say. Both are only for
	// Connect.
	Remote netip.AddrPort
	Via    string

	// Gateway is the gateway's address in the tunnel, and Own is ours. The
	// gateway is asked for answers there. If both are invalid, Connect does not
	// notice that the path is cut. Report is told of each change.
	Gateway, Own netip.Addr
	Report       func(carries bool)

	Port uint16 // for Listen and Join; 0: any, only for Join

	// Endpoints are the addresses of the peers' endpoints, for Join. Say is told
	// when a peer does not answer, and when it answers again.
	Endpoints map[string]netip.AddrPort
	Say       func(line string)
}

// LinkFlags are the flags of the link to the stack, whose kind is
// CTL_LINK_FRAME. The header before each packet lets one message carry the data of
// many.
const LinkFlags = ctlproto.CTL_LINKF_RAWIP | ctlproto.CTL_LINKF_VNET10 | ctlproto.CTL_LINKF_OFFLOAD

// connectLimit bounds the wait for the gateway's first answer. It is the sum of
// the waits between tries, which become longer, for networks with a long delay.
const connectLimit = 6 * time.Second

// NoAnswerError reports that the other end did not answer.
type NoAnswerError struct {
	Remote netip.AddrPort
	Key    string // the path of the key file
	Err    error  // the last error of the host's network; nil: none
}

// Error names the possible causes. A gateway that does not know a key is as
// silent as none at all.
func (e *NoAnswerError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the gateway %s cannot be reached: %v; check the network", e.Remote, e.Err)
	}
	return fmt.Sprintf("the gateway %s did not answer within %v; check that it runs there, that the network lets UDP through, and that it knows the key in %s (it does not answer an unknown key)",
		e.Remote, connectLimit, e.Key)
}

// Unwrap returns the error of the host's network.
func (e *NoAnswerError) Unwrap() error { return e.Err }

// overhead returns the number of bytes that a tunnel adds to each packet: the
// outer IP and UDP headers, and WireGuard's header and authentication tag.
func overhead(remote netip.Addr) int {
	const wireguard, udp = 32, 8
	if remote.Is4() {
		return 20 + udp + wireguard
	}
	return 40 + udp + wireguard
}
