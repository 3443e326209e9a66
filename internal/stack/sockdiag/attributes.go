// SPDX-License-Identifier: Apache-2.0

package sockdiag

import "golang.org/x/sys/unix"

// Timer is the active timer of a socket: idiag_timer, idiag_expires and idiag_retrans of
// struct inet_diag_msg, include/uapi/linux/inet_diag.h.
type Timer struct {
	Name        string `json:"name"`        // as ss(8) has it: on (retransmission and tail loss probe), keepalive, timewait, persist (zero window probe)
	Expires     uint64 `json:"expires_ms"`  // milliseconds from now
	Retransmits uint8  `json:"retransmits"` // retransmissions, or probes, in a row
}

// timerNames are the names that ss(8) uses; the numbers are set in
// inet_diag_msg_attrs_fill.
var timerNames = [...]string{1: "on", 2: "keepalive", 3: "timewait", 4: "persist"}

func decodeTimer(which, retransmits uint8, expires uint32) *Timer {
	if which == 0 {
		return nil
	}
	t := &Timer{Name: "unknown", Expires: uint64(expires), Retransmits: retransmits}
	if int(which) < len(timerNames) {
		t.Name = timerNames[which]
	}
	return t
}

// MemInfo is the memory of a socket: SK_MEMINFO_*, include/uapi/linux/sock_diag.h.
type MemInfo struct {
	RmemAlloc  Value `json:"rmem_alloc_bytes,omitzero"`  // SK_MEMINFO_RMEM_ALLOC: of what has been received and not read
	Rcvbuf     Value `json:"rcvbuf_bytes,omitzero"`      // SK_MEMINFO_RCVBUF: what that may be at most
	WmemAlloc  Value `json:"wmem_alloc_bytes,omitzero"`  // SK_MEMINFO_WMEM_ALLOC: handed to the devices and not yet free again
	Sndbuf     Value `json:"sndbuf_bytes,omitzero"`      // SK_MEMINFO_SNDBUF: what may be waiting at most
	FwdAlloc   Value `json:"fwd_alloc_bytes,omitzero"`   // SK_MEMINFO_FWD_ALLOC: kept for use
	WmemQueued Value `json:"wmem_queued_bytes,omitzero"` // SK_MEMINFO_WMEM_QUEUED: waiting to be sent or acknowledged
	Optmem     Value `json:"optmem_bytes,omitzero"`      // SK_MEMINFO_OPTMEM: of options and filters
	Backlog    Value `json:"backlog_bytes,omitzero"`     // SK_MEMINFO_BACKLOG: came while the program was in the socket
	Drops      Value `json:"drops,omitzero"`             // SK_MEMINFO_DROPS: packets for which there was no room
}

func decodeMemInfo(b []byte) *MemInfo {
	s := structure(b)
	return &MemInfo{
		RmemAlloc: s.u32(0), Rcvbuf: s.u32(4), WmemAlloc: s.u32(8), Sndbuf: s.u32(12), FwdAlloc: s.u32(16),
		WmemQueued: s.u32(20), Optmem: s.u32(24), Backlog: s.u32(28), Drops: s.u32(32),
	}
}

// BBRInfo is struct tcp_bbr_info, include/uapi/linux/inet_diag.h.
type BBRInfo struct {
	BW         Value   `json:"bw,omitzero"`         // bbr_bw_lo and bbr_bw_hi, bytes a second: the bottleneck's bandwidth as estimated
	MinRTT     Value   `json:"min_rtt_us,omitzero"` // bbr_min_rtt, microseconds
	PacingGain float64 `json:"pacing_gain"`         // bbr_pacing_gain / 256: times bw is what it sends at
	CwndGain   float64 `json:"cwnd_gain"`           // bbr_cwnd_gain / 256: times bw and min_rtt is its window
}

func decodeBBR(b []byte) *BBRInfo {
	s := structure(b)
	low, high, rtt := s.u32(0), s.u32(4), s.u32(8)
	pacing, cwnd := s.u32(12), s.u32(16)
	if !cwnd.Known {
		return nil
	}
	i := &BBRInfo{BW: Known(high.N<<32 | low.N), MinRTT: rtt, PacingGain: float64(pacing.N) / 256, CwndGain: float64(cwnd.N) / 256}
	if rtt.N == noMinRTT {
		i.MinRTT = Value{}
	}
	return i
}

// VegasInfo is struct tcpvegas_info, include/uapi/linux/inet_diag.h.
type VegasInfo struct {
	Enabled bool  `json:"enabled"`             // tcpv_enabled
	RTTs    Value `json:"rttcnt,omitzero"`     // tcpv_rttcnt: samples in the round trip
	RTT     Value `json:"rtt_us,omitzero"`     // tcpv_rtt, microseconds
	MinRTT  Value `json:"min_rtt_us,omitzero"` // tcpv_minrtt, microseconds
}

func decodeVegas(b []byte) *VegasInfo {
	s := structure(b)
	i := &VegasInfo{Enabled: s.u32(0).N != 0, RTTs: s.u32(4), RTT: s.u32(8), MinRTT: s.u32(12)}
	for _, rtt := range []*Value{&i.RTT, &i.MinRTT} {
		if rtt.N >= infiniteSsthresh { // 0x7fffffff means "none", too
			*rtt = Value{}
		}
	}
	return i
}

// DCTCPInfo is struct tcp_dctcp_info, include/uapi/linux/inet_diag.h.
type DCTCPInfo struct {
	Enabled bool  `json:"enabled"`               // dctcp_enabled; false: without ECN it is Reno
	CEState Value `json:"ce_state,omitzero"`     // dctcp_ce_state: 1 while marked segments come
	Alpha   Value `json:"alpha,omitzero"`        // dctcp_alpha: the share of marked bytes; 1024 is all
	ECN     Value `json:"ab_ecn_bytes,omitzero"` // dctcp_ab_ecn, bytes acknowledged in this window that were marked
	Total   Value `json:"ab_tot_bytes,omitzero"` // dctcp_ab_tot, bytes acknowledged in this window
}

func decodeDCTCP(b []byte) *DCTCPInfo {
	s := structure(b)
	return &DCTCPInfo{Enabled: s.u16(0).N != 0, CEState: s.u16(2), Alpha: s.u32(4), ECN: s.u32(8), Total: s.u32(12)}
}

// shutdownName is the name for the mask of INET_DIAG_SHUTDOWN: RCV_SHUTDOWN and
// SEND_SHUTDOWN of include/net/sock.h.
func shutdownName(mask uint8) string {
	return [4]string{"", "rcv", "snd", "both"}[mask&3]
}

// typeName is the name of a socket type of socket(2).
func typeName(t uint8) string {
	switch t {
	case unix.SOCK_STREAM:
		return "stream"
	case unix.SOCK_DGRAM:
		return "dgram"
	case unix.SOCK_RAW:
		return "raw"
	case unix.SOCK_SEQPACKET:
		return "seqpacket"
	}
	return ""
}
