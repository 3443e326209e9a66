// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"

	"golang.org/x/net/bpf"
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
		return nil, &FilterError{expr, "contains a zero byte"}
	}
	prog, err := compile(expr, lt, snaplen)
	if err == nil && len(prog) > maxProgram {
		return nil, &FilterError{expr, fmt.Sprintf("compiles to %d instructions, and the kernel's limit is %d", len(prog), maxProgram)}
	}
	return prog, err
}

// retK is the code of the instruction that returns the constant K
// (include/uapi/linux/bpf_common.h).
const retK = 0x06
