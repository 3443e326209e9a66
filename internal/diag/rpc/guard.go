// SPDX-License-Identifier: Apache-2.0

package rpc

import "github.com/lklrun/lklrun/internal/host/guard"

// Guard asks how the host's kernel is prevented from using the addresses that the stack
// shares with it. Without such links the answer is empty.
const Guard = Verb[struct{}, guard.Status]("guard")
