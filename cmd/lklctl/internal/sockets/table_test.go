// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verbtest"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

func TestNetstatTable(t *testing.T) {
	var sockets []sockdiag.Socket
	for _, c := range verbtest.Sample() {
		sockets = append(sockets, c.Socket)
		sockets = append(sockets, c.Subflows...)
	}
	sockets = append(sockets,
		sockdiag.Socket{
			Proto: sockdiag.TCP, Family: unix.AF_INET, State: sockdiag.Listen, Local: netip.MustParseAddrPort("0.0.0.0:8080"),
			Remote: netip.MustParseAddrPort("0.0.0.0:0"), RecvQ: sockdiag.Known(0), SendQ: sockdiag.Known(128),
			Processes: []sockdiag.Process{{PID: 50, Comm: "nginx", FDs: []int{6}}, {PID: 51, Comm: "nginx", FDs: []int{6, 7}}},
		},
		sockdiag.Socket{
			Proto: sockdiag.UDP, Family: unix.AF_INET6, State: sockdiag.Close, Local: netip.MustParseAddrPort("[::]:53"),
			Remote: netip.MustParseAddrPort("[::]:0"), RecvQ: sockdiag.Known(0), SendQ: sockdiag.Known(0),
			Processes: []sockdiag.Process{{PID: 60, Comm: "dnsmasq"}},
		},
		sockdiag.Socket{
			Proto: sockdiag.TCP, Family: unix.AF_INET6, State: sockdiag.Established, Local: netip.MustParseAddrPort("[2001:db8:7:8::2]:41044"),
			Remote: netip.MustParseAddrPort("[2001:db8:7:9::1]:443"), RecvQ: sockdiag.Known(0), SendQ: sockdiag.Known(289600), Congestion: "bbr", Iface: "eth0",
			UID: sockdiag.Known(1000), Inode: 42, Cookie: 0x2a, Mark: sockdiag.Known(16), TClass: sockdiag.Known(2), Shutdown: "snd",
			Processes: []sockdiag.Process{{PID: 4711, Comm: "rsync", FDs: []int{3}}},
			Timer:     &sockdiag.Timer{Name: "on", Expires: 204, Retransmits: 1},
			Memory:    &sockdiag.MemInfo{RmemAlloc: sockdiag.Known(0), Rcvbuf: sockdiag.Known(131072), Sndbuf: sockdiag.Known(2626560), Drops: sockdiag.Known(0)},
			BBR:       &sockdiag.BBRInfo{BW: sockdiag.Known(2500000), MinRTT: sockdiag.Known(20100), PacingGain: 1.25, CwndGain: 2},
			TCP: &sockdiag.TCPInfo{
				CAState: sockdiag.Known(3), Options: 7, SndWScale: sockdiag.Known(7), RcvWScale: sockdiag.Known(10), RTO: sockdiag.Known(224000),
				RTT: sockdiag.Known(20400), RTTVar: sockdiag.Known(900), MinRTT: sockdiag.Known(20100), RcvRTT: sockdiag.Known(21000),
				SndMSS: sockdiag.Known(1428), RcvMSS: sockdiag.Known(536), AdvMSS: sockdiag.Known(1428), PMTU: sockdiag.Known(1500),
				Cwnd: sockdiag.Known(80), SndWnd: sockdiag.Known(3145728), RcvWnd: sockdiag.Known(64768), RcvSpace: sockdiag.Known(14280), RcvSsthresh: sockdiag.Known(64108),
				Unacked: sockdiag.Known(70), NotSent: sockdiag.Known(189640), Sacked: sockdiag.Known(3), Lost: sockdiag.Known(2), Retrans: sockdiag.Known(1),
				TotalRetrans: sockdiag.Known(12), Reordering: sockdiag.Known(3), DSACKDups: sockdiag.Known(1), PacingRate: sockdiag.Known(3100000),
				DeliveryRate: sockdiag.Known(2440000), AppLimited: true, Busy: sockdiag.Known(8200000), RwndLimited: sockdiag.Known(410000), SndbufLimited: sockdiag.Known(0),
				BytesSent: sockdiag.Known(19900000), BytesAcked: sockdiag.Known(19800000), BytesRecv: sockdiag.Known(1200), BytesRetrans: sockdiag.Known(17136),
				SegsOut: sockdiag.Known(13940), SegsIn: sockdiag.Known(7012), DataSegsOut: sockdiag.Known(13938), DataSegsIn: sockdiag.Known(3),
				Delivered: sockdiag.Known(13871), LastSent: sockdiag.Known(0), LastRecv: sockdiag.Known(7980), LastAck: sockdiag.Known(4),
			},
		},
		sockdiag.Socket{Proto: sockdiag.Netlink, Family: unix.AF_NETLINK, State: sockdiag.Close, Type: "raw", Name: "rtnl", PortID: sockdiag.Known(4711), RecvQ: sockdiag.Known(0), SendQ: sockdiag.Known(0)},
		sockdiag.Socket{Proto: sockdiag.Packet, Family: unix.AF_PACKET, State: sockdiag.Close, Name: "proto 0x0003", Iface: "eth0"},
		sockdiag.Socket{Proto: sockdiag.Unix, Family: unix.AF_UNIX, State: sockdiag.Listen, Name: "@x", RecvQ: sockdiag.Known(0), SendQ: sockdiag.Known(5)},
	)
	sockdiag.Sort(sockets)
	for name, o := range map[string]netstatOptions{
		"netstat.txt":    {},
		"netstat-ip.txt": {info: true, processes: true},
		"netstat-O.txt":  {info: true, memory: true, extended: true, timer: true, oneLine: true, noHeader: true},
	} {
		var b strings.Builder
		if err := writeNetstat(cli.Screen{Writer: &b, Width: 80}, sockets, &o); err != nil {
			t.Fatal(err)
		}
		verbtest.Golden(t, name, b.String())
	}
}

func TestForms(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 999: "999B", 1000: "1.00kB", 9994: "9.99kB", 9996: "10.0kB", 99949: "99.9kB", 99960: "100kB",
		999499: "999kB", 999600: "1.00MB", 73412608: "73.4MB", 1 << 63: "9.22EB",
	} {
		if got := Bytes(sockdiag.Known(n)); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{12: "0.01ms", 250: "0.25ms", 10213: "10.2ms", 250000: "250ms"} {
		if got := Micros(sockdiag.Known(n)); got != want {
			t.Errorf("%d us: %s, want %s", n, got, want)
		}
	}
	absent := sockdiag.Value{}
	if Number(absent)+Bytes(absent)+Micros(absent)+Rate(absent)+Token(absent) != "" {
		t.Error("what is absent is shown")
	}
}
