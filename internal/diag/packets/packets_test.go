// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/capture"
)

// A subflow gets the note of its connection. It also gets the connection's
// owner if it has none.
func TestConvert(t *testing.T) {
	curl := []sockdiag.Process{{PID: 42, Comm: "curl", FDs: []int{5}}}
	at := netip.MustParseAddrPort("192.0.2.1:40000")
	all := []sockdiag.Socket{
		{Proto: sockdiag.TCP, State: sockdiag.Established, Local: at, Subflow: &sockdiag.Subflow{Token: sockdiag.Known(0x23ebfb7), ID: sockdiag.Known(2)}},
		{Proto: sockdiag.MPTCP, State: sockdiag.Established, Inode: 7, Processes: curl, MPTCP: &sockdiag.MPTCPInfo{Token: sockdiag.Known(0x23ebfb7)}},
		{Proto: sockdiag.TCP, State: synSent, Subflow: &sockdiag.Subflow{}},
		{Proto: sockdiag.TCP, State: sockdiag.Established, Subflow: &sockdiag.Subflow{}},
		{Proto: sockdiag.TCP, State: synRecv},
		{Proto: sockdiag.UDP, State: sockdiag.Close, Processes: curl},
	}
	got := convert(all)
	if len(got) != 5 {
		t.Fatalf("%d sockets of TCP and UDP: %+v", len(got), got)
	}
	if s := got[0]; s.Proto != unix.IPPROTO_TCP || s.Local != at || s.Early || s.Note != "mptcp token 023ebfb7 id 2" || s.Owner == nil || s.Owner.PID != 42 || s.Owner.Inode != 7 {
		t.Errorf("%+v, owner %+v", s, s.Owner)
	}
	for _, s := range got[1:4] {
		if !s.Early || s.Note != "" || s.Owner != nil {
			t.Errorf("%+v", s)
		}
	}
	if s := got[4]; s.Proto != unix.IPPROTO_UDP || s.Early || s.Owner == nil || s.Owner.Comm != "curl" {
		t.Errorf("%+v, owner %+v", s, s.Owner)
	}
}

// Packets in any answer of the stack are either parsed or rejected.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint8(1))
	f.Add(binary.NativeEndian.AppendUint64(make([]byte, 40), 72), append(binary.NativeEndian.AppendUint64(nil, 36), make([]byte, 8)...), uint8(2))
	aux := binary.NativeEndian.AppendUint64(nil, 36)
	aux = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(aux, unix.SOL_PACKET), unix.PACKET_AUXDATA)
	aux = binary.NativeEndian.AppendUint32(aux, tpVLANValid)
	f.Add(binary.NativeEndian.AppendUint64(make([]byte, 40), 80), append(aux, make([]byte, 40)...), uint8(2))
	f.Fuzz(func(t *testing.T, head, ctrl []byte, n uint8) {
		for _, word := range []int{8, 4} {
			b := newBatch(layoutFor(word, unix.SO_TIMESTAMPNS), 64, 2)
			copy(b.msgs.Data, head)
			b.data[0].Data = head[:min(len(head), int(n), 64)]
			for i := range b.ctrl {
				copy(b.ctrl[i].Data, ctrl)
				copy(b.name[i].Data, head)
			}
			packets, err := b.packets(int(n%3), capture.LinkTypeEthernet)
			if err == nil && len(packets) != int(n%3) {
				t.Errorf("%d packets of %d", len(packets), n%3)
			}
		}
	})
}
