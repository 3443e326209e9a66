// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// FilterError reports a filter that libpcap rejects, with libpcap's message.
type FilterError struct {
	Filter string
	Words  string
}

// Error names the filter and the problem.
func (e *FilterError) Error() string { return fmt.Sprintf("filter %q: %s", e.Filter, e.Words) }

// MaxSnaplen is the maximum snap length, which is tcpdump's default.
const MaxSnaplen = 262144

// maxProgram is BPF_MAXINSNS, include/uapi/linux/bpf_common.h.
const maxProgram = 4096

// Compile compiles an expression in the language of pcap-filter(7) for packets
// of a link type, with libpcap's own compiler. The program returns the number
// of bytes to keep, at most snaplen. An error in the expression is a
// *FilterError. An empty expression accepts every packet.
func Compile(expr string, lt LinkType, snaplen int) ([]bpf.RawInstruction, error) {
	if strings.TrimSpace(expr) == "" {
		return []bpf.RawInstruction{{Op: retK, K: uint32(snaplen)}}, nil
	}
	if strings.ContainsRune(expr, 0) {
		return nil, &FilterError{expr, "has a zero byte in it"}
	}
	prog, err := compile(expr, lt, snaplen)
	if err == nil && len(prog) > maxProgram {
		return nil, &FilterError{expr, fmt.Sprintf("makes a program of %d instructions, the kernel takes %d", len(prog), maxProgram)}
	}
	return prog, err
}

// Operations of the classic BPF programs in this file
// (include/uapi/linux/bpf_common.h).
const (
	ldW  = 0x20 // A = 32 bits at K
	jeqK = 0x15 // A == K?
	retK = 0x06 // end with K
)

// pktType is the offset at which a program reads the packet's type,
// PACKET_OUTGOING or another: SKF_AD_OFF + SKF_AD_PKTTYPE,
// include/uapi/linux/filter.h.
const pktType = 0xfffff000 + 4

// onlyDirection prepends a check of the direction to a program.
func onlyDirection(d Direction, prog []bpf.RawInstruction) []bpf.RawInstruction {
	if d == Unknown {
		return prog
	}
	outgoing := bpf.RawInstruction{Op: jeqK, K: unix.PACKET_OUTGOING, Jt: 1}
	if d == In {
		outgoing.Jt, outgoing.Jf = 0, 1
	}
	return append([]bpf.RawInstruction{{Op: ldW, K: pktType}, outgoing, {Op: retK}}, prog...)
}

// vlanWords match the words of an expression that checks for a VLAN tag.
var vlanWords = regexp.MustCompile(`(?i)\bvlan\b|0x8100\b|0x88a8\b|\bq-in-q\b`)

// looksForVLAN reports whether an expression may check for a VLAN tag. The
// stack removes the tag before a packet socket's filter runs, so such a filter
// must run after the tag was restored.
func looksForVLAN(expr string) bool { return vlanWords.MatchString(expr) }

// reject rejects all packets.
var reject = []bpf.RawInstruction{{Op: retK}}
