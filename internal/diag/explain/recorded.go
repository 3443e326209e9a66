// SPDX-License-Identifier: Apache-2.0

package explain

import "github.com/lklrun/lklrun/internal/diag/rpc"

// Recorded asks lklrun for the report about the run from its start. lklrun has one only if
// it was started with --explain.
const Recorded = rpc.Verb[struct{}, Report]("explain")

// recordedMost is the largest number of connections in an answer, which must fit into one
// frame.
const recordedMost = 20

// Shortened returns the report with the connections that fit into an answer.
func (r *Report) Shortened() Report {
	short := *r
	if n := len(r.Connections) - recordedMost; n > 0 {
		short.Connections = r.Connections[:recordedMost]
		short.Unseen += int64(n)
	}
	return short
}
