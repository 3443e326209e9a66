// SPDX-License-Identifier: Apache-2.0

package ask

import "github.com/lklrun/lklrun/internal/guard"

// Guard asks what keeps the host's kernel from the addresses that the stack
// shares with it. Without links it is nothing.
const Guard = Verb[struct{}, guard.Status]("guard")
