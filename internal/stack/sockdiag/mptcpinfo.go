// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"fmt"
	"strings"
)

// MPTCPInfo is struct mptcp_info, include/uapi/linux/mptcp.h.
type MPTCPInfo struct {
	Token       Value `json:"token,omitzero"`                 // local token, which identifies the connection
	Fallback    bool  `json:"fallback"`                       // the connection fell back to plain TCP
	RemoteKey   bool  `json:"remote_key_received"`            // the key of the peer was received
	Subflows    Value `json:"extra_subflows,omitzero"`        // number of subflows, without the first
	Total       Value `json:"subflows,omitzero"`              // number of subflows, with the first
	SubflowsMax Value `json:"extra_subflows_max,omitzero"`    // limit of additional subflows
	Signalled   Value `json:"add_addr_signal,omitzero"`       // addresses announced to the peer
	Accepted    Value `json:"add_addr_accepted,omitzero"`     // announced addresses of the peer that were accepted
	AcceptedMax Value `json:"add_addr_accepted_max,omitzero"` // limit of accepted addresses
	LocalUsed   Value `json:"local_addr_used,omitzero"`       // local addresses used for subflows
	LocalMax    Value `json:"local_addr_max,omitzero"`        // limit of local addresses
	Checksum    Value `json:"csum_enabled,omitzero"`          // 1 if data checksums are enabled

	WriteSeq     Value `json:"write_seq,omitzero"`         // next data sequence number to send
	SndUna       Value `json:"snd_una,omitzero"`           // first unacknowledged data sequence number
	RcvNxt       Value `json:"rcv_nxt,omitzero"`           // next data sequence number to receive
	Retransmits  Value `json:"retransmits,omitzero"`       // consecutive retransmission timeouts at the data level
	BytesSent    Value `json:"bytes_sent,omitzero"`        // data bytes sent, counted once for all subflows
	BytesAcked   Value `json:"bytes_acked,omitzero"`       // data bytes acknowledged by the peer
	BytesRecv    Value `json:"bytes_received,omitzero"`    // data bytes received
	BytesRetrans Value `json:"bytes_retrans,omitzero"`     // data bytes retransmitted
	LastSent     Value `json:"last_data_sent_ms,omitzero"` // time since data was last sent in milliseconds
	LastRecv     Value `json:"last_data_recv_ms,omitzero"` // time since data was last received in milliseconds
	LastAck      Value `json:"last_ack_recv_ms,omitzero"`  // time since the last acknowledgement in milliseconds
}

// Flags in mptcpi_flags.
const (
	mptcpInfoFallback  = 1 << 0
	mptcpInfoRemoteKey = 1 << 1
)

// decodeMPTCPInfo decodes the structure with the offsets of 64-bit machines: six bytes,
// two of padding, two u32, three u64 to byte 40, three bytes and one of padding. Linux
// 5.9 has the first 40 bytes, 6.1 44, 6.5 80, 6.7 84, 6.9 and later 96.
func decodeMPTCPInfo(b []byte) *MPTCPInfo {
	s := structure(b)
	flags := s.u32(8)
	return &MPTCPInfo{
		Subflows: s.u8(0), Signalled: s.u8(1), Accepted: s.u8(2),
		SubflowsMax: s.u8(3), AcceptedMax: s.u8(5),
		Fallback:  flags.N&mptcpInfoFallback != 0,
		RemoteKey: flags.N&mptcpInfoRemoteKey != 0,
		Token:     s.u32(12),
		WriteSeq:  s.u64(16), SndUna: s.u64(24), RcvNxt: s.u64(32),
		LocalUsed: s.u8(40), LocalMax: s.u8(41), Checksum: s.u8(42),
		Retransmits: s.u32(44), BytesRetrans: s.u64(48),
		BytesSent: s.u64(56), BytesRecv: s.u64(64), BytesAcked: s.u64(72),
		Total:    s.u8(80),
		LastSent: s.u32(84), LastRecv: s.u32(88), LastAck: s.u32(92),
	}
}

// Subflow holds the INET_DIAG_ULP_INFO of a TCP socket that carries MPTCP:
// MPTCP_SUBFLOW_ATTR_*, include/uapi/linux/mptcp.h.
type Subflow struct {
	Token       Value        `json:"token,omitzero"`        // local token of the connection
	RemoteToken Value        `json:"remote_token,omitzero"` // token of the peer
	ID          Value        `json:"id,omitzero"`           // ID of the local address
	RemoteID    Value        `json:"remote_id,omitzero"`    // ID of the peer's address
	Flags       SubflowFlags `json:"flags"`                 // state of the subflow, separated by commas
	MapSeq      Value        `json:"map_seq,omitzero"`      // data sequence number of the current mapping
	MapDataLen  Value        `json:"map_datalen,omitzero"`  // length of the current mapping in bytes
}

// SubflowFlags are MPTCP_SUBFLOW_FLAG_*.
type SubflowFlags uint32

// The flags that affect decisions here.
const (
	FlagCapableRemote SubflowFlags = 1 << 0
	FlagCapableLocal  SubflowFlags = 1 << 1
	FlagJoinRemote    SubflowFlags = 1 << 2
	FlagJoinLocal     SubflowFlags = 1 << 3
	FlagBackupRemote  SubflowFlags = 1 << 4
	FlagBackupLocal   SubflowFlags = 1 << 5

	FlagFullyEstablished SubflowFlags = 1 << 6
)

// subflowFlagNames are words for the flags that ss(8) prints as letters: MmJjBbecv.
var subflowFlagNames = [...]string{
	"capable-remote", "capable-local", "join-remote", "join-local",
	"backup-remote", "backup-local", "fully-established", "connected", "mapped",
}

// Names lists the flags that are set.
func (f SubflowFlags) Names() []string {
	names := []string{}
	for i, name := range subflowFlagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
			f &^= 1 << i
		}
	}
	if f != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(f)))
	}
	return names
}

// Backup reports whether either side wants the subflow as a backup only.
func (f SubflowFlags) Backup() bool { return f&(FlagBackupLocal|FlagBackupRemote) != 0 }

// MarshalText encodes the flags in JSON by their names.
func (f SubflowFlags) MarshalText() ([]byte, error) {
	return []byte(strings.Join(f.Names(), ",")), nil
}

// UnmarshalText decodes the output of MarshalText.
func (f *SubflowFlags) UnmarshalText(b []byte) error {
	*f = 0
	for _, word := range strings.FieldsFunc(string(b), func(r rune) bool { return r == ',' }) {
		bit := -1
		for i, name := range subflowFlagNames {
			if name == word {
				bit = i
			}
		}
		var rest SubflowFlags
		if bit >= 0 {
			rest = 1 << bit
		} else if _, err := fmt.Sscanf(word, "0x%x", &rest); err != nil {
			return fmt.Errorf("unknown subflow flag %q", word)
		}
		*f |= rest
	}
	return nil
}
