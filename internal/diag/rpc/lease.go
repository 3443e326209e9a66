// SPDX-License-Identifier: Apache-2.0

package rpc

import "github.com/lklrun/lklrun/internal/stack/dhcp"

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
