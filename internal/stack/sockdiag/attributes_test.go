// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The attributes that the kernel adds to a socket are decoded: timer, memory, congestion
// control.
func TestDecodeAttributes(t *testing.T) {
	u32 := func(numbers ...uint32) (b []byte) {
		for _, n := range numbers {
			b = binary.NativeEndian.AppendUint32(b, n)
		}
		return b
	}
	b := inetMessage(t, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(attrSKMemInfo, u32(1, 131072, 2, 87040, 3, 4, 5, 6, 7))
		ae.Bytes(attrBBR, u32(1000, 1, 20500, 320, 512))
		ae.Bytes(attrVegas, u32(1, 7, 900, infiniteSsthresh))
		ae.Bytes(attrDCTCP, append([]byte{1, 0, 1, 0}, u32(512, 10, 20)...))
		ae.Uint8(attrShutdown, 2)
		ae.Uint8(attrTOS, 0x10)
		ae.Uint32(attrMark, 5)
	})
	b[2], b[3] = 1, 3 // the retransmission timer, at the third attempt
	binary.NativeEndian.PutUint32(b[52:], 204)
	s, err := decodeInet(TCP, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Timer{"on", 204, 3}, s.Timer); diff != "" {
		t.Error(diff)
	}
	if m := s.Memory; m.RmemAlloc != Known(1) || m.Rcvbuf != Known(131072) || m.Sndbuf != Known(87040) || m.WmemQueued != Known(4) || m.Drops != Known(7) {
		t.Errorf("memory: %+v", m)
	}
	if diff := cmp.Diff(&BBRInfo{Known(1<<32 | 1000), Known(20500), 1.25, 2}, s.BBR); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&VegasInfo{true, Known(7), Known(900), Value{}}, s.Vegas); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&DCTCPInfo{true, Known(1), Known(512), Known(10), Known(20)}, s.DCTCP); diff != "" {
		t.Error(diff)
	}
	if s.Shutdown != "snd" || s.TOS != Known(16) || s.Mark != Known(5) || s.TClass.Known || s.CgroupID.Known {
		t.Errorf("%+v", s)
	}
	if s := decodeMemInfo(u32(1, 2)); s.Rcvbuf != Known(2) || s.WmemAlloc.Known {
		t.Errorf("of an old kernel: %+v", s)
	}
	if decodeBBR(u32(1, 2)) != nil || decodeTimer(0, 0, 9) != nil || decodeTimer(9, 0, 1).Name != "unknown" {
		t.Error("what is not there, or not known")
	}
}

// The bit fields of tcp_info are decoded, and values that mean "none" are absent.
func TestDecodeTCPBits(t *testing.T) {
	b := make([]byte, 248)
	b[1], b[5], b[6], b[7] = 3, byte(OptTimestamps|OptWScale), 0xa7, 1|2<<1
	binary.NativeEndian.PutUint64(b[104:], 1<<64-1) // tcpi_pacing_rate
	binary.NativeEndian.PutUint32(b[80:], 10)       // tcpi_snd_cwnd
	binary.NativeEndian.PutUint32(b[76:], 7)        // tcpi_snd_ssthresh
	i := decodeTCPInfo(b)
	if i.CAStateName() != "recovery" || i.SndWScale != Known(7) || i.RcvWScale != Known(10) || !i.AppLimited || i.TFOFail != "data-not-acked" {
		t.Errorf("%+v", i)
	}
	if i.PacingRate.Known || i.RcvRTT.Known || i.ATO.Known {
		t.Errorf("what stands for none: %+v", i)
	}
	if slow, ok := i.SlowStart(); slow || !ok {
		t.Error("beyond the threshold it is no slow start")
	}
	text, err := json.Marshal(i)
	var back TCPInfo
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if diff := cmp.Diff(*i, back); err != nil || diff != "" {
		t.Errorf("JSON: %v\n%s", err, diff)
	}
	if new(TCPOptions).UnmarshalText([]byte("sack,nonsense")) == nil {
		t.Error("an option that is none")
	}
}

func TestDecodeNetlink(t *testing.T) {
	b := make([]byte, sizeNetlinkMsg)
	b[0], b[1], b[2] = unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC
	binary.NativeEndian.PutUint32(b[4:], 4242)
	binary.NativeEndian.PutUint32(b[16:], 99)
	s, err := decodeNetlink(b)
	if err != nil || s.Name != "genl" || s.Type != "raw" || s.PortID != Known(4242) || s.Inode != 99 || s.Peer.Known {
		t.Errorf("%+v, %v", s, err)
	}
	b[2] = 200
	if s, err := decodeNetlink(b); err != nil || s.Name != "200" {
		t.Errorf("a protocol without a name: %+v, %v", s, err)
	}
}

const pingLine = "    7: 0A01000A:0001 0101000A:0000 01 00000000:00000300 00:00000000 00000000  1000        0 4711 2 0000000000000000 0"

func TestParsePing(t *testing.T) {
	s, err := parsePing(pingLine, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	want := Socket{
		Proto: ICMP, Family: unix.AF_INET, State: Established, Local: netip.MustParseAddrPort("10.0.1.10:1"), Remote: netip.MustParseAddrPort("10.0.1.1:0"),
		SendQ: Known(0), RecvQ: Known(768), UID: Known(1000), Inode: 4711,
	}
	if diff := cmp.Diff(want, s, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{"", "1: 2", "7: xx:1 0:0 01 0:0 0 0 1000 0 1 2 0 0", "7: 00:1 00:0 01 0:0 0 0 1000 0 1 2 0 0"} {
		if _, err := parsePing(line, unix.AF_INET); err == nil {
			t.Errorf("%q is parsed", line)
		}
	}
}
