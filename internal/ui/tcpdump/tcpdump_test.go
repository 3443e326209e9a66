// SPDX-License-Identifier: Apache-2.0

package tcpdump

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/pkg/capture"
)

// syn is an IPv4 packet with a SYN and MPTCP's MP_CAPABLE.
const syn = "\x45\x00\x00\x30\x00\x00\x40\x00\x40\x06\x00\x00\xc0\x00\x02\x01\xc6\x33\x64\x02" +
	"\x9c\x40\x00\x50\x00\x00\x00\x01\x00\x00\x00\x00\x70\x02\x02\x00\x00\x00\x00\x00\x1e\x04\x01\x01\x02\x04\x05\xb4"

// start starts tcpdump. Without tcpdump, the test is skipped, but not in CI.
func start(t *testing.T, flags ...string) *Printer {
	t.Helper()
	p, err := Start(t.Context(), flags...)
	if errors.Is(err, ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// links returns the link types of two interfaces: one with Ethernet, and one
// without a link layer.
func links(number int) capture.LinkType {
	return []capture.LinkType{capture.LinkTypeEthernet, capture.LinkTypeRaw}[number]
}

// Next returns each packet with its first line. It does not mistake a payload that looks
// like a first line for one.
func TestPrinter(t *testing.T) {
	p := start(t, "-A")
	frame := "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00" + syn
	faked := syn + "\n3.000000000 IP 192.0.2.9.1 > 192.0.2.8.2\n"
	packets := []capture.Packet{
		{Length: len(frame), Data: []byte(frame)},
		{Length: len(faked), Data: []byte(faked), Interface: 1},
		{Length: 1000, Data: []byte(frame[:40])},
		{},
		{Length: 1 << 20, Data: []byte(frame)},
	}
	packets[1].Data[3] = byte(len(faked))
	if err := errors.Join(p.Write(packets, links), p.End()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		line, of, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if of == nil {
			continue
		}
		if of != &packets[len(got)] {
			t.Errorf("%q comes with another packet", line)
		}
		got = append(got, line)
	}
	want := []string{
		"IP 192.0.2.1.40000 > 198.51.100.2.80: Flags [S], seq 1, win 512, options [mptcp",
		"IP 192.0.2.1.40000 > 198.51.100.2.80: Flags [S], seq 1:",
		"IP 192.0.2.1.40000 > 198.51.100.2.80:  [|tcp]", " [|llc]", "IP 192.0.2.1.40000 > ",
	}
	if len(got) != len(want) {
		t.Fatalf("%d first lines, expected %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, expected %q", got[i], want[i])
		}
	}
}

// An input without packets is no error.
func TestNoPacket(t *testing.T) {
	p := start(t)
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	if line, _, err := p.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", line, err)
	}
}

// Next returns the error of tcpdump.
func TestError(t *testing.T) {
	p := start(t, "--no-such-flag")
	_, _, err := p.Next()
	if err == nil || errors.Is(err, io.EOF) || !strings.HasPrefix(err.Error(), "tcpdump: exit status 1: ") {
		t.Error(err)
	}
}
