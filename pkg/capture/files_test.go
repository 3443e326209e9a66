// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// ping is an ICMP echo request in an Ethernet frame.
var ping = []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00" +
	"\x45\x00\x00\x1c\x00\x01\x00\x00\x40\x01\x66\xde\x0a\x00\x00\x01\x0a\x00\x00\x02" +
	"\x08\x00\xf7\xfd\x00\x01\x00\x01")

var (
	wired = Interface{
		Index: 2, Name: "eth0", Description: "instance web", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00::1/64")},
		Speed: 1e9, LinkType: LinkTypeEthernet, Snaplen: 128, Filter: "icmp", OS: "Linux 6.12",
	}
	bare = Interface{Index: 3, Name: "eth1", LinkType: LinkTypeRaw, Snaplen: 128}
	when = time.Unix(1700000000, 123456789)
)

// some contains packets of the interfaces wired and bare.
var some = []Packet{
	{Time: when, Length: len(ping), Data: ping, Dir: Out, Offload: CsumNotReady, Owner: &Owner{PID: 42, Comm: "ping"}, Comment: "mptcp token 023ebfb7"},
	{Time: when.Add(time.Millisecond), Interface: 1, Length: 1000, Data: ping[14:], Dir: In, Cast: Unicast},
}

func write(t *testing.T, w Writer, err error) {
	t.Helper()
	for _, i := range []Interface{wired, bare} {
		if err == nil {
			_, err = w.AddInterface(i)
		}
	}
	for i := range some {
		if err == nil {
			err = w.WritePacket(&some[i])
		}
	}
	if err == nil {
		err = w.WriteStats(0, when, when.Add(time.Second), Stats{Received: 5, Dropped: 4})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPcapng(t *testing.T) {
	var b bytes.Buffer
	w, err := NewPcapng(&b, "test")
	write(t, w, err)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		t.Log(output(t, "capinfos", file))
	}
	want := "eth0\tinstance web\t0x00000202\t1700000000.123456789\t42\tmptcp token 023ebfb7\n" +
		"eth1\t\t0x00000005\t1700000000.124456789\t1000\t\n"
	got := output(t, "tshark", "-n", "-r", file, "-T", "fields", "-e", "frame.interface_name", "-e", "frame.interface_description",
		"-e", "frame.packet_flags", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.comment")
	if got != want {
		t.Errorf("tshark:\n%s\nwant:\n%s", got, want)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(b.Bytes()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := r.ReadPacketData(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
	}
	i, err := r.Interface(0)
	if err != nil || i.Filter != "icmp" || i.Statistics.PacketsReceived != 5 || i.Statistics.PacketsDropped != 4 {
		t.Errorf("read back: %+v, %v", i, err)
	}
	// gopacket does not parse these options: addresses, speed, process.
	for what, bytes := range map[string]string{
		"IPv4 address": "\x04\x00\x08\x00\x0a\x00\x00\x01\xff\xff\xff\x00",
		"IPv6 address": "\x05\x00\x11\x00\xfd\x00" + strings.Repeat("\x00", 13) + "\x01\x40",
		"MAC":          "\x06\x00\x06\x00\x02\x00\x00\x00\x00\x01",
		"speed":        "\x08\x00\x08\x00" + string(binary.LittleEndian.AppendUint64(nil, 1e9)),
		"process":      "\x08\x00\x08\x00\x2a\x00\x00\x00\x00\x00\x00\x00",
	} {
		if !strings.Contains(b.String(), bytes) {
			t.Errorf("the file has no %s", what)
		}
	}
}

func TestPcapSeveral(t *testing.T) {
	var b bytes.Buffer
	write(t, NewPcap(&b, true), nil)
	file := filepath.Join(t.TempDir(), "file.pcap")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "2\t4\t0x0800\t1700000000.123456789\t10.0.0.2\n3\t0\t0x0800\t1700000000.124456789\t10.0.0.2\n"
	got := output(t, "tshark", "-n", "-r", file, "-T", "fields", "-e", "sll.ifindex", "-e", "sll.pkttype", "-e", "sll.etype", "-e", "frame.time_epoch", "-e", "ip.dst")
	if got != want {
		t.Errorf("tshark:\n%s\nwant:\n%s", got, want)
	}
	p := NewPcap(&b, false)
	if _, err := p.AddInterface(wired); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AddInterface(bare); err == nil {
		t.Error("a second interface in a file of one link type")
	}
}

func TestCompile(t *testing.T) {
	for lt, name := range map[LinkType]string{LinkTypeEthernet: "EN10MB", LinkTypeRaw: "RAW"} {
		got, err := Compile("tcp port 80 or icmp6", lt, 128)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, i := range got {
			fmt.Fprintf(&b, "%d %d %d %d\n", i.Op, i.Jt, i.Jf, i.K)
		}
		_, want, _ := strings.Cut(output(t, "tcpdump", "-ddd", "-y", name, "-s", "128", "tcp port 80 or icmp6"), "\n")
		if b.String() != want {
			t.Errorf("%s:\n%s\ntcpdump:\n%s", name, &b, want)
		}
	}
	var refused *FilterError
	for _, expr := range []string{"tcp prt 80", "(", "a\x00b"} {
		if _, err := Compile(expr, LinkTypeEthernet, 128); !errors.As(err, &refused) {
			t.Errorf("%q: %v", expr, err)
		}
	}
}

// The package splits and names files in the same way as tcpdump.
func TestFiles(t *testing.T) {
	packets := make([]Packet, 100)
	for i := range packets {
		packets[i] = Packet{Time: when, Length: 50000, Data: make([]byte, 50000)}
	}
	m := &Member{Interface: wired, closed: true, last: Stats{Received: 100}}
	for name, c := range map[string]struct {
		o    FileOptions
		want []string
	}{
		"one":      {FileOptions{}, []string{"f"}},
		"size":     {FileOptions{Size: 2e6}, []string{"f", "f1", "f2"}},
		"ring":     {FileOptions{Size: 1e6, Count: 2}, []string{"f0", "f1"}},
		"ring ten": {FileOptions{Size: 4e6, Count: 11}, []string{"f00", "f01"}},
		"classic":  {FileOptions{Size: 4e6, Format: FormatPcap}, []string{"f", "f1"}},
	} {
		dir := t.TempDir()
		c.o.Path = filepath.Join(dir, "f")
		f, err := NewFiles(c.o)
		if err == nil {
			err = f.Interface(m)
		}
		if err == nil {
			err = f.Packets(packets)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, _ := filepath.Glob(dir + "/*")
		for i := range got {
			if out := output(t, "capinfos", "-c", got[i]); !strings.Contains(out, "Number of packets") {
				t.Errorf("%s, %s: %s", name, got[i], out)
			}
			got[i] = filepath.Base(got[i])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	// After Count files, the end of the period ends the capture.
	f, err := NewFiles(FileOptions{Path: filepath.Join(t.TempDir(), "%s"), Every: time.Nanosecond, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Interface(m)); err != nil {
		t.Fatal(err)
	}
	if err := f.Packets(packets[:1]); !errors.Is(err, ErrFiles) || !errors.Is(err, ErrEnough) {
		t.Errorf("after the last file: %v", err)
	}
}

// fullDisk is a file on a disk with a limited number of free bytes.
type fullDisk struct {
	*os.File
	room int
}

func (f *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	n, err := f.File.Write(b[:n])
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// A file on a full disk can be read up to its end.
func TestFullDisk(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := NewPcapng(&fullDisk{file, 10000}, "test")
	if err == nil {
		_, err = w.AddInterface(wired)
	}
	for n := 0; err == nil && n < 10000; n++ {
		err = w.WritePacket(&some[0])
	}
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(w.Close(), syscall.ENOSPC) {
		t.Fatalf("a full disk: %v", err)
	}
	if n := strings.Count(output(t, "tshark", "-n", "-r", file.Name()), "\n"); n < 50 {
		t.Errorf("%d packets can be read", n)
	}
}

// A session passes on the packets of several sockets in the order of their times.
func TestOrder(t *testing.T) {
	var o order
	at := func(ms int) Packet { return Packet{Time: when.Add(time.Duration(ms) * time.Millisecond)} }
	var got []Packet
	o.add([]Packet{at(3), at(5)})
	got = append(got, o.popOrdered()...)
	o.add([]Packet{at(1), at(4), at(7)})
	got = append(got, o.popOrdered()...)
	o.add([]Packet{at(6)})
	got = append(append(got, o.popOrdered()...), o.all()...)
	if len(got) != 6 || !slices.IsSortedFunc(got, func(a, b Packet) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("%v", got)
	}
}
