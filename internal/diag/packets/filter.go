// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"regexp"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/capture"
)

// Operations of the classic BPF programs
// (include/uapi/linux/bpf_common.h).
const (
	ldW  = 0x20 // A = 32 bits at K
	jeqK = 0x15 // A == K?
	retK = 0x06 // return K
)

// pktType is the offset at which a program reads the type of the packet, which
// is PACKET_OUTGOING or another type (SKF_AD_OFF + SKF_AD_PKTTYPE,
// include/uapi/linux/filter.h).
const pktType = 0xfffff000 + 4

// onlyDirection prepends a check of the direction to a program.
func onlyDirection(d capture.Direction, prog []bpf.RawInstruction) []bpf.RawInstruction {
	if d == capture.Unknown {
		return prog
	}
	outgoing := bpf.RawInstruction{Op: jeqK, K: unix.PACKET_OUTGOING, Jt: 1}
	if d == capture.In {
		outgoing.Jt, outgoing.Jf = 0, 1
	}
	return append([]bpf.RawInstruction{{Op: ldW, K: pktType}, outgoing, {Op: retK}}, prog...)
}

// vlanWords matches the parts of a filter expression that check for a VLAN tag.
var vlanWords = regexp.MustCompile(`(?i)\bvlan\b|0x8100\b|0x88a8\b|\bq-in-q\b`)

// looksForVLAN reports whether an expression may check for a VLAN tag. The
// stack removes the tag before it runs a packet socket's filter, so such a
// filter must run after the tag is restored.
func looksForVLAN(expr string) bool { return vlanWords.MatchString(expr) }

// reject is a program that rejects all packets.
var reject = []bpf.RawInstruction{{Op: retK}}
