// SPDX-License-Identifier: Apache-2.0

package ask

import "github.com/lklrun/lklrun/internal/stack/dhcp"

// Lease shows the leases of the interfaces, after the given action.
const Lease = Verb[LeaseArgs, []dhcp.Status]("lease")

// Actions on leases.
const (
	LeaseShow    = ""
	LeaseRenew   = "renew"
	LeaseRelease = "release"
)

// LeaseArgs are an action and its interface.
type LeaseArgs struct {
	Do   string `json:"do,omitempty"`
	Link string `json:"link,omitempty"`
}
