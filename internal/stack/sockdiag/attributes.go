// SPDX-License-Identifier: Apache-2.0

package sockdiag

import "golang.org/x/sys/unix"

// Timer is the active timer of a socket: idiag_timer, idiag_expires and idiag_retrans of
// struct inet_diag_msg, include/uapi/linux/inet_diag.h.
type Timer struct {
	Name        string `json:"name"`        // timer name as in ss(8): on (retransmission or tail loss probe), keepalive, timewait, persist (zero window probe)
	Expires     uint64 `json:"expires_ms"`  // time until it expires in milliseconds
	Retransmits uint8  `json:"retransmits"` // consecutive retransmissions or probes
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
	RmemAlloc  Value `json:"rmem_alloc_bytes,omitzero"`  // received data that is not yet read, in bytes (SK_MEMINFO_RMEM_ALLOC)
	Rcvbuf     Value `json:"rcvbuf_bytes,omitzero"`      // receive buffer limit in bytes (SK_MEMINFO_RCVBUF)
	WmemAlloc  Value `json:"wmem_alloc_bytes,omitzero"`  // data handed to devices and not yet freed, in bytes (SK_MEMINFO_WMEM_ALLOC)
	Sndbuf     Value `json:"sndbuf_bytes,omitzero"`      // send buffer limit in bytes (SK_MEMINFO_SNDBUF)
	FwdAlloc   Value `json:"fwd_alloc_bytes,omitzero"`   // memory reserved for future use in bytes (SK_MEMINFO_FWD_ALLOC)
	WmemQueued Value `json:"wmem_queued_bytes,omitzero"` // data not yet sent or acknowledged, in bytes (SK_MEMINFO_WMEM_QUEUED)
	Optmem     Value `json:"optmem_bytes,omitzero"`      // memory of options and filters in bytes (SK_MEMINFO_OPTMEM)
	Backlog    Value `json:"backlog_bytes,omitzero"`     // data received while the socket was locked, in bytes (SK_MEMINFO_BACKLOG)
	Drops      Value `json:"drops,omitzero"`             // packets dropped because the buffer was full (SK_MEMINFO_DROPS)
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
	BW         Value   `json:"bw,omitzero"`         // estimated bottleneck bandwidth in bytes per second (bbr_bw_lo, bbr_bw_hi)
	MinRTT     Value   `json:"min_rtt_us,omitzero"` // minimum round-trip time in microseconds (bbr_min_rtt)
	PacingGain float64 `json:"pacing_gain"`         // sending rate divided by bw (bbr_pacing_gain / 256)
	CwndGain   float64 `json:"cwnd_gain"`           // window divided by bw times min_rtt (bbr_cwnd_gain / 256)
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
	Enabled bool  `json:"enabled"`             // whether the algorithm is active (tcpv_enabled)
	RTTs    Value `json:"rttcnt,omitzero"`     // samples in the current round trip (tcpv_rttcnt)
	RTT     Value `json:"rtt_us,omitzero"`     // round-trip time in microseconds (tcpv_rtt)
	MinRTT  Value `json:"min_rtt_us,omitzero"` // minimum round-trip time in microseconds (tcpv_minrtt)
}

func decodeVegas(b []byte) *VegasInfo {
	s := structure(b)
	i := &VegasInfo{Enabled: s.u32(0).N != 0, RTTs: s.u32(4), RTT: s.u32(8), MinRTT: s.u32(12)}
	for _, rtt := range []*Value{&i.RTT, &i.MinRTT} {
		if rtt.N >= infiniteSsthresh { // 0x7fffffff also means "none"
			*rtt = Value{}
		}
	}
	return i
}

// DCTCPInfo is struct tcp_dctcp_info, include/uapi/linux/inet_diag.h.
type DCTCPInfo struct {
	Enabled bool  `json:"enabled"`               // whether DCTCP is active; false: no ECN, so it behaves like Reno (dctcp_enabled)
	CEState Value `json:"ce_state,omitzero"`     // 1 while marked segments arrive (dctcp_ce_state)
	Alpha   Value `json:"alpha,omitzero"`        // share of marked bytes; 1024 means all (dctcp_alpha)
	ECN     Value `json:"ab_ecn_bytes,omitzero"` // marked bytes acknowledged in this window (dctcp_ab_ecn)
	Total   Value `json:"ab_tot_bytes,omitzero"` // bytes acknowledged in this window (dctcp_ab_tot)
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
