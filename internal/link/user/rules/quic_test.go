// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestQUICKeys compares keys with those in RFC 9001, A.1, and RFC 9369, A.1.
func TestQUICKeys(t *testing.T) {
	const id = "\x83\x94\xc8\xf0\x3e\x51\x57\x08"
	for n, want := range []struct{ key, iv, hp string }{
		{"1f369613dd76d5467730efcbe3b1a22d", "fa044b2f42a3fd3b46fb255c", "9f50449e04a0e810283a1e9933adedd2"},
		{"8b1a0bc121284290a29e0971b5cd045d", "91f73e2351d8fa91660e909f", "45b95e15235d6f45a6b19cbcb0294ba9"},
	} {
		k := quicVersions[n].keys(id)
		key, err := hex.DecodeString(want.hp)
		if err != nil {
			t.Fatal(err)
		}
		hp, err := aes.NewCipher(key)
		if err != nil {
			t.Fatal(err)
		}
		var got, wanted [16]byte
		k.header.Encrypt(got[:], got[:])
		hp.Encrypt(wanted[:], wanted[:])
		if hex.EncodeToString(k.iv) != want.iv || got != wanted {
			t.Errorf("version %d: iv %x", n, k.iv)
		}
	}
}

// initialPacket returns an Initial packet. id is the connection ID in the packet, and first the
// one from which its keys follow.
func initialPacket(version int, first, id string, number uint32, frames []byte) []byte {
	v := &quicVersions[version]
	k := v.keys(first)
	b := append(binary.BigEndian.AppendUint32([]byte{0xc3 | v.initial<<4}, v.number), byte(len(id)))
	b = append(append(b, id...), 0, 0) // no source connection ID, no token
	frames = append(bytes.Clone(frames), make([]byte, max(0, 4-len(frames)))...)
	b = binary.BigEndian.AppendUint16(b, uint16(0x4000|(4+len(frames)+k.packet.Overhead())))
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, number)
	nonce := bytes.Clone(k.iv)
	for i := range 4 {
		nonce[len(nonce)-4+i] ^= b[at+i]
	}
	b = append(b, k.packet.Seal(nil, nonce, frames, b)...)
	var mask [16]byte
	k.header.Encrypt(mask[:], b[at+4:at+20])
	b[0] ^= mask[0] & 0x0f
	for i := range 4 {
		b[at+i] ^= mask[1+i]
	}
	return b
}

// crypto returns a CRYPTO frame.
func crypto(at int, b []byte) []byte {
	f := binary.BigEndian.AppendUint32([]byte{6}, 0x80000000|uint32(at))
	return append(binary.BigEndian.AppendUint16(f, uint16(0x4000|len(b))), b...)
}

// watched returns a UDP flow that a rule for good.test permits.
func (f *fixture) watched(t *testing.T) *Flow {
	t.Helper()
	f.grant(netip.MustParseAddr("10.0.0.1"), "good.test", time.Hour)
	flow, err := f.Open(Socket{Protocol: "udp", To: netip.MustParseAddrPort("10.0.0.1:443")})
	if err != nil || !flow.Watched() {
		t.Fatal(err)
	}
	return flow
}

// TestQUICHello checks which datagrams pass on, and which line a refusal prints.
func TestQUICHello(t *testing.T) {
	const first, server = "01234567", "server's"
	good, evil := hello(t, "Good.test")[5:], hello(t, "evil.test")[5:]
	if len(good) != len(evil) {
		t.Fatal("the test needs hellos of the same length")
	}
	one := func(b []byte) []byte { return initialPacket(0, first, first, 0, crypto(0, b)) }
	junk := append([]byte{0xc0, 0xff, 0, 0, 0x1d, 8}, make([]byte, 1300)...)
	zeroRTT := append([]byte("\xd0\x00\x00\x00\x01\x08"+first+"\x00\x40\x20"), make([]byte, 32)...)
	retry := append([]byte("\xf0\x00\x00\x00\x01\x08"+first+"\x00"), make([]byte, 32)...)
	for _, tc := range []struct {
		what   string
		sent   [][]byte
		passed string // the indices in sent
		line   string
	}{
		{"a hello", [][]byte{one(good)}, "[0]", ""},
		{"another name", [][]byte{one(evil), one(evil)}, "[]", `asks QUIC for "evil.test"`},
		{"no name", [][]byte{one(hello(t, "")[5:])}, "[]", "asks QUIC for no name"},
		{"version 2", [][]byte{initialPacket(1, first, first, 0, crypto(0, good))}, "[0]", ""},
		{"version 2, another name", [][]byte{initialPacket(1, first, first, 0, crypto(0, evil))}, "[]", "evil.test"},
		{"two datagrams", [][]byte{initialPacket(0, first, first, 0, crypto(0, good[:50])), initialPacket(0, first, first, 1, crypto(50, good[50:]))}, "[0 1]", ""},
		{"in another order", [][]byte{initialPacket(0, first, first, 1, crypto(50, good[50:])), initialPacket(0, first, first, 0, crypto(0, good[:50]))}, "[0 1]", ""},
		{"an incomplete hello", [][]byte{initialPacket(0, first, first, 0, crypto(0, good[:50]))}, "[]", ""},
		{"no hello", [][]byte{initialPacket(0, first, first, 0, []byte{1})}, "[]", ""},
		{"many frames", [][]byte{initialPacket(0, first, first, 0, slices.Concat(crypto(50, good[50:]), []byte{1, 0, 0, 2, 0, 0, 0, 0, 3, 9, 1, 1, 0, 0, 0, 1, 2, 3}, crypto(20, good[20:60]), crypto(0, good[:20])))}, "[0]", ""},
		{"early data before the rest", [][]byte{initialPacket(0, first, first, 0, crypto(0, good[:50])), zeroRTT, initialPacket(0, first, first, 1, crypto(50, good[50:]))}, "[0 1 2]", ""},
		{"early data of a refused hello", [][]byte{one(evil), zeroRTT}, "[]", "evil.test"},
		{"coalesced packets", [][]byte{slices.Concat(initialPacket(0, first, first, 0, crypto(0, good[:50])), initialPacket(0, first, first, 1, crypto(50, good[50:])), zeroRTT, []byte{0, 0})}, "[0]", ""},
		{"coalesced hellos", [][]byte{slices.Concat(one(good), initialPacket(0, "76543210", "76543210", 0, crypto(0, evil)))}, "[]", "a QUIC packet is malformed"},
		{"two connections", [][]byte{one(good), initialPacket(0, "76543210", "76543210", 0, crypto(0, evil)), one(good)}, "[0 2]", "evil.test"},
		{"a changed hello", [][]byte{one(good), initialPacket(0, first, first, 1, crypto(0, evil))}, "[0]", "changes its QUIC hello"},
		{"a changed part", [][]byte{initialPacket(0, first, first, 0, crypto(0, evil[:len(evil)-9])), initialPacket(0, first, first, 1, crypto(0, good))}, "[]", "changes its QUIC hello"},
		{"a later acknowledgement", [][]byte{one(good), initialPacket(0, first, server, 1, []byte{2, 0, 0, 0, 0})}, "[0 1]", ""},
		{"a second hello", [][]byte{one(good), initialPacket(0, first, server, 1, crypto(len(good), good))}, "[0 1]", ""},
		{"another second hello", [][]byte{one(good), initialPacket(0, first, server, 1, crypto(len(good), evil))}, "[0]", "evil.test"},
		{"half of a second hello", [][]byte{one(good), initialPacket(0, first, server, 1, crypto(len(good), evil[:99]))}, "[0]", ""},
		{"after Retry", [][]byte{one(good), initialPacket(0, server, server, 1, crypto(0, good))}, "[0 1]", ""},
		{"another name after Retry", [][]byte{one(good), initialPacket(0, server, server, 1, crypto(0, evil))}, "[0]", "evil.test"},
		{"version 2 after version 1", [][]byte{one(good), initialPacket(1, first, server, 1, []byte{2, 0, 0, 0, 0})}, "[0 1]", ""},
		{"other keys", [][]byte{initialPacket(0, server, first, 0, crypto(0, good))}, "[]", "cannot be read"},
		{"an unknown version", [][]byte{junk}, "[]", "unknown version of QUIC"},
		{"a version that no server supports", [][]byte{append([]byte{0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8}, junk[6:]...)}, "[0]", ""},
		{"a Retry packet", [][]byte{retry}, "[]", "malformed"},
		{"a cut packet", [][]byte{one(good)[:100]}, "[]", "malformed"},
		{"an unknown frame", [][]byte{initialPacket(0, first, first, 0, []byte{8, 0, 0, 0})}, "[]", "malformed"},
		{"another message", [][]byte{one(append([]byte{2}, good[1:]...))}, "[]", "malformed"},
		{"a long hello", [][]byte{one([]byte{1, 1, 0, 0})}, "[]", "too long"},
		{"a hello far away", [][]byte{initialPacket(0, first, first, 0, crypto(maxQUICHello, good))}, "[]", "too long"},
		{"other protocols", [][]byte{{}, {0x40, 1}, {0x80}, {0xff, 0xff, 0xff}, append([]byte{0x80, 0x60}, make([]byte, 1400)...), query("good.test.", 1)}, "[0 1 2 3 4 5]", ""},
	} {
		f := fixed(t, "good.test")
		flow := f.watched(t)
		var passed []int
		denied := 0
		for _, d := range tc.sent {
			err := flow.Datagram(d, func(b []byte) error {
				for n := len(passed); ; n++ { // in order, possibly with gaps
					if n == len(tc.sent) {
						t.Fatalf("%s: a changed datagram", tc.what)
					}
					if i := slices.IndexFunc(tc.sent[n:], func(d []byte) bool { return bytes.Equal(d, b) }); i >= 0 {
						passed = append(passed, n+i)
						return nil
					}
				}
			})
			if errors.As(err, new(*DeniedError)) {
				denied++
			} else if err != nil {
				t.Errorf("%s: %v", tc.what, err)
			}
		}
		f.Close()
		refusals := slices.DeleteFunc(f.lines, func(l string) bool { return !strings.HasPrefix(l, "refused udp 10.0.0.1:443: ") })
		if got := fmt.Sprint(passed); got != tc.passed && (tc.passed != "[]" || len(passed) > 0) || (denied > 0) != (tc.line != "") ||
			tc.line != "" && (len(refusals) != 1 || !strings.Contains(refusals[0], tc.line)) || tc.line == "" && len(refusals) > 0 {
			t.Errorf("%s: passed %v, want %s; %d refused; %q, want %q", tc.what, passed, tc.passed, denied, refusals, tc.line)
		}
	}
}

// TestQUICFlows checks that two flows cannot share a connection, whose hello the server could
// put together from both.
func TestQUICFlows(t *testing.T) {
	f := fixed(t, "good.test")
	good := hello(t, "good.test")[5:]
	a, b := f.watched(t), f.watched(t)
	pass := func([]byte) error { return nil }
	if err := a.Datagram(initialPacket(0, "01234567", "01234567", 0, crypto(0, good)), pass); err != nil {
		t.Error(err)
	}
	if err := b.Datagram(initialPacket(0, "01234567", "01234567", 1, crypto(0, good)), pass); err == nil || !strings.Contains(err.Error(), errQUICFlow.Error()) {
		t.Error(err)
	}
	for n := range maxQUIC {
		id := fmt.Sprintf("%08d", n)
		err := b.Datagram(initialPacket(0, id, id, 0, crypto(0, good)), pass)
		if full := n == maxQUIC-1; (err != nil) != full || full && !strings.Contains(err.Error(), errQUICMany.Error()) {
			t.Fatalf("connection %d: %v", n, err)
		}
	}
	f.now = f.now.Add(quicLife + time.Second)
	if err := a.Datagram(initialPacket(0, "new  new", "new  new", 0, crypto(0, good)), pass); err != nil || len(f.quic) != 1 {
		t.Errorf("%v; %d connections", err, len(f.quic))
	}
}

// TestPacketNumber checks packet numbers in fewer bytes, with the example of RFC 9000, A.3.
func TestPacketNumber(t *testing.T) {
	for _, tc := range []struct {
		largest, low int64
		size         int
		want         int64
	}{{0xa82f30ea, 0x9b32, 2, 0xa82f9b32}, {-1, 0, 1, 0}, {-1, 250, 1, 250}, {70000, 70001 & 0xff, 1, 70001}, {255, 0, 1, 256}, {256, 255, 1, 255}} {
		if got := packetNumber(tc.largest, tc.low, tc.size); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// FuzzQUIC checks that no datagrams and no frames make the parser panic, and that no bytes
// pass that the program has not sent.
func FuzzQUIC(f *testing.F) {
	f.Add([]byte("\xc0\x00\x00\x00\x01\x08012345678"), true)
	f.Add(crypto(0, []byte{1, 0, 0, 1, 0}), false)
	f.Fuzz(func(t *testing.T, b []byte, plain bool) {
		r := fixed(t, "good.test")
		flow := r.watched(t)
		if !plain {
			b = initialPacket(0, "01234567", "01234567", 0, b[:min(len(b), 9000)])
		}
		_ = flow.Datagram(b, func(got []byte) error {
			if !bytes.Equal(got, b) {
				t.Errorf("%q passes", got)
			}
			return nil
		})
	})
}
