// SPDX-License-Identifier: Apache-2.0

package ctlproto

import (
	"bytes"
	"testing"
)

// FuzzFrame reads a stream of frames and decodes each body as every message.
// Nothing may panic, and a decoded message must encode to the same bytes.
func FuzzFrame(f *testing.F) {
	for _, s := range samples() {
		raw, err := s.bytes()
		if err != nil {
			f.Fatal(err)
		}
		framed, err := Frame{Type: CTL_SYSCALL, ID: 1, Body: raw}.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(framed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for {
			at := len(stream) - r.Len()
			fr, err := ReadFrame(r)
			if err != nil {
				return
			}
			again, err := fr.Append(nil)
			if err != nil {
				t.Fatalf("a frame that was read cannot be sent: %v", err)
			}
			was := bytes.Clone(stream[at : at+len(again)])
			was[6], was[7] = 0, 0 // the flags are not decoded
			if !bytes.Equal(was, again) {
				t.Fatalf("frame %x became %x", was, again)
			}
			bodies(t, fr.Body)
		}
	})
}

func bodies(t *testing.T, b []byte) {
	for _, s := range samples() {
		if s.name == "frame" {
			continue
		}
		m := s.empty()
		if m.Unmarshal(b) != nil {
			continue
		}
		var again []byte
		switch m := m.(type) {
		case *Syscall:
			out, err := m.Append(nil)
			if err != nil {
				t.Fatalf("%s %x: decoded but does not encode: %v", s.name, b, err)
			}
			again = out
		case *ownerList:
			again = AppendOwners(nil, *m)
			// Bytes after the end of the name are not decoded.
			var third ownerList
			if err := third.Unmarshal(again); err != nil || len(third) != len(*m) {
				t.Fatalf("%s %x: encodes to %x: %v", s.name, b, again, err)
			}
			continue
		case *Boot:
			again = m.Append(nil)
			copy(again[12:16], b[12:16]) // reserved
		case *Go:
			again = m.Append(nil)
			copy(again[12:16], b[12:16]) // reserved
		case *ExecReply:
			again = m.Append(nil)
			copy(again[12:16], b[12:16]) // reserved
		case *ExecSignal:
			again = m.Append(nil)
			copy(again[12:16], b[12:16]) // reserved
		case *Exec:
			out, err := m.Append(nil)
			if err != nil {
				t.Fatalf("%s %x: decoded but does not encode: %v", s.name, b, err)
			}
			again = out
		case interface{ Append([]byte) []byte }:
			again = m.Append(nil)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%s: %x became %x", s.name, b, again)
		}
	}
}
