// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"testing"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

func TestOffload(t *testing.T) {
	const vnet, all = ctlproto.CTL_LINKF_VNET_HDR, ctlproto.CTL_LINKF_VNET_HDR | ctlproto.CTL_LINKF_OFFLOAD
	for _, tc := range []struct {
		offload   string
		had, want uint32 // flags; 0: refused
	}{
		{"", all, all},
		{"", vnet, vnet},
		{"on", all, all},
		{"on", vnet, all},
		{"off", all, vnet},
		{"on", all | ctlproto.CTL_LINKF_BIG, all | ctlproto.CTL_LINKF_BIG},
		{"off", all | ctlproto.CTL_LINKF_BIG, vnet},
		{"0x0", all, vnet},
		{"0x9983", all, all | 0x9983<<16},
		{"0x9983", all | ctlproto.CTL_LINKF_BIG, all | 0x9983<<16},
		{"0x883", vnet, all | 0x8883<<16},
		{"0x100000883", all, all | 0x8883<<16}, // as in LKL's own examples
		{"on", 0, 0},
		{"0x883", 0, 0},
	} {
		k := End{Flags: tc.had}
		err := k.offload(&Link{Type: "fd", FD: 7, Offload: tc.offload})
		var refused *exit.UsageError
		switch {
		case tc.want == 0 && (!errors.As(err, &refused) || k.Flags != tc.had):
			t.Errorf("%q of %#x: %v, want a refusal", tc.offload, tc.had, err)
		case tc.want != 0 && (err != nil || k.Flags != tc.want):
			t.Errorf("%q of %#x: %#x, %v; want %#x", tc.offload, tc.had, k.Flags, err, tc.want)
		}
	}
	k := End{}
	if err := k.offload(&Link{Type: "fd", Offload: "off"}); err != nil || k.Flags != 0 {
		t.Errorf("off where there is nothing to put off: %#x, %v", k.Flags, err)
	}
}
