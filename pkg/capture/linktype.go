// SPDX-License-Identifier: Apache-2.0

package capture

// LinkType says with which header packets begin, by the numbers that files of
// packets have for it: the registry of pcap-linktype(7).
type LinkType uint16

// The link types of a stack's interfaces, and of what was captured on all of them.
const (
	LinkTypeEthernet  LinkType = 1
	LinkTypeRaw       LinkType = 101 // IP, without a header before it
	LinkTypeLinuxSLL2 LinkType = 276
)
