// SPDX-License-Identifier: Apache-2.0

package whynot

import (
	"fmt"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// notJoined explains why a peer that has started c has not joined it over one of our
// interfaces: the client creates subflows, to addresses that it knows.
func (s *stack) notJoined(c *sockdiag.Connection, r Reason, e *stacknet.Endpoint) Reason {
	i := c.MPTCP
	if e == nil || e.Flags&stacknet.EndpointSignal == 0 {
		add := fmt.Sprintf("lklctl mptcp endpoint add %s dev %s signal", r.Address, r.Iface)
		if e != nil {
			add = fmt.Sprintf("lklctl mptcp endpoint del id %d; %s", e.ID, add)
		}
		return r.because(NotSignalled, "it is the peer that connects, and it is not told of this address: no endpoint announces it (flag signal)",
			"%s (signal of --if does it from the start)", add)
	}
	switch {
	case !established(c):
		return r.because(NotYet, "joins begin when data have gone both ways", "")
	case i.SubflowsMax.Known && i.Subflows.Known && i.Subflows.N >= i.SubflowsMax.N:
		return r.because(Limit, fmt.Sprintf("this side takes %d subflows beside the first, and the connection has %d", i.SubflowsMax.N, i.Subflows.N),
			"lklctl mptcp limits set subflows %d, for new connections", i.SubflowsMax.N+1)
	case s.count("MPJoinAckHMacFailure") > 0:
		return r.because(BadHMAC, fmt.Sprintf("joins came with a wrong HMAC (%d, of all connections): from other hosts than the peers", s.count("MPJoinAckHMacFailure")), "")
	}
	heard := "the peer has not confirmed that it heard of it"
	if s.count("EchoAdd") > 0 {
		heard = "peers have confirmed that they heard of such"
	}
	return r.because(NotAccepted, fmt.Sprintf("the address was announced to the peer (%s), which has made no subflow to it", heard),
		"there: ip mptcp limits set add_addr_accepted 2 subflows 2, and a route to %s", r.Address)
}
