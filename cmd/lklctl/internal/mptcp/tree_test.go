// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verbtest"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// sampleMPTCP returns the sample with reasons for missing subflows.
func sampleMPTCP() []connection {
	var all []connection
	for _, c := range verbtest.Sample() {
		all = append(all, connection{Connection: c})
	}
	all[0].MPTCP.WriteSeq, all[0].MPTCP.SndUna = sockdiag.Known(1<<20+77), sockdiag.Known(77)
	all[0].MPTCP.SubflowsMax, all[0].MPTCP.LastSent = sockdiag.Known(8), sockdiag.Known(1250)
	all[0].why = []mptcpdiag.Reason{{Code: mptcpdiag.NoRoute, Iface: "eth2", Address: "10.71.3.2", Text: "there is no route from 10.71.3.2 to 10.71.0.1 over eth2, according to the routing tables", Remedy: "add a gateway"}}
	all[1].why = []mptcpdiag.Reason{{Code: mptcpdiag.NoCapable, Text: "[fd01::1] answered without MP_CAPABLE: it does not support MPTCP, or something on the path strips the option"}}
	return all
}

func TestMPTCPTable(t *testing.T) {
	for _, detail := range []bool{false, true} {
		var b strings.Builder
		if err := writeMPTCP(cli.Screen{Writer: &b, Width: 80}, sampleMPTCP(), detail); err != nil {
			t.Fatal(err)
		}
		verbtest.Golden(t, map[bool]string{false: "mptcp.txt", true: "mptcp-v.txt"}[detail], b.String())
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
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
