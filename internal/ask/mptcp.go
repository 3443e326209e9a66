// SPDX-License-Identifier: Apache-2.0

package ask

import "github.com/lklrun/lklrun/internal/mptcpevent"

// MPTCPPast asks what became of the subflows of connections, which are named by
// their tokens: lklrun has listened from the start.
const MPTCPPast = Verb[[]mptcpevent.Token, mptcpevent.Past]("mptcp-past")
