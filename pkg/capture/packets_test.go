// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// output runs a program that reads captures, and returns its output. If the
// program is missing, the test is skipped, or fails with CI set.
func output(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "TZ=UTC")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// serialize encodes the layers of a packet.
func serialize(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// frame encodes layers below an Ethernet header.
func frame(t testing.TB, typ layers.EthernetType, above ...gopacket.SerializableLayer) []byte {
	t.Helper()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	return serialize(t, append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: typ}}, above...)...)
}

func ipv4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{198, 51, 100, 2}}
}

func ipv6(proto layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2")}
}

// segment encodes a TCP segment from a port of 192.0.2.1.
func segment(t testing.TB, port, payload int) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: layers.TCPPort(port), DstPort: 80, ACK: true}
	return frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolTCP), tcp, gopacket.Payload(make([]byte, payload)))
}

// datagram encodes a UDP datagram from a port of 192.0.2.1.
func datagram(t testing.TB, port int) []byte {
	t.Helper()
	udp := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 6000}
	return frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolUDP), udp)
}
