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
	Options   TCPOptions `json:"options,omitempty"`              // tcpi_options: what was negotiated or seen, joined by commas
	SndWScale Value      `json:"snd_wscale,omitzero"`            // tcpi_snd_wscale: shift of the windows that the peer offers
	RcvWScale Value      `json:"rcv_wscale,omitzero"`            // tcpi_rcv_wscale: shift of the windows offered to it
	TFOFail   string     `json:"fastopen_client_fail,omitempty"` // tcpi_fastopen_client_fail: cookie-unavailable, data-not-acked or syn-retransmitted

	RTO         Value `json:"rto_us,omitzero"`      // tcpi_rto, microseconds: until a retransmission
	Backoff     Value `json:"backoff,omitzero"`     // tcpi_backoff: times that the timeout was doubled
	Retransmits Value `json:"retransmits,omitzero"` // tcpi_retransmits: timeouts in a row without an acknowledgement
	Probes      Value `json:"probes,omitzero"`      // tcpi_probes: window or keepalive probes not answered
	ATO         Value `json:"ato_us,omitzero"`      // tcpi_ato, microseconds: until a delayed acknowledgement

	RTT    Value `json:"rtt_us,omitzero"`     // tcpi_rtt, microseconds: round trip, smoothed
	RTTVar Value `json:"rttvar_us,omitzero"`  // tcpi_rttvar, microseconds: its mean deviation
	MinRTT Value `json:"min_rtt_us,omitzero"` // tcpi_min_rtt, microseconds: the recent minimum
	RcvRTT Value `json:"rcv_rtt_us,omitzero"` // tcpi_rcv_rtt, microseconds: as the receiver sees it

	SndMSS      Value `json:"snd_mss,omitzero"`      // tcpi_snd_mss, bytes of data in a segment
	RcvMSS      Value `json:"rcv_mss,omitzero"`      // tcpi_rcv_mss, bytes: of segments received
	AdvMSS      Value `json:"advmss,omitzero"`       // tcpi_advmss, bytes: told to the peer
	PMTU        Value `json:"pmtu,omitzero"`         // tcpi_pmtu, bytes of a packet
	Cwnd        Value `json:"cwnd,omitzero"`         // tcpi_snd_cwnd, segments: congestion window
	Ssthresh    Value `json:"ssthresh,omitzero"`     // tcpi_snd_ssthresh, segments: where slow start ends; absent: without limit
	SndWnd      Value `json:"snd_wnd,omitzero"`      // tcpi_snd_wnd, bytes: what the peer's window leaves
	RcvWnd      Value `json:"rcv_wnd,omitzero"`      // tcpi_rcv_wnd, bytes: the window offered to the peer
	RcvSpace    Value `json:"rcv_space,omitzero"`    // tcpi_rcv_space, bytes: read by the program in a round trip
	RcvSsthresh Value `json:"rcv_ssthresh,omitzero"` // tcpi_rcv_ssthresh, bytes: how far the window may grow

	Unacked      Value `json:"unacked,omitzero"`              // tcpi_unacked, segments on their way
	NotSent      Value `json:"notsent,omitzero"`              // tcpi_notsent_bytes, bytes in the send queue not yet sent
	Sacked       Value `json:"sacked,omitzero"`               // tcpi_sacked, segments the peer has beyond a hole
	Lost         Value `json:"lost,omitzero"`                 // tcpi_lost, segments taken for lost
	Retrans      Value `json:"retrans,omitzero"`              // tcpi_retrans, segments sent again and not acknowledged yet
	TotalRetrans Value `json:"total_retrans,omitzero"`        // tcpi_total_retrans, segments sent again in the connection's life
	Fackets      Value `json:"fackets,omitzero"`              // tcpi_fackets, segments up to the last one selectively acknowledged; Linux before 4.15
	Reordering   Value `json:"reordering,omitzero"`           // tcpi_reordering, segments: how far out of order they may come without being lost
	ReordSeen    Value `json:"reord_seen,omitzero"`           // tcpi_reord_seen: times that order was not kept
	DSACKDups    Value `json:"dsack_dups,omitzero"`           // tcpi_dsack_dups: segments that the peer had twice
	RcvOOO       Value `json:"rcv_ooopack,omitzero"`          // tcpi_rcv_ooopack: segments received out of order
	Rehash       Value `json:"rehash,omitzero"`               // tcpi_rehash: times that another path was tried, by another hash
	TotalRTO     Value `json:"total_rto,omitzero"`            // tcpi_total_rto: retransmission timeouts in the connection's life
	TotalRTORec  Value `json:"total_rto_recoveries,omitzero"` // tcpi_total_rto_recoveries: times that one had ended
	TotalRTOTime Value `json:"total_rto_time_ms,omitzero"`    // tcpi_total_rto_time, milliseconds spent in them

	PacingRate    Value `json:"pacing_rate,omitzero"`                // tcpi_pacing_rate, bytes a second: what is sent at most
	MaxPacingRate Value `json:"max_pacing_rate,omitzero"`            // tcpi_max_pacing_rate, bytes a second: SO_MAX_PACING_RATE
	DeliveryRate  Value `json:"delivery_rate,omitzero"`              // tcpi_delivery_rate, bytes a second: recently delivered to the peer
	AppLimited    bool  `json:"delivery_rate_app_limited,omitempty"` // tcpi_delivery_rate_app_limited: it was the program that had no more to send

	Busy          Value `json:"busy_us,omitzero"`           // tcpi_busy_time, microseconds in which there was something to send
	RwndLimited   Value `json:"rwnd_limited_us,omitzero"`   // tcpi_rwnd_limited, microseconds of these: held up by the peer's window
	SndbufLimited Value `json:"sndbuf_limited_us,omitzero"` // tcpi_sndbuf_limited, microseconds of these: by the send buffer

	BytesSent    Value `json:"bytes_sent,omitzero"`     // tcpi_bytes_sent, bytes of data, those sent again included
	BytesAcked   Value `json:"bytes_acked,omitzero"`    // tcpi_bytes_acked, bytes that the peer has
	BytesRecv    Value `json:"bytes_received,omitzero"` // tcpi_bytes_received, bytes in order
	BytesRetrans Value `json:"bytes_retrans,omitzero"`  // tcpi_bytes_retrans, bytes sent again
	SegsOut      Value `json:"segs_out,omitzero"`       // tcpi_segs_out
	SegsIn       Value `json:"segs_in,omitzero"`        // tcpi_segs_in
	DataSegsOut  Value `json:"data_segs_out,omitzero"`  // tcpi_data_segs_out: those with data
	DataSegsIn   Value `json:"data_segs_in,omitzero"`   // tcpi_data_segs_in: those with data
	Delivered    Value `json:"delivered,omitzero"`      // tcpi_delivered, segments the peer has
	DeliveredCE  Value `json:"delivered_ce,omitzero"`   // tcpi_delivered_ce, segments of these that ECN marked

	LastSent Value `json:"last_data_sent_ms,omitzero"` // tcpi_last_data_sent, milliseconds ago
	LastRecv Value `json:"last_data_recv_ms,omitzero"` // tcpi_last_data_recv, milliseconds ago
	LastAck  Value `json:"last_ack_recv_ms,omitzero"`  // tcpi_last_ack_recv, milliseconds ago
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
	// The offsets are those of x/sys's copy of the structure; it only grows.
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

// forListener removes two members that have another meaning for a listening socket: its
// queue, which RecvQ and SendQ contain.
func (i *TCPInfo) forListener() { i.Unacked, i.Sacked = Value{}, Value{} }

// positive reads a member in which 0 means "none yet".
func (s structure) positive(off uintptr) Value {
	if v := s.u32(off); v.N != 0 {
		return v
	}
	return Value{}
}
