// SPDX-License-Identifier: Apache-2.0

package ask

// Gateways asks how often user-mode gateways hit their limits, by interface and counter.
// Interfaces of other types are not included.
const Gateways = Verb[struct{}, map[string]map[string]uint64]("gateways")
