// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// ssFilters are expressions that ss and lklctl must understand in the same way; PORT
// stands for a client's port. Raw sockets are missing because the kernel
// ignores their state (net/ipv4/raw_diag.c).
var ssFilters = []string{
	"", "state established", "state listening", "state connected", "state big", "exclude established", "state unconnected", "state bucket",
	"sport = :80", "sport = :http", "sport == :6379", "sport eq 0x50", "dport = :PORT", "dport != :PORT", "sport > :80", "sport >= :80", "sport lt :6379", "sport le :6379", "sport gt :80",
	"src 10.74.1.2", "src 10.74.0.0/16", "dst 10.74.1.1:PORT", "dst [fd74:1::1]", "dst fd74::/16", "src [fd74:1::2]:80", "src *:80", "src :80",
	"sport = :80 or sport = :6379 and dst 10.74.1.1", // evaluated from left to right
	"dst 10.74.1.1 and sport = :6379 or sport = :80",
	"( sport = :80 or sport = :6379 ) and not dst 10.74.1.1", "! sport = :80 dst 10.74.1.1", "! ( sport = :80 || sport = :6379 ) && state", // the last one is wrong
	"not dport = :PORT sport = :80", "dev eth1", "dev != eth1 and state",
	"state established ( dport >= :1024 and sport < :1024 )", "state closed state listening sport = :80",
}

// TestSSFilters checks that filters select the same sockets as the unmodified ss does
// on the same stack.
func TestSSFilters(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "supervise")
	port := b.clientPort("sport = :80")
	for _, filter := range ssFilters {
		if strings.HasSuffix(filter, " state") { // ss prints its usage, lklctl names the error
			r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", b.Instance, "netstat", filter))
			if r.Status != 2 || !strings.Contains(r.Stderr, `"state": must precede all conditions`) {
				t.Errorf("%s: %v", filter, r)
			}
			continue
		}
		filter = strings.ReplaceAll(filter, "PORT", port)
		theirs := slices.Sorted(keys(b.theirs("-tuMinmpeaOHo", strings.Fields(filter)...)))
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", b.Instance, "ss", "-o", "json", "-tuM", filter))
		var list []struct{ Cookie uint64 }
		if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil {
			t.Fatalf("%s: %v", filter, r)
		}
		ours := []string{}
		for _, s := range list {
			ours = append(ours, fmt.Sprint(s.Cookie))
		}
		slices.Sort(ours)
		if r.Status != 0 {
			t.Errorf("%s: status %d with %d sockets", filter, r.Status, len(ours))
		}
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s: ss has the sockets %v, we have %v", filter, theirs, ours)
		}
	}
	b.end()
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// clientPort returns the port of a client connected to a server that matches filter.
func (b *busy) clientPort(filter string) string {
	b.Helper()
	for _, s := range b.ours("-t4", "state", "established", filter) {
		if s.at("subflow") != nil {
			continue
		}
		addr := s.text("remote")
		return addr[strings.LastIndex(addr, ":")+1:]
	}
	b.Fatalf("nobody is connected to %s", filter)
	return ""
}

// TestKill checks that a killed connection disappears on both sides, and that all others
// remain. If nothing matches, the status is 1. Without a filter, lklctl does nothing.
func TestKill(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBusy(t, engine)
			run := func(args ...string) kit.Result {
				return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"--name", b.Instance}, args...)...))
			}
			if r := run("kill"); r.Status != 2 || !strings.Contains(r.Stderr, "no filter given") {
				t.Errorf("without a filter: %v", r)
			}
			if r := run("kill", "dport = :1"); r.Status != 1 || !strings.Contains(r.Stderr, "no matching sockets") {
				t.Errorf("nothing matches: %v", r)
			}
			port := b.clientPort("sport = :80")
			subflows := func() (n int) { // none of them is killed yet
				for _, s := range b.ours("-t", "state", "established") {
					if s.at("subflow") != nil {
						n++
					}
				}
				return n
			}
			before := subflows()
			if r := run("kill", "-t", "dport = :"+port); r.Status != 0 || !strings.Contains(r.Stdout, ":"+port) || !strings.Contains(r.Stderr, "1 socket ended") {
				t.Errorf("kill: %v", r)
			}
			for _, s := range b.ours("-t4") {
				if strings.HasSuffix(s.text("remote"), ":"+port) {
					t.Errorf("it is still there: %v", s)
				}
			}
			if n := subflows(); n != before || n < 2 {
				t.Errorf("%d subflows of %d are left", n, before)
			}
			kit.WaitFor(t, "the reset", kit.Limit, func() bool {
				return strings.TrimSpace(b.Server.Run(t, "ss", "-tnH", "state", "established", "sport = :"+port)) == ""
			})
			if n := len(b.ours("-tl")); n == 0 {
				t.Error("the listening sockets are gone, too")
			}

			// For the transfer, kill the subflows.
			transfer := "sport = :" + b.port
			if engine != "preload" {
				transfer = "dport = :" + b.port
			}
			r := run("kill", "-o", "json", "-M", "state", "established", transfer)
			var ended []struct {
				Proto  string
				Remote string
			}
			if err := json.Unmarshal([]byte(r.Stdout), &ended); err != nil || r.Status != 0 || len(ended) < 2 || ended[0].Proto != "tcp" {
				t.Errorf("of MPTCP: %v: %v", err, r)
			}
			if engine == "preload" { // the other programs no longer use the stack, and end by themselves
				return
			}
			if left := b.ours("-t", "state", "established", transfer); len(left) != 0 {
				t.Errorf("subflows are left: %v", left)
			}
		})
	}
}

// TestSSPreload checks the kernel inside the program, where no other program can run.
// Both sides of the wire and the stack's files must show the same sockets.
func TestSSPreload(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "preload")
	b.compareProc()
	theirs := func() map[string]ssLine {
		all := map[string]ssLine{}
		for _, line := range kit.Lines(b.Server.Run(t, "ss", "-tinmpeaOHo", "state", "established")) {
			s, err := parseSS("tcp ESTAB " + line) // ss omits the state if a filter names it
			if err != nil {
				t.Fatal(err)
			}
			all[s["peer"]+" "+s["local"]] = s
		}
		return all
	}
	ours := func() map[string]ourSocket {
		all := map[string]ourSocket{}
		for _, s := range b.ours("-t", "state", "established") {
			all[s.text("local")+" "+s.text("remote")] = s
		}
		return all
	}
	before, far, after := ours(), theirs(), ours()
	if len(before) < 4 { // two of the web's clients, two subflows
		t.Fatalf("%d connections: %s", len(before), b.ctl("netstat"))
	}
	for ends, x := range before {
		f, y := far[ends], after[ends]
		if f == nil || y == nil {
			t.Errorf("%s: one side has it", ends)
			continue
		}
		number := func(name string) uint64 {
			n, _ := strconv.ParseUint(f[name], 10, 64) // an omitted value is 0
			return n
		}
		for _, c := range []struct {
			what             string
			first, then, end uint64
		}{
			{"acknowledged to us, received by the peer, sent by us", x.number("tcp_info.bytes_acked"), number("bytes_received") + 1, y.number("tcp_info.bytes_sent") + 1},
			{"acknowledged to the peer, received by us, sent by the peer", 0, number("bytes_acked"), y.number("tcp_info.bytes_received") + 1},
			{"received by us, sent by the peer", x.number("tcp_info.bytes_received"), number("bytes_sent"), 1 << 62},
		} {
			if c.first > c.then || c.then > c.end {
				t.Errorf("%s: %s: %d, %d, %d", ends, c.what, c.first, c.then, c.end)
			}
		}
		if x.text("congestion") == "" || x.number("tcp_info.cwnd") == 0 || x.at("skmem") == nil || len(x.users()) < 3 {
			t.Errorf("%s: %v", ends, x)
		}
	}
	b.end()
}
