// SPDX-License-Identifier: Apache-2.0

package rpc

import "github.com/lklrun/lklrun/internal/stack/mptcpevent"

// MPTCPPast asks for past subflow events of connections, which are selected by their
// tokens. lklrun records these events from the start.
const MPTCPPast = Verb[[]mptcpevent.Token, mptcpevent.Past]("mptcp-past")
