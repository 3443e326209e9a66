// SPDX-License-Identifier: Apache-2.0

package ask

// Gateways asks how often the limits of user-mode gateways were met: by interface
// and counter. Interfaces of other types are not there.
const Gateways = Verb[struct{}, map[string]map[string]uint64]("gateways")
