// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"net/netip"
	"time"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// Gateways asks how often user-mode gateways reached their limits, by interface and
// counter. The answer omits interfaces of other types.
const Gateways = Verb[struct{}, map[string]map[string]uint64]("gateways")

// Egress asks what the program asked of a gateway with rules (--allow, --egress), without
// the rules. The answer is nil if the run has no rules.
const Egress = Verb[struct{}, *egress.Account]("egress")

// EgressRules asks for the rules from an index on, because the answer has no room for all of
// them.
const EgressRules = Verb[int, egress.Policy]("egress-rules")

// EgressChange changes the rules.
const EgressChange = Verb[egress.Change, struct{}]("egress-change")

// Guard asks how the host's kernel is prevented from using the addresses that the stack
// shares with it. Without such links the answer is empty.
const Guard = Verb[struct{}, guard.Status]("guard")

// Lease performs the given action and returns the leases of the interfaces.
const Lease = Verb[LeaseArgs, []dhcp.Status]("lease")

// Actions on leases.
const (
	LeaseShow    = ""
	LeaseRenew   = "renew"
	LeaseRelease = "release"
)

// LeaseArgs are an action and the interface that it applies to.
type LeaseArgs struct {
	Do   string `json:"do,omitempty"`
	Link string `json:"link,omitempty"`
}

func (a LeaseArgs) waits() bool { return a.Do != LeaseShow }

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

// MPTCPPast asks for past subflow events of connections, which are selected by their
// tokens. lklrun records these events from the start.
const MPTCPPast = Verb[[]mptcpevent.Token, mptcpevent.Past]("mptcp-past")

// Packets asks what `lklrun --capture` has recorded. It writes the packets of the ring,
// in pcapng format, to the file that the question carries.
const Packets = Verb[struct{}, PacketsKept]("packets")

// PacketsKept describes the recorded packets.
type PacketsKept struct {
	Ring    bool     `json:"ring"`            // packets are recorded in a ring
	Packets int      `json:"packets"`         // number of packets in the ring
	Files   []string `json:"files,omitempty"` // full paths of the capture files
}

// The verbs below serve callers that run on another machine than the run and cannot see
// its processes.

// Holders asks which processes of the run have carrier sockets of the stack's sockets
// open.
const Holders = Verb[Carriers, Held]("holders")

// Carriers are the carrier sockets to search for.
type Carriers struct {
	Inodes []uint64 `json:"inodes"` // ctl_owner.carrier_ino, in csrc/shared/ctl_proto.h
}

// Held lists the processes of the first sockets, as many as fit into an answer. The
// caller must ask again for the others.
type Held struct {
	Processes [][]sockdiag.Process `json:"processes"` // for each socket, in the order of Carriers
}

// Usage asks for the CPU time that lklhost and its descendants have used.
const Usage = Verb[struct{}, Used]("usage")

// Used maps each PID of the run's processes to its process.
type Used struct {
	Processes map[int]procstat.Process `json:"processes"`
}
