// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/diag/whynot"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// sample is the output of a stack with two links during a download.
func sample() []sockdiag.Connection {
	ap := netip.MustParseAddrPort
	curl := []sockdiag.Process{{PID: 4242, Comm: "curl", FDs: []int{5}}}
	known := sockdiag.Known
	info := func(rtt, cwnd, sent, recv, retrans uint64) *sockdiag.TCPInfo {
		return &sockdiag.TCPInfo{
			RTT: known(rtt), Cwnd: known(cwnd), SndMSS: known(1448), BytesSent: known(sent), BytesAcked: known(sent + 1),
			BytesRecv: known(recv), Retrans: known(0), TotalRetrans: known(retrans), PacingRate: known(12500000),
		}
	}
	sub := func(local string, iface string, flags sockdiag.SubflowFlags, i *sockdiag.TCPInfo) sockdiag.Socket {
		return sockdiag.Socket{
			Proto: sockdiag.TCP, Family: unix.AF_INET, State: sockdiag.Established, Local: ap(local), Remote: ap("10.71.0.1:80"),
			RecvQ: known(0), SendQ: known(0), Inode: 11, Iface: iface, Congestion: "cubic", TCP: i, Processes: curl,
			Subflow: &sockdiag.Subflow{Token: known(0x5f1ac2b3), Flags: flags},
		}
	}
	return []sockdiag.Connection{
		{
			Socket: sockdiag.Socket{
				Proto: sockdiag.MPTCP, Family: unix.AF_INET, State: sockdiag.Established, Local: ap("10.71.1.2:41022"), Remote: ap("10.71.0.1:80"),
				RecvQ: known(65160), SendQ: known(0), Inode: 11, Iface: "eth0", Processes: curl,
				MPTCP: &sockdiag.MPTCPInfo{
					Token: known(0x5f1ac2b3), Subflows: known(1), Total: known(2), BytesSent: known(83), BytesRecv: known(73412608),
					BytesRetrans: known(1428),
				},
			},
			Subflows: []sockdiag.Socket{
				sub("10.71.1.2:41022", "eth0", sockdiag.FlagCapableLocal|sockdiag.FlagCapableRemote, info(10213, 10, 83, 36706304, 0)),
				sub("10.71.2.2:52801", "eth1", sockdiag.FlagJoinLocal|sockdiag.FlagJoinRemote|sockdiag.FlagBackupLocal, info(250, 10, 0, 36706304, 12)),
			},
		},
		{
			// This socket is from an older kernel: it has no byte
			// counters, no RTT yet, and no process any more.
			Socket: sockdiag.Socket{
				Proto: sockdiag.MPTCP, Family: unix.AF_INET6, State: 4, Local: ap("[fd01::2]:41030"), Remote: ap("[fd01::1]:443"),
				RecvQ: known(0), SendQ: known(1), MPTCP: &sockdiag.MPTCPInfo{Fallback: true},
			},
			Subflows: []sockdiag.Socket{},
		},
	}
}

// sampleMPTCP is sample with reasons for missing subflows.
func sampleMPTCP() []connection {
	var all []connection
	for _, c := range sample() {
		all = append(all, connection{Connection: c})
	}
	all[0].MPTCP.WriteSeq, all[0].MPTCP.SndUna = sockdiag.Known(1<<20+77), sockdiag.Known(77)
	all[0].MPTCP.SubflowsMax, all[0].MPTCP.LastSent = sockdiag.Known(8), sockdiag.Known(1250)
	all[0].why = []whynot.Reason{{Code: whynot.NoRoute, Iface: "eth2", Address: "10.71.3.2", Text: "no route leads from 10.71.3.2 to 10.71.0.1 by eth2, as far as the routing tables go", Remedy: "give it a gateway"}}
	all[1].why = []whynot.Reason{{Code: whynot.NoCapable, Text: "[fd01::1] answered without MP_CAPABLE: it has no MPTCP, or something on the path strips the option"}}
	return all
}

func TestMPTCPTable(t *testing.T) {
	for _, detail := range []bool{false, true} {
		var b strings.Builder
		if err := writeMPTCP(&b, sampleMPTCP(), detail); err != nil {
			t.Fatal(err)
		}
		golden(t, map[bool]string{false: "mptcp.txt", true: "mptcp-v.txt"}[detail], b.String())
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

func TestNetstatTable(t *testing.T) {
	var sockets []sockdiag.Socket
	for _, c := range sample() {
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
		if err := writeNetstat(&b, sockets, &o); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
}

// The table fits a terminal, and no word is lost.
func TestAccountTable(t *testing.T) {
	a := account.Account{
		Processes: []account.Process{
			{PID: 4242, Command: "python3", Stack: 3, Host: 1, MPTCP: 1, FallbackPeer: 1, Received: 1040, Sent: 73412608, Peers: []account.Peer{
				{Proto: "udp", Addr: "10.71.0.1:7", Bytes: 200}, {Proto: "tcp", Addr: "[2001:db8::1:80a0]:443", Bytes: 100},
			}},
			{PID: 4194303, Ended: true, Command: "curl", Stack: 1, MPTCP: 1, Received: 100, Peers: []account.Peer{{Proto: "tcp", Addr: "10.71.0.1:80", Bytes: 100}}},
		},
		Hosted: []account.Place{{Addr: "127.0.0.1:5432", Sockets: 1}},
	}
	var b strings.Builder
	if err := writeAccount(&b, &a); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	golden(t, "account.txt", b.String())
}

func TestGuardTable(t *testing.T) {
	var b strings.Builder
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	ports := guard.Ports{First: 61440, Last: 65535, Listen: []uint16{8080, 80}}
	for _, st := range []guard.Status{
		{
			Mode: "auto", Method: guard.NFTIngress, Ports: ports, Links: []guard.Link{{Device: "eno1", Addrs: addrs}},
			Rules: []string{"table netdev lklrun-web {", "}"}, Kept: guard.Count{Packets: 1234, Bytes: 1800000}, Restored: 2,
		},
		{Mode: "off", Ports: ports, Links: []guard.Link{{Device: "tun0", Addrs: addrs[:1]}}},
	} {
		if err := writeGuard(&b, &st); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "guard.txt", b.String())
}

func TestListRow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	i := instance.Info{State: instance.State{
		Name: "web", TargetPID: 7, Stack: "mptcp", Kernel: "6.12.38", Started: now.Add(-49 * time.Hour),
		Interfaces: []instance.Interface{{Name: "eth0", Type: "user"}, {Name: "eth1", Type: "tap", Host: "t1"}},
		Command:    []string{"curl", "http://x/"},
	}, Running: true}
	if got := strings.Join(listRow(i, now), "|"); got != "web|7|mptcp|6.12.38|2d1h|eth0=user,eth1=tap:t1|curl http://x/" {
		t.Errorf("running: %s", got)
	}
	i.Running = false
	if got := strings.Join(listRow(i, now), "|"); got != "web|leftover|mptcp|6.12.38||eth0=user,eth1=tap:t1|curl http://x/" {
		t.Errorf("left over: %s", got)
	}
}

func TestForms(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0B", 999: "999B", 1000: "1.00kB", 9994: "9.99kB", 9996: "10.0kB", 99949: "99.9kB", 99960: "100kB",
		999499: "999kB", 999600: "1.00MB", 73412608: "73.4MB", 1 << 63: "9.22EB",
	} {
		if got := bytes(sockdiag.Known(n)); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{12: "0.01ms", 250: "0.25ms", 10213: "10.2ms", 250000: "250ms"} {
		if got := micros(sockdiag.Known(n)); got != want {
			t.Errorf("%d us: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 192 * time.Second: "3m12s", 125 * time.Minute: "2h5m", 220 * time.Hour: "9d4h",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	absent := sockdiag.Value{}
	if number(absent)+bytes(absent)+micros(absent)+rate(absent)+token(absent) != "" {
		t.Error("what is absent is shown")
	}
}

// Values that /proc/net/mptcp does not contain are absent, not zero.
func TestProcMPTCP(t *testing.T) {
	conns := []connection{{Connection: sockdiag.Connection{
		Socket: sockdiag.Socket{
			Proto: sockdiag.MPTCP, Family: unix.AF_INET, State: sockdiag.Established,
			Local: netip.MustParseAddrPort("10.71.1.2:41022"), Remote: netip.MustParseAddrPort("10.71.0.1:80"),
			SendQ: sockdiag.Known(1448), RecvQ: sockdiag.Known(0), Inode: 11,
		},
		Proc: &sockdiag.ProcMPTCP{Token: sockdiag.Known(0x5f1ac2b3), Subflows: sockdiag.Known(2)},
	}}}
	var b strings.Builder
	if err := writeMPTCP(&b, conns, true); err != nil {
		t.Fatal(err)
	}
	const want = "10.71.1.2:41022 -> 10.71.0.1:80 ESTAB\n  token 5f1ac2b3, 2 subflows, unacknowledged 1.45kB\n"
	if b.String() != want {
		t.Errorf("%q\nwant %q", b.String(), want)
	}
	text, err := json.Marshal(mptcpRows(conns)[0])
	if err != nil {
		t.Fatal(err)
	}
	var row map[string]any
	if err := json.Unmarshal(text, &row); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fallback", "subflows", "mptcp_info", "unacked", "why_not"} {
		if v, ok := row[name]; ok {
			t.Errorf("%s is %v", name, v)
		}
	}
	if p, ok := row["proc_mptcp"].(map[string]any); !ok || p["token"] != float64(0x5f1ac2b3) || p["subflows"] != 2.0 || len(p) != 2 {
		t.Errorf("proc_mptcp: %v", row["proc_mptcp"])
	}
	if w := (wanted{byToken("5f1ac2b3"), byAddress("10.71.0.0/24")}); !w.match(&conns[0].Connection) || byToken("5f1ac2b4")(&conns[0].Connection) {
		t.Error("not chosen by its token")
	}
}
