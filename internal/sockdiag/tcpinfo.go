// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// TCPInfo is struct tcp_info, include/uapi/linux/tcp.h: what of it says
// something about a live connection. Times are in microseconds unless their
// name says otherwise, rates in bytes a second.
type TCPInfo struct {
	CAState      Value `json:"ca_state,omitzero"` // enum tcp_ca_state
	RTO          Value `json:"rto_us,omitzero"`
	SndMSS       Value `json:"snd_mss,omitzero"`
	RcvMSS       Value `json:"rcv_mss,omitzero"`
	PMTU         Value `json:"pmtu,omitzero"`
	Unacked      Value `json:"unacked,omitzero"` // segments
	Lost         Value `json:"lost,omitzero"`
	RTT          Value `json:"rtt_us,omitzero"`
	RTTVar       Value `json:"rttvar_us,omitzero"`
	MinRTT       Value `json:"min_rtt_us,omitzero"`
	Ssthresh     Value `json:"ssthresh,omitzero"`
	Cwnd         Value `json:"cwnd,omitzero"`
	SndWnd       Value `json:"snd_wnd,omitzero"`
	RcvSpace     Value `json:"rcv_space,omitzero"`
	Retrans      Value `json:"retrans,omitzero"`       // segments outstanding
	TotalRetrans Value `json:"total_retrans,omitzero"` // in the connection's life
	PacingRate   Value `json:"pacing_rate,omitzero"`
	DeliveryRate Value `json:"delivery_rate,omitzero"`
	BytesSent    Value `json:"bytes_sent,omitzero"`
	BytesAcked   Value `json:"bytes_acked,omitzero"`
	BytesRecv    Value `json:"bytes_received,omitzero"`
	BytesRetrans Value `json:"bytes_retrans,omitzero"`
	NotSent      Value `json:"notsent,omitzero"`
	SegsOut      Value `json:"segs_out,omitzero"`
	SegsIn       Value `json:"segs_in,omitzero"`
	LastSent     Value `json:"last_data_sent_ms,omitzero"`
	LastRecv     Value `json:"last_data_recv_ms,omitzero"`
}

// unlimited is how the kernel writes "none" in tcpi_snd_ssthresh
// (TCP_INFINITE_SSTHRESH) and for tcpi_min_rtt before the first sample.
const (
	infiniteSsthresh = 0x7fffffff
	noMinRTT         = 1<<32 - 1
)

func decodeTCPInfo(b []byte) *TCPInfo {
	s := structure(b)
	// The offsets are those of x/sys's copy of the structure; it only grows.
	var at unix.TCPInfo
	i := &TCPInfo{
		CAState:      s.u8(unsafe.Offsetof(at.Ca_state)),
		RTO:          s.u32(unsafe.Offsetof(at.Rto)),
		SndMSS:       s.u32(unsafe.Offsetof(at.Snd_mss)),
		RcvMSS:       s.u32(unsafe.Offsetof(at.Rcv_mss)),
		PMTU:         s.u32(unsafe.Offsetof(at.Pmtu)),
		Unacked:      s.u32(unsafe.Offsetof(at.Unacked)),
		Lost:         s.u32(unsafe.Offsetof(at.Lost)),
		RTT:          s.u32(unsafe.Offsetof(at.Rtt)),
		RTTVar:       s.u32(unsafe.Offsetof(at.Rttvar)),
		MinRTT:       s.u32(unsafe.Offsetof(at.Min_rtt)),
		Ssthresh:     s.u32(unsafe.Offsetof(at.Snd_ssthresh)),
		Cwnd:         s.u32(unsafe.Offsetof(at.Snd_cwnd)),
		SndWnd:       s.u32(unsafe.Offsetof(at.Snd_wnd)),
		RcvSpace:     s.u32(unsafe.Offsetof(at.Rcv_space)),
		Retrans:      s.u32(unsafe.Offsetof(at.Retrans)),
		TotalRetrans: s.u32(unsafe.Offsetof(at.Total_retrans)),
		PacingRate:   s.u64(unsafe.Offsetof(at.Pacing_rate)),
		DeliveryRate: s.u64(unsafe.Offsetof(at.Delivery_rate)),
		BytesSent:    s.u64(unsafe.Offsetof(at.Bytes_sent)),
		BytesAcked:   s.u64(unsafe.Offsetof(at.Bytes_acked)),
		BytesRecv:    s.u64(unsafe.Offsetof(at.Bytes_received)),
		BytesRetrans: s.u64(unsafe.Offsetof(at.Bytes_retrans)),
		NotSent:      s.u32(unsafe.Offsetof(at.Notsent_bytes)),
		SegsOut:      s.u32(unsafe.Offsetof(at.Segs_out)),
		SegsIn:       s.u32(unsafe.Offsetof(at.Segs_in)),
		LastSent:     s.u32(unsafe.Offsetof(at.Last_data_sent)),
		LastRecv:     s.u32(unsafe.Offsetof(at.Last_data_recv)),
	}
	if i.Ssthresh.N >= infiniteSsthresh {
		i.Ssthresh = Value{}
	}
	if i.MinRTT.N == noMinRTT {
		i.MinRTT = Value{}
	}
	if i.RTT.N == 0 { // no sample yet
		i.RTT, i.RTTVar = Value{}, Value{}
	}
	if i.PacingRate.N == 1<<64-1 { // sk_pacing_rate not set
		i.PacingRate = Value{}
	}
	return i
}
