// SPDX-License-Identifier: Apache-2.0

package rpc

import "github.com/lklrun/lklrun/internal/diag/egress"

// Gateways asks how often user-mode gateways reached their limits, by interface and
// counter. The answer omits interfaces of other types.
const Gateways = Verb[struct{}, map[string]map[string]uint64]("gateways")

// Egress asks what the program asked of a gateway with rules (--allow, --egress), without the rules. The answer is nil
// if the run has no rules.
const Egress = Verb[struct{}, *egress.Account]("egress")

// EgressRules asks for the rules from an index on, because the answer has no room for all of
// them.
const EgressRules = Verb[int, egress.Policy]("egress-rules")
