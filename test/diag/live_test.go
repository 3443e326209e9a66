// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestSysctlLive checks that a sysctl of a running stack can be changed, and applies to
// the next connection.
func TestSysctlLive(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	before := kit.Take(t, s.Server)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	change := func(to, note string) {
		t.Helper()
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "sysctl", "-w", "net.ipv4.tcp_congestion_control="+to)) // with a single instance, -n is not needed
		if r.Status != 0 || (note == "") != (r.Stderr == "") || !strings.Contains(r.Stderr, note) {
			t.Errorf("to %s, want the note %q: %v", to, note, r)
		}
	}
	k.Say("0") // the run has started
	change("reno", "")
	change("cubic", "")
	if cc := k.Connect("first", kit.ServerAddr, 80); cc != "cubic" {
		t.Errorf("the first connection has %s, want cubic", cc)
	}
	change("cubic", "")
	change("bbr", "applies to new connections; open ones (1) keep theirs")
	if got := kit.Lklctl(t, "-n", k.Name, "sysctl", "net.ipv4.tcp_congestion_control"); strings.TrimSpace(got) != "net.ipv4.tcp_congestion_control = bbr" {
		t.Errorf("sysctl reads back %q", got)
	}
	if cc := k.Connect("second", kit.ServerAddr, 80); cc != "bbr" {
		t.Errorf("the connection after sysctl -w has %s, want bbr", cc)
	}
	if r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "sysctl", "-w", "net.ipv4.no_such=1")); r.Status == 0 || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("a sysctl that is not there: %v", r)
	}
	if r := k.End(); r.Status != 0 {
		t.Errorf("the target: %v", r)
	}
	before.Same()
}

// TestMPTCPLive checks that /proc/net/mptcp and lklctl mptcp list the live connection.
func TestMPTCPLive(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{MPTCP: true})
	s.Server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	k := s.Talk("--stack", "mptcp", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	if rows := kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp")); len(rows) != 1 || !strings.Contains(rows[0], "loc_tok") {
		t.Errorf("before any connection /proc/net/mptcp holds %q", rows)
	}
	k.Connect("c", kit.ServerAddr, 80)
	// 10.73.0.1:80, in the format of proc_net_tcp.rst.
	rows := kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp"))
	if len(rows) != 2 || !strings.Contains(rows[1], "0100490A:0050") || !strings.Contains(rows[1], "0A00490A:") {
		t.Errorf("/proc/net/mptcp does not list the connection: %q", rows)
	}
	if shown := kit.Lklctl(t, "mptcp"); !strings.Contains(shown, kit.ServerAddr+":80") || !strings.Contains(shown, kit.StackAddr) || !strings.Contains(shown, "eth0") {
		t.Errorf("lklctl mptcp does not show the connection and its subflow on eth0:\n%s", shown)
	}
	var any []map[string]any
	if text := kit.Lklctl(t, "-o", "json", "mptcp"); json.Unmarshal([]byte(text), &any) != nil || len(any) != 1 {
		t.Errorf("lklctl -o json mptcp: not a list of one connection: %s", text)
	}
	if got := kit.Host.Run(t, "ip", "netns", "exec", s.Server.Name, "nstat", "-asz", "MPTcpExtMPCapableACKRX"); !strings.Contains(got, " 1 ") {
		t.Errorf("the server counted no MPTCP connection: %s", got)
	}
	if got := k.Say(`keep["c"].getsockopt(1, 38)`); got != "6" { // SO_PROTOCOL
		t.Errorf("SO_PROTOCOL says %s, want 6, TCP", got)
	}
	k.Say(`keep["c"].close()`)
	kit.WaitFor(t, "an end in /proc/net/mptcp", kit.Limit, func() bool {
		return len(kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp"))) == 1
	})
	k.End()
}

// TestFullOutput checks that lklctl reports a full output as such, and not as an error of
// the stack.
func TestFullOutput(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	for _, verb := range []string{"cat /proc/version", "counters", "sysctl -a", "list", "-o json cat /proc/version"} {
		cmd := exec.Command("sh", "-c", kit.Bin("lklctl")+" "+verb+" >/dev/full")
		if r := kit.Run(t, kit.Limit, cmd); r.Status != 1 || r.Stderr != "lklctl: writing to standard output: no space left on device\n" {
			t.Errorf("%s: %v", verb, r)
		}
	}
	kit.Lklctl(t, "stop")
	if r := k.Proc.Wait(kit.Limit); kit.ShellStatus(r) != 143 {
		t.Errorf("lklctl stop ended the run with %v, want SIGTERM's 143", r)
	}
}

// netSettings parses lines "KEY = VALUE" of net.*. Under lklctl exec, these settings are
// the stack's.
func netSettings(text string) map[string]string {
	all := map[string]string{}
	for _, line := range kit.Lines(text) {
		if key, value, ok := strings.Cut(line, " = "); ok && strings.HasPrefix(key, "net.") {
			all[key] = value
		}
	}
	return all
}

// sysctlHides reports whether sysctl(8) -a omits a setting. It omits the deprecated
// settings in seconds and jiffies, which procps lists in DeprecatedList (src/sysctl.c).
func sysctlHides(key string) bool {
	return slices.Contains([]string{"base_reachable_time", "retrans_time"}, key[strings.LastIndex(key, ".")+1:])
}

// TestSysctlAgrees checks that sysctl(8), on the same stack, prints each setting of net.*
// with the value that lklctl sysctl prints just before or just after. Both must list the
// same settings, including those of an interface whose name contains a dot.
func TestSysctlAgrees(t *testing.T) {
	t.Parallel()
	kit.Need(t, "sysctl")
	b := newBusy(t, "supervise")
	b.InStack("ip", "link", "add", "vlan.7", "type", "dummy")
	before := netSettings(b.ctl("sysctl", "-a"))
	theirs := netSettings(b.InStack("sysctl", "-a"))
	after := netSettings(b.ctl("sysctl", "-a"))
	if _, ok := theirs["net.ipv4.conf.vlan/7.forwarding"]; len(theirs) < 800 || !ok {
		t.Fatalf("sysctl -a has %d settings, or none of vlan.7", len(theirs))
	}
	for key, value := range theirs {
		x, was := before[key]
		y, is := after[key]
		if !was || !is {
			t.Errorf("sysctl(8) has %s, we have not", key)
		} else if value != x && value != y {
			t.Errorf("%s: sysctl(8) says %q, we %q and then %q", key, value, x, y)
		}
	}
	for key := range before {
		if _, ok := theirs[key]; !ok && !sysctlHides(key) {
			t.Errorf("we have %s, sysctl(8) has not", key)
		}
	}
	t.Logf("%d settings compared", len(theirs))
	b.end()
}
