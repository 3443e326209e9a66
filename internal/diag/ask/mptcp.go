// SPDX-License-Identifier: Apache-2.0

package ask

import "github.com/lklrun/lklrun/internal/stack/mptcpevent"

// MPTCPPast asks for past events of the subflows of connections, which are named by their
// tokens: lklrun has recorded events from the start.
const MPTCPPast = Verb[[]mptcpevent.Token, mptcpevent.Past]("mptcp-past")
