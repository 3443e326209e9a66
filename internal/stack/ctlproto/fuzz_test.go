// SPDX-License-Identifier: Apache-2.0

package ctlproto

import (
	"bytes"
	"testing"
)

// FuzzFrame reads a stream of frames and decodes each body as every message.
// Nothing may panic, and a decoded message must encode to the same bytes.
func FuzzFrame(f *testing.F) {
	for _, raw := range readGolden(f) {
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
		if s.name == "frame" || s.empty == nil {
			continue
		}
		m := s.empty()
		if m.Unmarshal(b) != nil || s.name == "hello_rep" { // whose third string may be missing
			continue
		}
		if a, ok := m.(interface{ Append([]byte) []byte }); ok && !bytes.Equal(a.Append(nil), b) {
			t.Fatalf("%s: %x became %x", s.name, b, a.Append(nil))
		}
	}
}
