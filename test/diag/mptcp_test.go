// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// busyConn has the fields of a connection in lklctl mptcp -o json that ss also shows.
type busyConn struct {
	Local, Remote, State string
	Info                 struct {
		Token       uint64
		Subflows    uint64 `json:"extra_subflows"`
		SubflowsMax uint64 `json:"extra_subflows_max"`
		AcceptedMax uint64 `json:"add_addr_accepted_max"`
		WriteSeq    uint64 `json:"write_seq"`
		SndUna      uint64 `json:"snd_una"`
		RcvNxt      uint64 `json:"rcv_nxt"`
	} `json:"mptcp_info"`
	Subflows []busySubflow
	WhyNot   []any `json:"why_not"`
}

type busySubflow struct {
	Local, Remote, State, Iface string
	Congestion                  string
	Info                        struct {
		MSS           uint64 `json:"snd_mss"`
		BytesSent     uint64 `json:"bytes_sent"`
		BytesAcked    uint64 `json:"bytes_acked"`
		BytesReceived uint64 `json:"bytes_received"`
		SegsOut       uint64 `json:"segs_out"`
		SegsIn        uint64 `json:"segs_in"`
	} `json:"tcp_info"`
	Subflow struct {
		Token       uint64
		RemoteToken uint64 `json:"remote_token"`
		ID          uint64
		RemoteID    uint64 `json:"remote_id"`
		Flags       string
	}
}

func (b *busy) mptcp() map[string]busyConn {
	b.Helper()
	var rows []busyConn
	if err := json.Unmarshal([]byte(b.ctl("-o", "json", "mptcp")), &rows); err != nil {
		b.Fatal(err)
	}
	all := map[string]busyConn{}
	for _, r := range rows {
		all[r.Local+" "+r.Remote] = r
	}
	return all
}

// ss lists sockets by their addresses, each with its details.
func (b *busy) ss(kind string) map[string]string {
	b.Helper()
	all := map[string]string{}
	for _, line := range kit.Lines(b.InStack("ss", "-HnOi"+kind)) {
		if f := strings.Fields(line); len(f) > 4 {
			addr, port, _ := strings.Cut(f[3], "%") // the interface that it is bound to
			if port != "" {
				addr += port[strings.LastIndex(port, ":"):]
			}
			all[addr+" "+f[4]] = line
		}
	}
	return all
}

// said returns the number after a name in a line of ss, or 0 without that name.
func said(t *testing.T, line, name string, base int) uint64 {
	t.Helper()
	m := regexp.MustCompile(`(?:^|\s)` + name + `:([0-9a-f]+)`).FindStringSubmatch(line)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseUint(m[1], base, 64)
	if err != nil {
		t.Errorf("%s: %v: %s", name, err, line)
	}
	return n
}

// ssFlags are ss's letters for the flags of a subflow.
var ssFlags = map[string]string{
	"capable-remote": "M", "capable-local": "m", "join-remote": "J", "join-local": "j", "backup-remote": "B", "backup-local": "b",
	"fully-established": "e", "connected": "c", "mapped": "v",
}

// TestBusyMPTCP checks that lklctl mptcp, its endpoints and its limits agree with ss
// and ip mptcp in the same stack. Growing numbers must lie between two of lklctl's
// values.
func TestBusyMPTCP(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "supervise")
	before := b.mptcp()
	conns, subflows := b.ss("M"), b.ss("t")
	after := b.mptcp()
	compared := 0
	for key, x := range before {
		line, ok := conns[key]
		y, still := after[key]
		if !ok || !still {
			t.Errorf("ss -M has %s: %v; it is there still: %v", key, ok, still)
			continue
		}
		if len(x.Subflows) != 2 || len(x.WhyNot) != 0 {
			t.Errorf("%s: %d subflows, %v; want two and no reason", key, len(x.Subflows), x.WhyNot)
		}
		b.same(line, "token", 16, x.Info.Token, x.Info.Token)
		b.same(line, "subflows", 10, x.Info.Subflows, y.Info.Subflows)
		b.same(line, "subflows_max", 10, x.Info.SubflowsMax, x.Info.SubflowsMax)
		b.same(line, "add_addr_accepted_max", 10, x.Info.AcceptedMax, x.Info.AcceptedMax)
		b.same(line, "write_seq", 16, x.Info.WriteSeq, y.Info.WriteSeq)
		b.same(line, "snd_una", 16, x.Info.SndUna, y.Info.SndUna)
		b.same(line, "rcv_nxt", 16, x.Info.RcvNxt, y.Info.RcvNxt)
		if state := strings.Fields(line)[0]; state != x.State {
			t.Errorf("state %s, ss: %s", x.State, state)
		}
		if len(y.Subflows) != len(x.Subflows) {
			t.Errorf("%s: %d subflows, then %d", key, len(x.Subflows), len(y.Subflows))
			continue
		}
		for n, s := range x.Subflows {
			b.sameSubflow(subflows, s, y.Subflows[n])
			compared++
		}
	}
	if len(before) != 1 || compared != 2 {
		t.Errorf("%d connections and %d subflows compared, want 1 and 2", len(before), compared)
	}
	b.sameEndpoints()
	b.end()
}

// same compares a value of ss with lklctl's values before and after it.
func (b *busy) same(line, name string, base int, from, to uint64) {
	b.Helper()
	if n := said(b.T, line, name, base); n < from || n > to {
		b.Errorf("%s: ss has %x, lklctl %x to %x: %s", name, n, from, to, line)
	}
}

func (b *busy) sameSubflow(all map[string]string, x, y busySubflow) {
	b.Helper()
	line, ok := all[x.Local+" "+x.Remote]
	if !ok || x.Local != y.Local {
		b.Errorf("ss -t lacks the subflow %s %s, or it has gone to %s", x.Local, x.Remote, y.Local)
		return
	}
	b.same(line, "mss", 10, x.Info.MSS, x.Info.MSS)
	b.same(line, "bytes_sent", 10, x.Info.BytesSent, y.Info.BytesSent)
	b.same(line, "bytes_acked", 10, x.Info.BytesAcked, y.Info.BytesAcked)
	b.same(line, "bytes_received", 10, x.Info.BytesReceived, y.Info.BytesReceived)
	b.same(line, "segs_out", 10, x.Info.SegsOut, y.Info.SegsOut)
	b.same(line, "segs_in", 10, x.Info.SegsIn, y.Info.SegsIn)
	ids := fmt.Sprintf("token:%04x(id:%d)/%04x(id:%d)", x.Subflow.RemoteToken, x.Subflow.RemoteID, x.Subflow.Token, x.Subflow.ID)
	if !strings.Contains(line, ids) || !strings.Contains(line, " "+x.Congestion+" ") {
		b.Errorf("lklctl has %s and %s, ss: %s", ids, x.Congestion, line)
	}
	letters := ""
	for _, flag := range strings.Split(x.Subflow.Flags, ",") {
		letters += ssFlags[flag]
	}
	// This flag reports whether a data mapping is in progress, and changes all the time.
	m := regexp.MustCompile(`flags:(\w+)`).FindStringSubmatch(line)
	if m == nil || strings.TrimSuffix(m[1], "v") != strings.TrimSuffix(letters, "v") {
		b.Errorf("flags %s (%s), ss: %v", x.Subflow.Flags, letters, m)
	}
	if bound := regexp.MustCompile(`%(\w+):`).FindStringSubmatch(line); bound != nil && bound[1] != x.Iface {
		b.Errorf("interface %s, ss: %s", x.Iface, bound[1])
	}
}

func (b *busy) sameEndpoints() {
	b.Helper()
	var ours []struct {
		ID       int
		Address  string
		Dev      string
		Flags    []string
		Subflows int
	}
	if err := json.Unmarshal([]byte(b.ctl("-o", "json", "mptcp", "endpoint")), &ours); err != nil {
		b.Fatal(err)
	}
	var got []string
	for _, e := range ours {
		got = append(got, strings.Join(append([]string{e.Address, "id", fmt.Sprint(e.ID)}, append(e.Flags, "dev", e.Dev)...), " "))
		if want := map[string]int{"10.74.1.2": 1, "10.74.2.2": 1}[e.Address]; e.Subflows != want {
			b.Errorf("%s is used by %d subflows, want %d", e.Address, e.Subflows, want)
		}
	}
	var want []string
	for _, line := range kit.Lines(b.InStack("ip", "mptcp", "endpoint", "show")) {
		want = append(want, strings.Join(strings.Fields(line), " "))
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) || len(want) != 4 {
		b.Errorf("endpoints:\n%s\nip mptcp endpoint:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	words := strings.Fields(b.InStack("ip", "mptcp", "limits", "show"))
	limits := map[string]string{}
	for n := 0; n+1 < len(words); n += 2 {
		limits[words[n]] = words[n+1]
	}
	if got := b.ctl("mptcp", "limits"); got != fmt.Sprintf("subflows %s add_addr_accepted %s\n", limits["subflows"], limits["add_addr_accepted"]) {
		b.Errorf("limits %q, ip: %v", got, limits)
	}
}
