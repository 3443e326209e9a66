// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TCPInfo is struct tcp_info, include/uapi/linux/tcp.h; the comment of each field names
// the member. Rates are in bytes a second.
type TCPInfo struct {
	CAState   Value      `json:"ca_state,omitzero"`              // tcpi_ca_state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss
	Options   TCPOptions `json:"options,omitempty"`              // tcpi_options: negotiated options, separated by commas
	SndWScale Value      `json:"snd_wscale,omitzero"`            // tcpi_snd_wscale: window scale of the peer
	RcvWScale Value      `json:"rcv_wscale,omitzero"`            // tcpi_rcv_wscale: own window scale
	TFOFail   string     `json:"fastopen_client_fail,omitempty"` // tcpi_fastopen_client_fail: cookie-unavailable, data-not-acked or syn-retransmitted

	RTO         Value `json:"rto_us,omitzero"`      // tcpi_rto: retransmission timeout in microseconds
	Backoff     Value `json:"backoff,omitzero"`     // tcpi_backoff: number of times that the timeout was doubled
	Retransmits Value `json:"retransmits,omitzero"` // tcpi_retransmits: consecutive timeouts without an acknowledgement
	Probes      Value `json:"probes,omitzero"`      // tcpi_probes: unanswered window or keepalive probes
	ATO         Value `json:"ato_us,omitzero"`      // tcpi_ato: delayed acknowledgement timeout in microseconds

	RTT    Value `json:"rtt_us,omitzero"`     // tcpi_rtt: smoothed round-trip time in microseconds
	RTTVar Value `json:"rttvar_us,omitzero"`  // tcpi_rttvar: mean deviation of the round-trip time in microseconds
	MinRTT Value `json:"min_rtt_us,omitzero"` // tcpi_min_rtt: recent minimum round-trip time in microseconds
	RcvRTT Value `json:"rcv_rtt_us,omitzero"` // tcpi_rcv_rtt: round-trip time estimated by the receiver in microseconds

	SndMSS      Value `json:"snd_mss,omitzero"`      // tcpi_snd_mss: maximum segment size for sending in bytes
	RcvMSS      Value `json:"rcv_mss,omitzero"`      // tcpi_rcv_mss: estimated size of received segments in bytes
	AdvMSS      Value `json:"advmss,omitzero"`       // tcpi_advmss: maximum segment size advertised to the peer in bytes
	PMTU        Value `json:"pmtu,omitzero"`         // tcpi_pmtu: path MTU in bytes
	Cwnd        Value `json:"cwnd,omitzero"`         // tcpi_snd_cwnd: congestion window in segments
	Ssthresh    Value `json:"ssthresh,omitzero"`     // tcpi_snd_ssthresh: slow-start threshold in segments; absent: no threshold
	SndWnd      Value `json:"snd_wnd,omitzero"`      // tcpi_snd_wnd: peer's window in bytes
	RcvWnd      Value `json:"rcv_wnd,omitzero"`      // tcpi_rcv_wnd: window advertised to the peer in bytes
	RcvSpace    Value `json:"rcv_space,omitzero"`    // tcpi_rcv_space: bytes read by the program per round trip
	RcvSsthresh Value `json:"rcv_ssthresh,omitzero"` // tcpi_rcv_ssthresh: limit of the advertised window in bytes

	Unacked      Value `json:"unacked,omitzero"`              // tcpi_unacked: segments in flight
	NotSent      Value `json:"notsent,omitzero"`              // tcpi_notsent_bytes: bytes in the send queue that are not yet sent
	Sacked       Value `json:"sacked,omitzero"`               // tcpi_sacked: selectively acknowledged segments
	Lost         Value `json:"lost,omitzero"`                 // tcpi_lost: segments considered lost
	Retrans      Value `json:"retrans,omitzero"`              // tcpi_retrans: retransmitted segments that are not yet acknowledged
	TotalRetrans Value `json:"total_retrans,omitzero"`        // tcpi_total_retrans: segments retransmitted in total
	Fackets      Value `json:"fackets,omitzero"`              // tcpi_fackets: segments up to the last selectively acknowledged one; Linux before 4.15
	Reordering   Value `json:"reordering,omitzero"`           // tcpi_reordering: reordering distance in segments before a segment is considered lost
	ReordSeen    Value `json:"reord_seen,omitzero"`           // tcpi_reord_seen: reordering events
	DSACKDups    Value `json:"dsack_dups,omitzero"`           // tcpi_dsack_dups: segments that the peer received twice
	RcvOOO       Value `json:"rcv_ooopack,omitzero"`          // tcpi_rcv_ooopack: segments received out of order
	Rehash       Value `json:"rehash,omitzero"`               // tcpi_rehash: route changes by a new flow hash
	TotalRTO     Value `json:"total_rto,omitzero"`            // tcpi_total_rto: retransmission timeouts in total
	TotalRTORec  Value `json:"total_rto_recoveries,omitzero"` // tcpi_total_rto_recoveries: recoveries from retransmission timeouts
	TotalRTOTime Value `json:"total_rto_time_ms,omitzero"`    // tcpi_total_rto_time: time spent in these recoveries in milliseconds

	PacingRate    Value `json:"pacing_rate,omitzero"`                // tcpi_pacing_rate: pacing rate in bytes per second
	MaxPacingRate Value `json:"max_pacing_rate,omitzero"`            // tcpi_max_pacing_rate: limit of the pacing rate in bytes per second (SO_MAX_PACING_RATE)
	DeliveryRate  Value `json:"delivery_rate,omitzero"`              // tcpi_delivery_rate: recent delivery rate in bytes per second
	AppLimited    bool  `json:"delivery_rate_app_limited,omitempty"` // tcpi_delivery_rate_app_limited: the program limited the delivery rate

	Busy          Value `json:"busy_us,omitzero"`           // tcpi_busy_time: time with data to send in microseconds
	RwndLimited   Value `json:"rwnd_limited_us,omitzero"`   // tcpi_rwnd_limited: busy time limited by the peer's window in microseconds
	SndbufLimited Value `json:"sndbuf_limited_us,omitzero"` // tcpi_sndbuf_limited: busy time limited by the send buffer in microseconds

	BytesSent    Value `json:"bytes_sent,omitzero"`     // tcpi_bytes_sent: data bytes sent, including retransmissions
	BytesAcked   Value `json:"bytes_acked,omitzero"`    // tcpi_bytes_acked: bytes acknowledged by the peer
	BytesRecv    Value `json:"bytes_received,omitzero"` // tcpi_bytes_received: bytes received in order
	BytesRetrans Value `json:"bytes_retrans,omitzero"`  // tcpi_bytes_retrans: bytes retransmitted
	SegsOut      Value `json:"segs_out,omitzero"`       // tcpi_segs_out: segments sent
	SegsIn       Value `json:"segs_in,omitzero"`        // tcpi_segs_in: segments received
	DataSegsOut  Value `json:"data_segs_out,omitzero"`  // tcpi_data_segs_out: segments with data sent
	DataSegsIn   Value `json:"data_segs_in,omitzero"`   // tcpi_data_segs_in: segments with data received
	Delivered    Value `json:"delivered,omitzero"`      // tcpi_delivered: segments delivered to the peer
	DeliveredCE  Value `json:"delivered_ce,omitzero"`   // tcpi_delivered_ce: delivered segments with an ECN mark

	LastSent Value `json:"last_data_sent_ms,omitzero"` // tcpi_last_data_sent: time since data was last sent in milliseconds
	LastRecv Value `json:"last_data_recv_ms,omitzero"` // tcpi_last_data_recv: time since data was last received in milliseconds
	LastAck  Value `json:"last_ack_recv_ms,omitzero"`  // tcpi_last_ack_recv: time since the last acknowledgement in milliseconds
}

// Values that mean "none": in tcpi_snd_ssthresh (TCP_INFINITE_SSTHRESH), in tcpi_min_rtt
// before the first sample, and in rates that are not set.
const (
	infiniteSsthresh = 0x7fffffff
	noMinRTT         = 1<<32 - 1
	noRate           = 1<<64 - 1
)

// caStates are enum tcp_ca_state, include/uapi/linux/tcp.h.
var caStates = [...]string{"open", "disorder", "CWR", "recovery", "loss"}

// CAStateName is the state of loss recovery in a word; empty if unknown.
func (i *TCPInfo) CAStateName() string {
	if !i.CAState.Known || i.CAState.N >= uint64(len(caStates)) {
		return ""
	}
	return caStates[i.CAState.N]
}

// SlowStart is tcp_in_slow_start of include/net/tcp.h: the window is below the slow-start
// threshold. ok is false if the stack does not report that.
func (i *TCPInfo) SlowStart() (yes, ok bool) {
	if !i.Cwnd.Known {
		return false, false
	}
	return !i.Ssthresh.Known || i.Cwnd.N < i.Ssthresh.N, true
}

// TCPOptions are TCPI_OPT_*, include/uapi/linux/tcp.h.
type TCPOptions uint8

// Options that affect the meaning of other values.
const (
	OptTimestamps TCPOptions = 1 << 0
	OptSACK       TCPOptions = 1 << 1
	OptWScale     TCPOptions = 1 << 2
	OptECN        TCPOptions = 1 << 3
)

var optionNames = [...]string{"timestamps", "sack", "wscale", "ecn", "ecn-seen", "syn-data", "usec-timestamps", "fastopen-child"}

// Names lists the options that are set.
func (o TCPOptions) Names() []string {
	names := []string{}
	for i, name := range optionNames {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// MarshalText encodes the options in JSON by their names.
func (o TCPOptions) MarshalText() ([]byte, error) { return []byte(strings.Join(o.Names(), ",")), nil }

// UnmarshalText decodes the output of MarshalText.
func (o *TCPOptions) UnmarshalText(b []byte) error {
	*o = 0
	for _, word := range strings.FieldsFunc(string(b), func(r rune) bool { return r == ',' }) {
		bit := -1
		for i, name := range optionNames {
			if name == word {
				bit = i
			}
		}
		if bit < 0 {
			return fmt.Errorf("unknown TCP option %q", word)
		}
		*o |= 1 << bit
	}
	return nil
}

// tfoFailures are enum tcp_fastopen_client_fail, include/uapi/linux/tcp.h.
var tfoFailures = [4]string{"", "cookie-unavailable", "data-not-acked", "syn-retransmitted"}

func decodeTCPInfo(b []byte) *TCPInfo {
	s := structure(b)
	// The offsets are those of x/sys's copy of the structure, which only grows.
	var at unix.TCPInfo
	i := &TCPInfo{
		CAState:      s.u8(unsafe.Offsetof(at.Ca_state)),
		Options:      TCPOptions(s.u8(unsafe.Offsetof(at.Options)).N),
		RTO:          s.u32(unsafe.Offsetof(at.Rto)),
		Backoff:      s.u8(unsafe.Offsetof(at.Backoff)),
		Retransmits:  s.u8(unsafe.Offsetof(at.Retransmits)),
		Probes:       s.u8(unsafe.Offsetof(at.Probes)),
		ATO:          s.positive(unsafe.Offsetof(at.Ato)),
		RTT:          s.u32(unsafe.Offsetof(at.Rtt)),
		RTTVar:       s.u32(unsafe.Offsetof(at.Rttvar)),
		MinRTT:       s.u32(unsafe.Offsetof(at.Min_rtt)),
		RcvRTT:       s.positive(unsafe.Offsetof(at.Rcv_rtt)),
		SndMSS:       s.u32(unsafe.Offsetof(at.Snd_mss)),
		RcvMSS:       s.u32(unsafe.Offsetof(at.Rcv_mss)),
		AdvMSS:       s.u32(unsafe.Offsetof(at.Advmss)),
		PMTU:         s.u32(unsafe.Offsetof(at.Pmtu)),
		Cwnd:         s.u32(unsafe.Offsetof(at.Snd_cwnd)),
		Ssthresh:     s.u32(unsafe.Offsetof(at.Snd_ssthresh)),
		SndWnd:       s.u32(unsafe.Offsetof(at.Snd_wnd)),
		RcvWnd:       s.u32(unsafe.Offsetof(at.Rcv_wnd)),
		RcvSpace:     s.u32(unsafe.Offsetof(at.Rcv_space)),
		RcvSsthresh:  s.u32(unsafe.Offsetof(at.Rcv_ssthresh)),
		Unacked:      s.u32(unsafe.Offsetof(at.Unacked)),
		NotSent:      s.u32(unsafe.Offsetof(at.Notsent_bytes)),
		Sacked:       s.u32(unsafe.Offsetof(at.Sacked)),
		Lost:         s.u32(unsafe.Offsetof(at.Lost)),
		Retrans:      s.u32(unsafe.Offsetof(at.Retrans)),
		TotalRetrans: s.u32(unsafe.Offsetof(at.Total_retrans)),
		Fackets:      s.positive(unsafe.Offsetof(at.Fackets)),
		Reordering:   s.u32(unsafe.Offsetof(at.Reordering)),
		ReordSeen:    s.u32(unsafe.Offsetof(at.Reord_seen)),
		DSACKDups:    s.u32(unsafe.Offsetof(at.Dsack_dups)),
		RcvOOO:       s.u32(unsafe.Offsetof(at.Rcv_ooopack)),
		Rehash:       s.u32(unsafe.Offsetof(at.Rehash)),
		TotalRTO:     s.u16(unsafe.Offsetof(at.Total_rto)),
		TotalRTORec:  s.u16(unsafe.Offsetof(at.Total_rto_recoveries)),
		TotalRTOTime: s.u32(unsafe.Offsetof(at.Total_rto_time)),

		PacingRate:    s.u64(unsafe.Offsetof(at.Pacing_rate)),
		MaxPacingRate: s.u64(unsafe.Offsetof(at.Max_pacing_rate)),
		DeliveryRate:  s.u64(unsafe.Offsetof(at.Delivery_rate)),
		Busy:          s.u64(unsafe.Offsetof(at.Busy_time)),
		RwndLimited:   s.u64(unsafe.Offsetof(at.Rwnd_limited)),
		SndbufLimited: s.u64(unsafe.Offsetof(at.Sndbuf_limited)),

		BytesSent:    s.u64(unsafe.Offsetof(at.Bytes_sent)),
		BytesAcked:   s.u64(unsafe.Offsetof(at.Bytes_acked)),
		BytesRecv:    s.u64(unsafe.Offsetof(at.Bytes_received)),
		BytesRetrans: s.u64(unsafe.Offsetof(at.Bytes_retrans)),
		SegsOut:      s.u32(unsafe.Offsetof(at.Segs_out)),
		SegsIn:       s.u32(unsafe.Offsetof(at.Segs_in)),
		DataSegsOut:  s.u32(unsafe.Offsetof(at.Data_segs_out)),
		DataSegsIn:   s.u32(unsafe.Offsetof(at.Data_segs_in)),
		Delivered:    s.u32(unsafe.Offsetof(at.Delivered)),
		DeliveredCE:  s.u32(unsafe.Offsetof(at.Delivered_ce)),
		LastSent:     s.u32(unsafe.Offsetof(at.Last_data_sent)),
		LastRecv:     s.u32(unsafe.Offsetof(at.Last_data_recv)),
		LastAck:      s.u32(unsafe.Offsetof(at.Last_ack_recv)),
	}
	// Two bytes of bit fields follow tcpi_options, starting at the low bit.
	shifts, flags := s.u8(unsafe.Offsetof(at.Options)+1), s.u8(unsafe.Offsetof(at.Options)+2)
	if i.Options&OptWScale != 0 && shifts.Known {
		i.SndWScale, i.RcvWScale = Known(shifts.N&15), Known(shifts.N>>4)
	}
	i.AppLimited = flags.N&1 != 0
	i.TFOFail = tfoFailures[flags.N>>1&3]
	if i.Ssthresh.N >= infiniteSsthresh {
		i.Ssthresh = Value{}
	}
	if i.MinRTT.N == noMinRTT {
		i.MinRTT = Value{}
	}
	if i.RTT.N == 0 { // no sample yet
		i.RTT, i.RTTVar = Value{}, Value{}
	}
	for _, rate := range []*Value{&i.PacingRate, &i.MaxPacingRate} {
		if rate.N == noRate {
			*rate = Value{}
		}
	}
	return i
}

// forListener removes two members that have another meaning for a listening socket: they
// describe its queue, which RecvQ and SendQ contain.
func (i *TCPInfo) forListener() { i.Unacked, i.Sacked = Value{}, Value{} }

// positive reads a member in which 0 means "none yet".
func (s structure) positive(off uintptr) Value {
	if v := s.u32(off); v.N != 0 {
		return v
	}
	return Value{}
}
