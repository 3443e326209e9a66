// SPDX-License-Identifier: Apache-2.0

package stress

import (
	"fmt"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// TestSoak runs forking servers, and clients that end connections in every way, with
// signals at 1 kHz. Every byte must be right, no process may hang, and lklhost must
// release all resources in the end.
func TestSoak(t *testing.T) {
	seconds, seed := kit.Setting(t, "SOAK_SECONDS", 16), kit.Setting(t, "SOAK_SEED", 1)
	for _, stack := range []string{"mptcp", "vanilla"} {
		t.Run(stack, func(t *testing.T) {
			soak := built(t, "soak")
			h := newHunt(t, false, "--stack", stack)
			run := func(seed, seconds int) {
				t.Helper()
				r := kit.Run(t, time.Duration(seconds)*time.Second+6*kit.Limit, h.inside(soak, fmt.Sprint(seed), fmt.Sprint(seconds)))
				t.Logf("%v", r)
				if r.Status != 0 || r.Signal != 0 {
					t.Fatalf("the soak, seed %d", seed)
				}
			}
			h.works()
			run(seed+1, 1) // lets lklhost create the resources that it keeps
			before := h.settled()
			run(seed, seconds/2)
			after := h.recovers(before, 4*kit.Limit)
			t.Logf("before: %v\nafter:  %v", before, after)
			h.works()
			h.end()
		})
	}
}

// TestSoakBytes runs threads that keep received bytes in pipes and sockets, with
// sendfile, splice and tee. Meanwhile, other threads exchange some of the descriptors.
// Every byte must be right. The buffers are small enough for the stack's memory: MPTCP
// drops data for which there is no memory, and retransmits it only after a minute.
func TestSoakBytes(t *testing.T) {
	seconds, seed := kit.Setting(t, "SOAK_SECONDS", 6), kit.Setting(t, "SOAK_SEED", 1)
	kit.NewSite(t)
	soak := built(t, "bytes")
	for _, r := range [][2]string{{"supervise", "mptcp"}, {"supervise", "vanilla"}, {"preload", "mptcp"}} {
		t.Run(r[0]+"/"+r[1], func(t *testing.T) {
			got := kit.Run(t, time.Duration(seconds)*time.Second+6*kit.Limit,
				kit.Lklrun("-q", "--engine", r[0], "--stack", r[1], "--sysctl", "net.ipv4.tcp_rmem=4096 131072 1048576", "--sysctl", "net.ipv4.tcp_wmem=4096 131072 1048576",
					"--", soak, "soak", fmt.Sprint(seed), fmt.Sprint(seconds)))
			t.Logf("%v", got)
			if got.Status != 0 || got.Signal != 0 {
				t.Errorf("the soak, seed %d", seed)
			}
		})
	}
}
