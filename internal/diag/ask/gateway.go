// SPDX-License-Identifier: Apache-2.0

package ask

// Gateways asks how often user-mode gateways reached their limits, by interface and
// counter. The answer omits interfaces of other types.
const Gateways = Verb[struct{}, map[string]map[string]uint64]("gateways")
