// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"fmt"
	"strings"
)

// ethernetHeader is the length of an Ethernet header.
const ethernetHeader = 14

// linkHeader returns the length of the link header.
func linkHeader(data []byte, lt LinkType) int {
	if lt != LinkTypeEthernet {
		return 0
	}
	return min(ethernetHeader, len(data))
}

// dump formats a packet's bytes like tcpdump, in lines that each end in \n.
func dump(form Dump, data []byte, link int) string {
	switch form {
	case DumpHex:
		return hexDump(data[link:])
	case DumpHexLink:
		return hexDump(data)
	case DumpText:
		var b strings.Builder
		for _, c := range data[link:] {
			if c == '\n' || c == '\t' {
				b.WriteByte(c)
			} else {
				b.WriteByte(visible(c))
			}
		}
		return strings.TrimSuffix(b.String(), "\n") + "\n"
	}
	return ""
}

func hexDump(data []byte) string {
	const row = 16
	var b strings.Builder
	for at := 0; at < len(data); at += row {
		part := data[at:min(at+row, len(data))]
		var hex, text strings.Builder
		for i, c := range part {
			if i%2 == 0 {
				hex.WriteByte(' ')
			}
			fmt.Fprintf(&hex, "%02x", c)
			text.WriteByte(visible(c))
		}
		fmt.Fprintf(&b, "\t0x%04x: %-40s  %s\n", at, hex.String(), text.String())
	}
	return b.String()
}

func visible(c byte) byte {
	if c < ' ' || c > '~' {
		return '.'
	}
	return c
}
