// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// leaseLength returns the duration of a test's leases in seconds, and the rate of the
// parallel transfer. LEASE_SECONDS replaces the duration short, for example by a minute.
func leaseLength(t *testing.T, short int) (seconds int, rate string, perSecond int) {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("LEASE_SECONDS")); err == nil {
		return n, "8mbit", 1000000
	}
	return short, "64mbit", 8000000
}

// roaming is a host with two taps, each on a wire of its own to the server, which
// serves 10.70.0.1 over both:
//
//	host: br0 ─┬─ v0 ─ server: s0 10.73.0.1   tap0: an address by DHCP
//	           └─ tap0
//	      br1 ─┬─ v1 ─ server: s1 10.74.0.1   tap1: 10.74.0.10
//	           └─ tap1
type roaming struct {
	*kit.Site
	sum string // of the file that it serves
}

const roamingURL = "http://10.70.0.1/big"

func newRoaming(t *testing.T, rate string, size int) *roaming {
	t.Helper()
	s := &roaming{Site: kit.NewSite(t)}
	host := kit.Host
	kit.Veth(t, host, "v1", s.Server, "s1")
	host.Tap(t, "tap1")
	host.Bridge(t, "br1", "v1", "tap1")
	s.Server.Addr(t, "s1", "10.74.0.1/24")
	s.Server.Addr(t, "lo", "10.70.0.1/32")
	s.Server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	s.Server.Run(t, "ip", "mptcp", "limits", "set", "subflow", "8", "add_addr_accepted", "8")
	for _, dev := range []string{"s0", "s1"} {
		s.Server.Rate(t, dev, rate)
	}
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "big"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	s.sum = fmt.Sprintf("%x", sha256.Sum256(data))
	return s
}

// leased returns the lease of eth0 of a run, or nil.
func leased(t *testing.T, name string) *lease {
	t.Helper()
	var all []lease
	text := kit.Lklctl(t, "-n", name, "-o", "json", "lease")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for n := range all {
		if all[n].Link == "eth0" && all[n].Lease != nil {
			return &all[n]
		}
	}
	return nil
}

// fetch starts a transfer in a run, which prints the checksum.
func (s *roaming) fetch(name string, flags ...string) *kit.Proc {
	s.T.Helper()
	args := append([]string{"--name", name}, flags...)
	return kit.Start(s.T, kit.Lklrun(append(args, "--", "sh", "-c", "curl -sS --max-time 900 "+roamingURL+" | sha256sum")...))
}

// TestLeaseRenewedInTransfer checks that the renewal of a lease does not affect a
// transfer.
func TestLeaseRenewedInTransfer(t *testing.T) {
	seconds, rate, perSecond := leaseLength(t, 6)
	s := newRoaming(t, rate, seconds*perSecond*2)
	s.Web(kit.Nginx{})
	s.Server.Udhcpd(t, "s0", "10.73.0.50", "10.73.0.60", seconds, "opt subnet 255.255.255.0", "opt router 10.73.0.1")
	name := kit.NewName()
	p := s.fetch(name, "--stack", "vanilla", "--if", "tap:tap0,dhcp")
	began := time.Now()
	kit.WaitFor(t, "the run has a lease", kit.Limit, func() bool {
		return strings.Contains(kit.Lklctl(t, "-o", "json", "list"), `"bound"`)
	})
	first := leased(t, name)
	renewed, last := 0, first.Lease.From
	for p.Running() {
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "-o", "json", "lease"))
		var all []lease
		if r.Status == 0 && json.Unmarshal([]byte(r.Stdout), &all) == nil && len(all) == 1 && all[0].Lease != nil {
			if all[0].Lease.Addr != first.Lease.Addr {
				t.Errorf("the address changed: %+v", all[0].Lease)
			}
			if all[0].Lease.From.After(last) {
				renewed, last = renewed+1, all[0].Lease.From
			}
		}
		pause(t, time.Duration(seconds)*time.Second/20)
	}
	r := p.Wait(kit.Limit) // the run has ended
	if r.Status != 0 || !strings.HasPrefix(r.Stdout, s.sum) || r.Stderr != "" {
		t.Errorf("the transfer: %v, want %s", r, s.sum)
	}
	if renewed < 2 {
		t.Errorf("renewed %d times in %v, with a lease of %d s", renewed, time.Since(began), seconds)
	}
	t.Logf("a lease of %d s was renewed %d times in a transfer of %v", seconds, renewed, time.Since(began).Round(time.Second))
}

// pause waits for d, because the expected state has no event of its own.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	kit.Within(2*d, func() bool { return time.Now().After(end) })
}

// TestLeaseMovesInTransfer checks that the server can move the client to another network
// in the middle of an MPTCP transfer. The old address must disappear with its endpoint
// and subflow. The endpoint and subflow of the new address must appear, and the
// connection must continue.
func TestLeaseMovesInTransfer(t *testing.T) {
	seconds, rate, perSecond := leaseLength(t, 3)
	s := newRoaming(t, rate, seconds*perSecond*4) // together, the two paths need half of that
	s.Web(kit.Nginx{MPTCP: true})
	options := []string{"opt subnet 255.255.255.0", "opt router 10.73.0.1"}
	old := s.Server.Udhcpd(t, "s0", "10.73.0.50", "10.73.0.60", seconds, options...)
	name := kit.NewName()
	p := s.fetch(name, "--stack", "mptcp", "--if", "tap:tap0,dhcp", "--if", "tap:tap1,ip=10.74.0.10/24,gw=10.74.0.1")
	flows := func(from string) bool {
		return strings.Contains(s.Server.Run(t, "ss", "-tnH", "state", "established", "dst", from), "10.70.0.1:80")
	}
	kit.WaitFor(t, "a subflow from the leased address", kit.Limit, func() bool { return flows("10.73.0.0/24") })
	kit.WaitFor(t, "a subflow from the other", kit.Limit, func() bool { return flows("10.74.0.10/32") })
	old.Signal(syscall.SIGTERM)
	old.Wait(kit.Limit)
	s.Server.Run(t, "ip", "addr", "del", kit.ServerAddr+"/24", "dev", "s0")
	s.Server.Addr(t, "s0", "10.75.0.1/24")
	moved := time.Now()
	options[1] = "opt router 10.75.0.1"
	s.Server.Udhcpd(t, "s0", "10.75.0.50", "10.75.0.60", seconds, options...)
	kit.WaitFor(t, "an address of the new network", 10*kit.Limit, func() bool {
		l := leased(t, name)
		return l != nil && strings.HasPrefix(l.Lease.Addr, "10.75.0.")
	})
	t.Logf("an address of the new network %v after the server was there, with a lease of %d s", time.Since(moved).Round(10*time.Millisecond), seconds)
	kit.WaitFor(t, "a subflow from the new address", kit.Limit, func() bool { return flows("10.75.0.0/24") })
	ends := kit.Lklctl(t, "-n", name, "exec", "ip", "mptcp", "endpoint")
	if !strings.Contains(ends, "10.75.0.") || strings.Contains(ends, "10.73.0.") || !strings.Contains(ends, "10.74.0.10") {
		t.Errorf("endpoints:\n%s", ends)
	}
	if !p.Running() {
		t.Error("the transfer was over before the move was")
	}
	r := p.Wait(10 * kit.Limit)
	if r.Status != 0 || !strings.HasPrefix(r.Stdout, s.sum) {
		t.Errorf("the transfer: %v, want %s", r, s.sum)
	}
}
