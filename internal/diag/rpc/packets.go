// SPDX-License-Identifier: Apache-2.0

package rpc

// Packets asks what `lklrun --capture` has recorded. It writes the packets of the ring,
// in pcapng format, to the file that the question carries.
const Packets = Verb[struct{}, PacketsKept]("packets")

// PacketsKept describes the recorded packets.
type PacketsKept struct {
	Ring    bool     `json:"ring"`            // packets are recorded in a ring
	Packets int      `json:"packets"`         // number of packets in the ring
	Files   []string `json:"files,omitempty"` // full paths of the capture files
}
