// SPDX-License-Identifier: Apache-2.0

package ask

// Packets asks what `lklrun --capture` has recorded of a run's packets. Those in its ring
// are written to the file that comes with the question, in pcapng.
const Packets = Verb[struct{}, PacketsKept]("packets")

// PacketsKept describes the recorded packets.
type PacketsKept struct {
	Ring    bool     `json:"ring"`            // there is a ring
	Packets int      `json:"packets"`         // that it has
	Files   []string `json:"files,omitempty"` // that packets are written to, as full paths
}
