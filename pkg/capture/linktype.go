// SPDX-License-Identifier: Apache-2.0

package capture

// LinkType identifies the header with which packets begin. Its values are those
// of capture files: the registry of pcap-linktype(7).
type LinkType uint16

// The link types of a stack's interfaces, and of captures on all of them.
const (
	LinkTypeEthernet  LinkType = 1
	LinkTypeRaw       LinkType = 101 // IP without a link-layer header
	LinkTypeLinuxSLL2 LinkType = 276
)
