// SPDX-License-Identifier: Apache-2.0

// Package verbtest contains helpers for the tests of the verbs.
package verbtest

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// Sample is the output of a stack with two links during a download.
func Sample() []sockdiag.Connection {
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
			// This socket is from an older kernel: it has no byte counters and no
			// RTT, and its process has ended.
			Socket: sockdiag.Socket{
				Proto: sockdiag.MPTCP, Family: unix.AF_INET6, State: 4, Local: ap("[fd01::2]:41030"), Remote: ap("[fd01::1]:443"),
				RecvQ: known(0), SendQ: known(1), MPTCP: &sockdiag.MPTCPInfo{Fallback: true},
			},
			Subflows: []sockdiag.Socket{},
		},
	}
}
