// SPDX-License-Identifier: Apache-2.0

package mptcpevent

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
)

// message makes an event like the kernel's mptcp_event().
func message(t testing.TB, cmd uint8, fill func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{cmd, 1, 0, 0}, b...)
}

func refused(ae *netlink.AttributeEncoder) {
	ae.Uint32(attrToken, 0x023ebfb7)
	ae.Bytes(attrLocal4, []byte{10, 71, 2, 2})
	ae.Bytes(attrRemote4, []byte{10, 71, 1, 1})
	ae.Bytes(attrLocalPort, []byte{0xe4, 0x6b})
	ae.Bytes(attrRemotePort, []byte{0, 80})
	ae.Uint8(attrLocalID, 2)
	ae.Uint8(attrRemoteID, 0)
	ae.Uint8(attrBackup, 1)
	ae.Uint32(attrIfIndex, 3)
	ae.Uint8(attrError, uint8(syscall.ECONNREFUSED))
	ae.Uint32(attrResetReason, 6)
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		cmd  uint8
		fill func(*netlink.AttributeEncoder)
		want string
	}{
		{11, refused, `{"time":"0001-01-01T00:00:00Z","event":"SF_CLOSED","token":"023ebfb7","local_id":2,"remote_id":0,` +
			`"local":"10.71.2.2:58475","remote":"10.71.1.1:80","backup":true,"ifindex":3,"errno":111,"reset_reason":6}`},
		{1, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(attrToken, 1)
			ae.Uint8(attrServerSide, 1)
			ae.Uint16(attrFlags, flagDenyJoinID0)
			ae.Bytes(attrLocal6, []byte{0: 0xfd, 15: 1})
			ae.Bytes(attrLocalPort, []byte{0, 80})
		}, `{"time":"0001-01-01T00:00:00Z","event":"CREATED","token":"00000001","local":"[fd00::1]:80","server_side":true,"deny_join_id0":true}`},
		{6, func(ae *netlink.AttributeEncoder) { // 4 in 6
			ae.Uint8(attrRemoteID, 7)
			ae.Bytes(attrRemote6, []byte{10: 0xff, 0xff, 10, 0, 0, 1})
			ae.Bytes(attrRemotePort, []byte{0, 80})
		}, `{"time":"0001-01-01T00:00:00Z","event":"ANNOUNCED","remote_id":7,"remote":"10.0.0.1:80"}`},
	} {
		e, ok := parse(message(t, c.cmd, c.fill))
		got, err := json.Marshal(e)
		if !ok || err != nil || string(got) != c.want {
			t.Errorf("%v, %v:\n%s\nwant\n%s", ok, err, got, c.want)
		}
		var back Event
		if err := json.Unmarshal(got, &back); err != nil {
			t.Error(err)
		}
	}
	if e, ok := parse(message(t, 99, refused)); ok {
		t.Errorf("an event that is not known: %+v", e)
	}
}

func TestResetWords(t *testing.T) {
	for reason, want := range map[int]string{6: "middlebox interference", 9: "reason 9"} {
		if got := (Event{ResetReason: &reason}).ResetWords(); got != want {
			t.Errorf("%d: %q", reason, got)
		}
	}
}

// Events of other kernel versions are parsed or ignored, without errors.
func FuzzParse(f *testing.F) {
	f.Add(message(f, 11, refused))
	f.Add([]byte{1, 1, 0, 0, 5, 0, 9, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := parse(b)
		if _, err := json.Marshal(e); ok && err != nil {
			t.Error(err)
		}
	})
}
