// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// need skips a test if a required program is missing on this machine. With CI
// set, the test fails.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// output runs a program that reads captures, and returns its output.
func output(t *testing.T, args ...string) string {
	t.Helper()
	need(t, args[0])
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

// TestOthersReadMPTCP: tcpdump and tshark read the same options from the same
// bytes.
func TestOthersReadMPTCP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mptcp.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, o := range mptcpOptions {
		data := segment(t, o.option, o.payload, o.set)
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(data), Length: len(data)}, data); err != nil {
			t.Fatal(err)
		}
	}
	dumped := strings.Split(strings.TrimSpace(output(t, "tcpdump", "-Z", "root", "-nn", "-t", "-S", "-r", path)), "\n")
	shown := regexp.MustCompile(`(?m)^Frame \d+:`).Split(output(t, "tshark", "-n", "-V", "-r", path), -1)[1:]
	if len(dumped) != len(mptcpOptions) || len(shown) != len(mptcpOptions) {
		t.Fatalf("%d packets: tcpdump shows %d, tshark %d", len(mptcpOptions), len(dumped), len(shown))
	}
	for i, o := range mptcpOptions {
		if !strings.Contains(dumped[i], o.tcpdump) {
			t.Errorf("%s: tcpdump says\n%s\nwithout %q", o.name, dumped[i], o.tcpdump)
		}
		if !strings.Contains(shown[i], o.tshark) {
			t.Errorf("%s: tshark says\n%s\nwithout %q", o.name, shown[i], o.tshark)
		}
	}
}

// TestAsTcpdump: the descriptions of TCP without MPTCP, of truncated packets,
// and of ICMP equal those of tcpdump.
func TestAsTcpdump(t *testing.T) {
	names, packets, links := samples(t)
	same := regexp.MustCompile(`^(tcp syn|tcp data|tcp from|tcp payload|ping$)`)
	path := filepath.Join(t.TempDir(), "samples.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, p := range packets {
		if !same.MatchString(names[i]) {
			continue
		}
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(p.Data), Length: p.Length}, p.Data); err != nil {
			t.Fatal(err)
		}
		want = append(want, Describe(p, links[i]))
	}
	got := strings.Split(strings.TrimSpace(output(t, "tcpdump", "-Z", "root", "-nn", "-t", "-S", "-r", path)), "\n")
	if len(got) != len(want) {
		t.Fatalf("tcpdump shows %d packets of %d", len(got), len(want))
	}
	for i := range want {
		// tcpdump's line continues with the content, such as "HTTP".
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("tcpdump: %s\nhere:    %s", got[i], want[i])
		}
	}
}
