// SPDX-License-Identifier: Apache-2.0

//go:build cgo && !nopcap

package capture

import (
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcap"
	"golang.org/x/net/bpf"
)

// dltRaw is DLT_RAW, which libpcap's compiler expects. Files contain LINKTYPE_RAW
// instead, which is LinkTypeRaw (pcap-linktype(7)).
const dltRaw LinkType = 12

func compile(expr string, lt LinkType, snaplen int) ([]bpf.RawInstruction, error) {
	if lt == LinkTypeRaw {
		lt = dltRaw
	}
	code, err := pcap.CompileBPFFilter(layers.LinkType(lt), snaplen, expr)
	if err != nil {
		return nil, &FilterError{expr, err.Error()}
	}
	prog := make([]bpf.RawInstruction, len(code))
	for i, c := range code {
		prog[i] = bpf.RawInstruction{Op: c.Code, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	return prog, nil
}
