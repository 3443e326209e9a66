// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/lklrun/lklrun/internal/run/virtual"
	"github.com/lklrun/lklrun/pkg/capture"
)

// written returns a capture as a lab writes it.
func written(t *testing.T) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := capture.NewPcapng(&file, "lklrun")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"client:eth0", "server:eth0"} {
		if _, err := w.AddInterface(capture.Interface{Name: name, LinkType: capture.LinkTypeEthernet, Description: "a wire"}); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 9 {
		data := bytes.Repeat([]byte{byte(k)}, 60+k)
		p := capture.Packet{Time: virtual.Epoch.Add(time.Duration(k) * 1000000007), Interface: k % 2, Length: len(data), Data: data, Comment: "one"[:k%3]}
		if err := w.WritePacket(&p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// readAll returns the frames of a capture.
func readAll(t *testing.T, file []byte) (all []*frame, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, captureFile), file, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := openFrames(root)
	if err != nil {
		return nil, err
	}
	defer f.file.Close()
	for {
		x, err := f.next()
		if x == nil || err != nil {
			return all, err
		}
		all = append(all, x)
	}
}

// TestFrames compares the frames of a capture with those that gopacket reads, and checks that
// a damaged one is an error or has fewer frames.
func TestFrames(t *testing.T) {
	file := written(t)
	all, err := readAll(t, file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		data, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			if n != len(all) || n != 9 {
				t.Errorf("%d frames, gopacket reads %d", len(all), n)
			}
			break
		}
		if err != nil || n >= len(all) {
			t.Fatalf("frame %d of %d: %v", n, len(all), err)
		}
		i, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if x := all[n]; x.at != ci.Timestamp.Sub(virtual.Epoch) || x.end != i.Name || !bytes.Equal(x.data, data) {
			t.Errorf("frame %d: %v %s %x", n, x.at, x.end, x.data)
		}
	}
	for n := range file {
		if some, err := readAll(t, file[:n]); err == nil && len(some) >= len(all) {
			t.Fatalf("%d of %d bytes have %d frames", n, len(file), len(some))
		}
	}
	for n := range file {
		damaged := bytes.Clone(file)
		damaged[n] ^= 0xff
		if some, _ := readAll(t, damaged); len(some) > len(all) {
			t.Fatalf("byte %d changed: %d frames", n, len(some))
		}
	}
}
