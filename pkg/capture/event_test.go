// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// TestWriteEvent checks the block of an event, also if its text contains lines.
func TestWriteEvent(t *testing.T) {
	var b bytes.Buffer
	p, err := NewPcapng(&b, "test")
	if err != nil {
		t.Fatal(err)
	}
	e := Event{Time: time.Unix(7, 8000), Message: "drop\nMESSAGE=forged", Fields: []Field{{"A", "x\ny"}, {"B", ""}}}
	if err := p.WriteEvent(&e); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	block := b.Bytes()[binary.NativeEndian.Uint32(b.Bytes()[4:]):]
	if typ, size := binary.NativeEndian.Uint32(block), binary.NativeEndian.Uint32(block[4:]); typ != 9 || int(size) != len(block) || size%4 != 0 {
		t.Fatalf("type %d, length %d of %d", typ, size, len(block))
	}
	want := "__REALTIME_TIMESTAMP=7000008\nMESSAGE=drop?MESSAGE=forged\nSYSLOG_IDENTIFIER=lklrun\nPRIORITY=6\nA=x?y\n"
	if got := strings.TrimRight(string(block[8:len(block)-4]), "\x00"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
