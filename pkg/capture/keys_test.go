// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzKeys writes any bytes in two parts to a file of TLS secrets. Only whole lines of the
// format reach the capture, each once, and readers find the end of their block.
func FuzzKeys(f *testing.F) {
	line := "CLIENT_TRAFFIC_SECRET_0 " + strings.Repeat("0a", 32) + " " + strings.Repeat("Bc", 48)
	for _, text := range []string{"", "\n", line, line + "\n", line + "\r\n" + line + "x\n" + line + " 00\n", "# comment\n" + line + "\n", strings.Repeat("x", 5000) + "\n" + line + "\n"} {
		f.Add([]byte(text), len(text)/2)
	}
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "keys"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		k := NewKeys(file)
		var got []byte
		for _, part := range [][]byte{text[:min(max(at, 0), len(text))], text[min(max(at, 0), len(text)):], []byte("\n" + line + "\n")} {
			if _, err := file.Write(part); err != nil {
				t.Fatal(err)
			}
			got = append(got, k.more()...)
		}
		if !bytes.HasSuffix(got, []byte(line+"\n")) {
			t.Errorf("%q lacks the last line", got)
		}
		for one := range bytes.Lines(got) {
			if !keyLine().Match(bytes.TrimRight(one, "\r\n")) || !bytes.Contains(append(text, '\n'), one) && string(one) != line+"\n" {
				t.Errorf("%q is no line with a secret", one)
			}
		}
		var b bytes.Buffer
		p, err := NewPcapng(&b, "")
		if err == nil {
			err = p.Flush()
		}
		start := b.Len()
		if err == nil {
			err = p.WriteKeys(got)
		}
		if err == nil {
			err = p.Flush()
		}
		block := b.Bytes()[start:]
		size := binary.NativeEndian.Uint32(block[4:])
		if err != nil || int(size) != len(block) || binary.NativeEndian.Uint32(block[size-4:]) != size || size%4 != 0 || !bytes.Equal(block[16:16+len(got)], got) {
			t.Errorf("a block of %d bytes, with length %d: %v", len(block), size, err)
		}
	})
}

// Keys reads a limited number of bytes.
func TestKeysLimit(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	line := "CLIENT_RANDOM " + strings.Repeat("0a", 32) + " " + strings.Repeat("bc", 48) + "\n"
	if _, err := file.WriteString(strings.Repeat(line, 2*maxKeys/len(line))); err != nil {
		t.Fatal(err)
	}
	k := NewKeys(file)
	if n := len(k.more()) + len(k.more()); n < maxKeys-len(line) || n > maxKeys+64<<10 {
		t.Errorf("%d bytes were read", n)
	}
}
