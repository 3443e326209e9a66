// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"fmt"
	"strings"
)

// MPTCPInfo is struct mptcp_info, include/uapi/linux/mptcp.h.
type MPTCPInfo struct {
	Token       Value `json:"token,omitzero"` // ours, which names the connection
	Fallback    bool  `json:"fallback"`       // it is plain TCP: the peer, or the path, has no MPTCP
	RemoteKey   bool  `json:"remote_key_received"`
	Subflows    Value `json:"extra_subflows,omitzero"` // beside the first
	Total       Value `json:"subflows,omitzero"`       // with the first
	SubflowsMax Value `json:"extra_subflows_max,omitzero"`
	Signalled   Value `json:"add_addr_signal,omitzero"`
	Accepted    Value `json:"add_addr_accepted,omitzero"`
	AcceptedMax Value `json:"add_addr_accepted_max,omitzero"`
	LocalUsed   Value `json:"local_addr_used,omitzero"`
	LocalMax    Value `json:"local_addr_max,omitzero"`
	Checksum    Value `json:"csum_enabled,omitzero"`

	// Of the data level: each byte once, whichever subflow carried it.
	WriteSeq     Value `json:"write_seq,omitzero"`
	SndUna       Value `json:"snd_una,omitzero"`
	RcvNxt       Value `json:"rcv_nxt,omitzero"`
	Retransmits  Value `json:"retransmits,omitzero"`
	BytesSent    Value `json:"bytes_sent,omitzero"`
	BytesAcked   Value `json:"bytes_acked,omitzero"`
	BytesRecv    Value `json:"bytes_received,omitzero"`
	BytesRetrans Value `json:"bytes_retrans,omitzero"`
	LastSent     Value `json:"last_data_sent_ms,omitzero"`
	LastRecv     Value `json:"last_data_recv_ms,omitzero"`
	LastAck      Value `json:"last_ack_recv_ms,omitzero"`
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
	Token       Value        `json:"token,omitzero"` // ours
	RemoteToken Value        `json:"remote_token,omitzero"`
	ID          Value        `json:"id,omitzero"` // of our address
	RemoteID    Value        `json:"remote_id,omitzero"`
	Flags       SubflowFlags `json:"flags"`
	MapSeq      Value        `json:"map_seq,omitzero"`
	MapDataLen  Value        `json:"map_datalen,omitzero"`
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
