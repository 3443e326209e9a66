// SPDX-License-Identifier: Apache-2.0

package account

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

func TestParse(t *testing.T) {
	stats, err := stackconn.ParseStats([]byte(`sockets.stack 4
hosted.elsewhere 0
hosted.127.0.0.1:5432 2
hosted.[::1]:5432 1
proc.12.a b.c.stack 3
proc.12.a b.c.host 1
proc.12.a b.c.received 100
proc.12.a b.c.sent 50
proc.12.a b.c.mptcp 1
proc.12.a b.c.fallback-peer 2
proc.12.a b.c.peer tcp 10.0.0.1:80 10
proc.12.a b.c.peer others 900
proc.12.a b.c.peer udp [fd00::1]:53 20
proc.12.a b.c.peer tcp 10.0.0.2 30
ended.12.curl.stack 0
ended.12.curl.refused 1
ended.0.earlier processes.stack 7
view.files 3
proc.x.y.stack 1
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Account{
		Processes: []Process{
			{
				PID: 12, Command: "a b.c", Stack: 3, Host: 1, Received: 100, Sent: 50, MPTCP: 1, FallbackPeer: 2,
				Peers: []Peer{{"tcp", "10.0.0.2", 30}, {"udp", "[fd00::1]:53", 20}, {"tcp", "10.0.0.1:80", 10}, {"", "others", 900}},
			},
			{PID: 12, Command: "curl", Ended: true, Refused: 1},
			{PID: 0, Command: "earlier processes", Ended: true, Stack: 7},
		},
		Hosted: []Place{{"127.0.0.1:5432", 2}, {"[::1]:5432", 1}},
	}
	got := Parse(stats)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	p := got.Processes[0]
	if s := p.Connections(); s != "1 MPTCP, 2 TCP (peer without MPTCP)" {
		t.Error(s)
	}
	if s := strings.Join(p.PeerNames(2), ", "); s != "10.0.0.2, udp [fd00::1]:53, ..." {
		t.Error(s)
	}
}

// With the engine preload, the target writes the statistics and can write anything. Parse
// must count each counter at most once.
func FuzzParse(f *testing.F) {
	f.Add([]byte("proc.12.a b.c.stack 3\nproc.12.a b.c.peer tcp 192.0.2.1:80 7\nhosted.[::1]:5432 1\n"))
	f.Add([]byte("ended.1.x.peer others 5\nproc.-1..stack 9223372036854775807\nproc.1.x 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		stats, err := stackconn.ParseStats(text)
		if err != nil {
			return
		}
		a := Parse(stats)
		counted := len(a.Hosted)
		for n := range a.Processes {
			counted += len(a.Processes[n].Peers)
			a.Processes[n].Connections()
			a.Processes[n].PeerNames(3)
		}
		if counted > len(stats) || len(a.Processes) > len(stats) {
			t.Errorf("%d counters were read as %+v", len(stats), a)
		}
	})
}
