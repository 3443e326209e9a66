// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/test/kit"
)

// A ground is a host on which runs are killed repeatedly.
type ground struct {
	name    string
	host    *kit.Netns
	nets    []*kit.Netns // its namespace and the neighbours'
	flags   [][]string   // of one run; the second set is for a parallel run
	variety [][]string   // further flags; each run gets one of these sets
	echo    string       // the target talks to port 7 of this address
	preload bool         // the engine preload is available
	was     string       // the state at the start
}

// grounds returns all kinds of runs that change the host, or have their own processes
// there.
func grounds(t *testing.T) []*ground {
	nat := newWire(t)
	layNAT(nat)
	// One device already forwards packets, and one accepts router advertisements.
	nat.here.Run(t, "sysctl", "-qw", "net.ipv4.conf.v0.forwarding=1", "net.ipv6.conf.v0.accept_ra=1")
	nat.here.Run(t, "nft", "add table inet wall; add chain inet wall forwarded { type filter hook forward priority 0; policy drop; }")
	raw, rawip := newShare(t, "raw"), newShare(t, "rawip")
	gate := newWire(t)
	layUser(gate)
	for _, w := range []*wire{nat, gate} {
		w.far.EchoTCP(t, ":7")
	}
	for _, s := range []*share{raw, rawip} {
		s.peer.EchoTCP(t, ":7")
	}
	taps := [][]string{{"--if", nat.flag}, {"--if", "tap:new1,nat"}}
	guards := [][]string{{"--rst-guard", "nft", "--listen", "8080"}, {"--rst-guard", "iptables", "--port-range", "1024"}}
	return []*ground{
		{name: "nat", host: nat.here, nets: []*kit.Netns{nat.here, nat.far}, flags: taps, echo: farAddr, preload: true},
		{name: "raw", host: raw.here, nets: []*kit.Netns{raw.here, raw.peer}, flags: [][]string{{"--if", raw.flag}, {"--if", raw.flag}}, variety: guards, echo: peerAddr, preload: true},
		{name: "rawip", host: rawip.here, nets: []*kit.Netns{rawip.here, rawip.peer}, flags: [][]string{{"--if", rawip.flag}, {"--if", rawip.flag}}, variety: guards, echo: peerAddr, preload: true},
		{name: "publish", host: gate.here, nets: []*kit.Netns{gate.here, gate.far}, flags: [][]string{append([]string{"--if", "user"}, gate.more...)}, echo: farAddr, preload: true},
		{name: "host-net", host: nat.here, nets: []*kit.Netns{nat.here, nat.far}, flags: taps, variety: [][]string{{"--host-net", farAddr + "/32"}}, echo: farAddr},
	}
}

// state returns everything in the host's network that a run could leave changed.
func (g *ground) state(t *testing.T) string {
	t.Helper()
	text := g.host.Run(t, "sh", "-ec", `ip -d -o link; ip -o addr; ip rule; ip -6 rule; ip -4 route show table all; ip -6 route show table all
sysctl -a -r '^net\.' 2>/dev/null | grep -v '^net.netfilter.nf_conntrack_count '
for c in 'nft list ruleset' iptables-save ip6tables-save iptables-legacy-save ip6tables-legacy-save; do $c; done`)
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "") // iptables-save prints times in comments
	return regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+`).ReplaceAllString(text, "")
}

// settle waits until addresses are usable, and records the state.
func (g *ground) settle(t *testing.T) {
	t.Helper()
	kit.WaitFor(t, "the addresses of "+g.name, kit.Limit, func() bool { g.was = g.state(t); return !strings.Contains(g.was, "tentative") })
}

// differences returns the lines that only one of two states has.
func differences(was, now string) string {
	a, b := strings.Split(was, "\n"), strings.Split(now, "\n")
	var diff []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			diff = append(diff, "- "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			diff = append(diff, "+ "+l)
		}
	}
	return strings.Join(diff, "\n")
}

// roles are the names of a run's processes that the test kills.
var roles = []string{"lklrun", "lklhost", "target", "zygote", "keeper", "home"}

// processTree returns the processes of a run below lklrun with their roles; A process
// without a role has the role "".
func processTree(t *testing.T, lklrun int) map[int]string {
	t.Helper()
	all, err := procstat.List(procstat.Root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{lklrun: "lklrun"}
	for grown := true; grown; {
		grown = false
		for pid, p := range all {
			parent, ok := found[p.Parent]
			if _, known := found[pid]; known || !ok {
				continue
			}
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // a process that has ended has no role
			grown = true
			switch name := strings.TrimSpace(string(comm)); {
			case parent == "lklrun" && name == "lklhost":
				found[pid] = "lklhost"
			case parent != "lklhost":
				found[pid] = ""
			case name == "lklhost": // or the target before its exec
				found[pid] = "zygote"
			case strings.HasPrefix(name, "lklhost-"):
				found[pid] = strings.TrimPrefix(name, "lklhost-")
			default:
				found[pid] = "target"
			}
		}
	}
	return found
}

// A victim is a run that is killed.
type victim struct {
	*kit.Proc
	seen map[int]string // its known processes and their roles
}

// drill is one round of the random kills.
type drill struct {
	*testing.T
	*ground
	rand *rand.Rand
	as   func(args ...string) []string // makes a command line run as the user
	bin  string
	said []string
}

func (d *drill) tell(format string, args ...any) {
	d.said = append(d.said, fmt.Sprintf(format, args...))
}

// pause waits for a random part of limit, to hit a random moment. It does not wait for
// an event.
func (d *drill) pause(limit time.Duration) time.Duration {
	some := time.Duration(d.rand.Int64N(int64(limit)))
	time.Sleep(some)
	return some.Round(time.Millisecond)
}

func (d *drill) lklrun(where *kit.Netns, args ...string) *exec.Cmd {
	cmd := where.Command(d.as(append([]string{d.bin + "/lklrun"}, args...)...)...)
	cmd.Dir = "/"
	return cmd
}

func (d *drill) begin(flags []string, name, script string) *victim {
	args := append([]string{"-q", "--name", name}, flags...)
	if len(d.variety) > 0 {
		args = append(args, d.variety[d.rand.IntN(len(d.variety))]...)
	}
	if d.preload && d.rand.IntN(4) == 0 {
		args = append(args, "--engine", "preload")
	}
	d.tell("lklrun %s", strings.Join(args, " "))
	args = append(args, "--", "/usr/bin/python3", script, d.echo, "7")
	return &victim{Proc: kit.Start(d, d.lklrun(d.host, args...)), seen: map[int]string{}}
}

// strike waits for a moment and kills a random set of a run's processes.
func (d *drill) strike(v *victim) {
	if d.rand.IntN(2) == 0 {
		kit.WaitFor(d, "the target", 2*kit.Limit, func() bool {
			out, _ := v.Output()
			return strings.HasPrefix(out, "ready") || !v.Running()
		})
		d.tell("%v after the target began", d.pause(100*time.Millisecond))
	} else {
		d.tell("%v after the start", d.pause(700*time.Millisecond))
	}
	v.seen = processTree(d.T, v.Pid())
	var set []string
	for len(set) == 0 {
		for _, role := range roles {
			if d.rand.IntN(2) == 0 {
				set = append(set, role)
			}
		}
	}
	d.rand.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
	d.tell("kill %s", strings.Join(set, ", "))
	for _, role := range set {
		for pid, r := range v.seen {
			if r == role {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
			}
		}
	}
	if d.rand.IntN(3) == 0 { // also kill the processes that clean up
		d.tell("and all that is left %v later", d.pause(40*time.Millisecond))
		d.look(v)
		for pid := range v.seen {
			_ = unix.Kill(pid, unix.SIGKILL) // see above
		}
	}
}

// look adds new processes of a run to the known ones.
func (d *drill) look(v *victim) {
	for pid := range v.seen {
		if !kit.Alive(pid) {
			continue
		}
		for below := range processTree(d.T, pid) {
			if _, known := v.seen[below]; !known {
				v.seen[below] = ""
			}
		}
	}
}

// over ends the run if it is still running, and waits for the end of all its processes
// except the target's children.
func (d *drill) over(v *victim) {
	d.pause(100 * time.Millisecond)
	d.look(v)
	_ = unix.Kill(v.Pid(), unix.SIGTERM) // it may have ended already
	v.Wait(3 * kit.Limit)
	d.gone(v, func(role string) bool { return role != "" })
}

// gone waits for the end of processes.
func (d *drill) gone(v *victim, which func(role string) bool) {
	for pid, role := range v.seen {
		if which(role) && !kit.Within(kit.Limit, func() bool { return !kit.Alive(pid) }) {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty if it has ended
			d.Fatalf("process %d (%s) does not end: %q\n%s", pid, role, cmdline, strings.Join(d.said, "; "))
		}
	}
}

// settledLinks removes the link-local addresses from a state. The host's kernel may still
// be configuring those of a device that a killed run has left.
func settledLinks(state string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(state, "\n"), func(line string) bool {
		return strings.Contains(line, "fe80:")
	}), "\n")
}

// round kills one or two runs and lets `lklrun cleanup` clean up.
func (d *drill) round(n int, script string) {
	before := kit.Take(d, d.nets...)
	runs := []*victim{d.begin(d.flags[0], fmt.Sprintf("k%d", n), script)}
	if len(d.flags) > 1 && d.rand.IntN(3) == 0 {
		d.pause(300 * time.Millisecond)
		runs = append(runs, d.begin(d.flags[1], fmt.Sprintf("k%d-2", n), script))
	}
	for _, v := range runs {
		d.strike(v)
	}
	for _, v := range runs {
		d.over(v)
	}
	kit.WaitFor(d, "the end of all processes in "+d.host.Name, kit.Limit, func() bool {
		return strings.TrimSpace(kit.Host.Run(d, "ip", "netns", "pids", d.host.Name)) == ""
	})
	left := d.state(d.T)
	r := kit.Run(d, kit.Limit, d.lklrun(kit.Host, "cleanup"))
	if now := d.state(d.T); settledLinks(now) != settledLinks(left) {
		d.Errorf("cleanup in another network namespace has changed this one:\n%s", differences(left, now))
	}
	if want := "changed network namespace"; r.Status != 0 && (r.Status != 2 || !strings.Contains(r.Stderr, want)) || left != d.was && !strings.Contains(r.Stderr, want) {
		d.Errorf("cleanup in another network namespace, where this was left:\n%s\n%v", differences(d.was, left), r)
	}
	if left != d.was {
		d.tell("left: %d lines", strings.Count(differences(d.was, left), "\n")+1)
	}
	if r := kit.Run(d, kit.Limit, d.lklrun(d.host, "cleanup")); r.Status != 0 {
		d.Errorf("cleanup: %v", r)
	}
	for _, v := range runs {
		d.gone(v, func(string) bool { return true })
	}
	if now := d.state(d.T); now != d.was {
		d.Errorf("the host is not as before:\n%s", differences(d.was, now))
	}
	before.Settles(kit.Limit)
	if text := strings.Join(d.said, "; "); d.Failed() {
		d.Error(text)
	} else {
		d.Log(text)
	}
}

// TestKillRandom kills random processes of runs at random moments. A run must leave
// nothing, or a record of its changes. Then `lklrun cleanup` in the right network
// namespace must restore the host's state, byte for byte. KILLS is the number of rounds,
// KILLS_FIRST the number of the first one, and KILLS_SEED the seed of the random numbers.
func TestKillRandom(t *testing.T) {
	kit.Need(t, "ip", "nft", "iptables", "setpriv", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklhost"))
	number := func(variable string, otherwise uint64) uint64 {
		text := os.Getenv(variable)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}
	rounds, first, seed := int(number("KILLS", 6)), int(number("KILLS_FIRST", 0)), number("KILLS_SEED", uint64(time.Now().UnixNano()))
	t.Logf("KILLS=%d KILLS_FIRST=%d KILLS_SEED=%d", rounds, first, seed)
	tunForAll(t)
	bin, script := kit.PublicBin(t), public(t, kit.TestData("kills.py"))
	all := grounds(t)
	for _, g := range all {
		g.settle(t)
	}
	for n := first; n < first+rounds; n++ {
		// Each round has its own seed, so that the number of the round is enough to
		// reproduce it.
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		g := all[(n+int(seed%uint64(len(all))))%len(all)]
		who, as := "root", func(args ...string) []string { return args }
		if random.IntN(2) == 0 {
			who, as = "user", func(args ...string) []string { return kit.AllRights[0].Command(args...).Args }
		}
		if !t.Run(fmt.Sprintf("%d, %s, %s", n, g.name, who), func(t *testing.T) {
			(&drill{T: t, ground: g, rand: random, as: as, bin: bin}).round(n, script)
		}) {
			t.Fatalf("once more: KILLS=1 KILLS_FIRST=%d KILLS_SEED=%d", n, seed)
		}
	}
}
