// SPDX-License-Identifier: Apache-2.0

package ask

import "github.com/lklrun/lklrun/internal/dhcp"

// Lease shows what the networks gave the interfaces, after what it says was done.
const Lease = Verb[LeaseArgs, []dhcp.Status]("lease")

// What can be done with leases.
const (
	LeaseShow    = ""
	LeaseRenew   = "renew"
	LeaseRelease = "release"
)

// LeaseArgs are one of these and the interface that it is done with.
type LeaseArgs struct {
	Do   string `json:"do,omitempty"`
	Link string `json:"link,omitempty"`
}
