// SPDX-License-Identifier: Apache-2.0

package paths_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/paths"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// world is a stack that applies all changes, as far as Reconcile can see.
type world struct {
	state paths.State
	wants []paths.Want
	mem   paths.Memory
	now   time.Time
	story strings.Builder // the golden text
}

const up = unix.IFF_UP | unix.IFF_LOWER_UP

// scene changes the world and records the results until no more changes are
// needed.
func (w *world) scene(what string, change func()) {
	fmt.Fprintf(&w.story, "== %s\n", what)
	change()
	for n, quiet := 0, 0; quiet < 3; n++ {
		if n == 10 {
			w.story.WriteString("it does not end\n")
			return
		}
		w.now = w.now.Add(paths.Settle / 2)
		changes, notes := paths.Reconcile(&w.state, w.wants, &w.mem, w.now)
		for _, n := range notes {
			fmt.Fprintf(&w.story, "note: %s\n", n)
		}
		for _, c := range changes {
			fmt.Fprintln(&w.story, c)
			w.apply(c)
		}
		if quiet++; len(changes) > 0 {
			quiet = 0
			fmt.Fprintln(&w.story, "--")
		}
	}
}

func (w *world) apply(c paths.Change) {
	s := &w.state
	same := func(r *stacknet.Route) func(stacknet.Route) bool {
		return func(o stacknet.Route) bool { return o.Table == r.Table && o.Dst == r.Dst && o.Metric == r.Metric }
	}
	switch {
	case c.SetRoute != nil:
		s.Routes = append(slices.DeleteFunc(s.Routes, same(c.SetRoute)), *c.SetRoute)
	case c.DelRoute != nil:
		s.Routes = slices.DeleteFunc(s.Routes, same(c.DelRoute))
	case c.AddRule != nil:
		s.Rules = append(s.Rules, *c.AddRule)
	case c.DelRule != nil:
		s.Rules = slices.DeleteFunc(s.Rules, func(r stacknet.Rule) bool { return r == *c.DelRule })
	case c.AddEndpoint != nil:
		e := *c.AddEndpoint
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(o stacknet.Endpoint) bool {
			if o.Addr == e.Addr { // it replaces the kernel's own endpoint
				e.ID = o.ID
			}
			return o.Addr == e.Addr
		})
		s.Endpoints = append(s.Endpoints, e)
	case c.DelEndpoint != nil:
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e stacknet.Endpoint) bool { return e.ID == c.DelEndpoint.ID })
	}
}

// link adds an interface with the wishes of want, except the name.
func (w *world) link(index int, flags uint32, want paths.Want) {
	want.Name = fmt.Sprintf("eth%d", index-2)
	w.state.Links = append(w.state.Links, stacknet.LinkState{Index: index, Name: want.Name, Flags: flags})
	w.wants = append(w.wants, want)
}

func (w *world) carrier(index int, on bool) {
	for i := range w.state.Links {
		if l := &w.state.Links[i]; l.Index == index {
			l.Flags = unix.IFF_UP
			if on {
				l.Flags = up
			}
		}
	}
}

// addr adds an address to an interface, with the route to its network, as the
// kernel does.
func (w *world) addr(index int, prefix string, flags uint32) {
	p := netip.MustParsePrefix(prefix)
	w.state.Addrs = append(w.state.Addrs, stacknet.Address{IfIndex: index, Prefix: p, Flags: flags})
	if !p.IsSingleIP() {
		r := stacknet.Route{Table: unix.RT_TABLE_MAIN, Dst: p.Masked(), Ifindex: index, Proto: unix.RTPROT_KERNEL}
		if p.Addr().Is4() {
			r.Src, r.Scope = p.Addr(), unix.RT_SCOPE_LINK
		}
		w.state.Routes = append(w.state.Routes, r)
	}
}

func (w *world) unaddr(addr string) {
	a := netip.MustParseAddr(addr)
	w.state.Addrs = slices.DeleteFunc(w.state.Addrs, func(o stacknet.Address) bool {
		if o.Prefix.Addr() != a {
			return false
		}
		w.state.Routes = slices.DeleteFunc(w.state.Routes, func(r stacknet.Route) bool { return r.Dst == o.Prefix.Masked() && r.Table == unix.RT_TABLE_MAIN })
		return true
	})
}

// route adds a route to the main table.
func (w *world) route(r stacknet.Route) {
	r.Table = unix.RT_TABLE_MAIN
	w.state.Routes = append(w.state.Routes, r)
}

func via(dst, gw string, index, metric int) stacknet.Route {
	return stacknet.Route{Dst: netip.MustParsePrefix(dst), Gateway: netip.MustParseAddr(gw), Ifindex: index, Metric: metric, Proto: unix.RTPROT_STATIC}
}

// two creates two interfaces, each with an address and a gateway.
func two(w *world) {
	for n := range 2 {
		w.link(n+2, up, paths.Want{Table: 100 + n, Endpoint: stacknet.EndpointSubflow})
		w.addr(n+2, fmt.Sprintf("10.%d.0.2/24", n+1), 0)
		w.route(via("0.0.0.0/0", fmt.Sprintf("10.%d.0.1", n+1), n+2, 100+n))
	}
}

var update = flag.Bool("update", false, "write testdata")

func endpointOf(w *world, addr string) *stacknet.Endpoint {
	a := netip.MustParseAddr(addr)
	for i := range w.state.Endpoints {
		if e := &w.state.Endpoints[i]; e.Addr == a {
			return e
		}
	}
	return nil
}

// Each story must match testdata/NAME.txt exactly.
func TestReconcile(t *testing.T) {
	for name, tell := range map[string]func(w *world){
		"handover": func(w *world) {
			w.scene("two links", func() { two(w) })
			w.scene("eth0 loses its carrier", func() { w.carrier(2, false) })
			w.scene("it is back", func() { w.carrier(2, true) })
			w.scene("eth1 loses its carrier", func() { w.carrier(3, false) })
			w.scene("eth0 too: the last path is left", func() { w.carrier(2, false) })
			w.scene("eth1 is back: eth0 is left when eth1 is there", func() { w.carrier(3, true) })
			w.scene("eth0 is back", func() { w.carrier(2, true) })
			w.scene("what is behind eth0 is away", func() { w.wants[0].Cut = true })
			w.scene("eth0 is deleted", func() {
				w.unaddr("10.1.0.2")
				w.state.Links = w.state.Links[1:]
				w.state.Routes = slices.DeleteFunc(w.state.Routes, func(r stacknet.Route) bool { return r.Ifindex == 2 })
			})
		},
		"addresses": func(w *world) {
			w.scene("a link without address", func() {
				w.link(2, up, paths.Want{Table: 100, Endpoint: stacknet.EndpointSubflow | stacknet.EndpointBackup})
			})
			w.scene("a lease", func() {
				w.addr(2, "10.1.0.2/24", 0)
				w.route(via("0.0.0.0/0", "10.1.0.1", 2, 0))
			})
			w.scene("a further network behind another router", func() { w.route(via("10.77.0.0/16", "10.1.0.9", 2, 0)) })
			w.scene("the lease is for another network", func() {
				w.unaddr("10.1.0.2")
				w.addr(2, "10.9.0.2/24", 0)
				w.state.Routes = slices.DeleteFunc(w.state.Routes, func(r stacknet.Route) bool { return r.Table == unix.RT_TABLE_MAIN && r.Gateway.IsValid() })
				w.route(via("0.0.0.0/0", "10.9.0.1", 2, 0))
			})
			w.scene("an address of the link's own, and one that may be somebody else's", func() {
				w.addr(2, "fe80::2/64", 0)
				w.addr(2, "2001:db8::2/64", unix.IFA_F_TENTATIVE)
			})
			w.scene("it is ours", func() {
				for i := range w.state.Addrs {
					w.state.Addrs[i].Flags = 0
				}
			})
			w.scene("two routers", func() {
				low, high := via("::/0", "fe80::1", 2, 1024), via("::/0", "fe80::9", 2, 1024)
				low.Pref, high.Pref = 3, 1
				w.route(low)
				w.route(high)
			})
			w.scene("it is not to be used any more", func() {
				for i := range w.state.Addrs {
					if w.state.Addrs[i].Prefix.Addr() == netip.MustParseAddr("2001:db8::2") {
						w.state.Addrs[i].Flags = unix.IFA_F_DEPRECATED
					}
				}
			})
		},
		"others": func(w *world) {
			w.scene("somebody has an endpoint, and the kernel one of its own", func() {
				two(w)
				w.state.Endpoints = []stacknet.Endpoint{
					{ID: 1, Addr: netip.MustParseAddr("10.3.0.2"), Flags: stacknet.EndpointSignal},
					{ID: 7, Addr: netip.MustParseAddr("10.2.0.2"), Flags: stacknet.EndpointImplicit},
				}
			})
			w.scene("somebody makes ours a backup, and it comes back as that", func() {
				endpointOf(w, "10.1.0.2").Flags |= stacknet.EndpointBackup
				w.carrier(2, false)
			})
			w.scene("it is back", func() { w.carrier(2, true) })
			w.scene("somebody takes ours away", func() {
				w.state.Endpoints = slices.DeleteFunc(w.state.Endpoints, func(e stacknet.Endpoint) bool { return e.Addr == netip.MustParseAddr("10.1.0.2") })
			})
			w.scene("it stays away", func() { w.carrier(2, false) })
			w.scene("for good", func() { w.carrier(2, true) })
			w.scene("a route of somebody's in the table of eth0", func() {
				r := via("10.88.0.0/16", "10.1.0.7", 2, 0)
				r.Table = 100
				w.state.Routes = append(w.state.Routes, r)
			})
			w.scene("another one to the same place is in main", func() { w.route(via("10.88.0.0/16", "10.1.0.8", 2, 0)) })
			w.scene("rules of ours are taken away", func() { w.state.Rules = nil })
		},
		"room": func(w *world) {
			w.scene("ten addresses", func() {
				w.link(2, up, paths.Want{Endpoint: stacknet.EndpointSubflow})
				for n := range 10 {
					w.addr(2, fmt.Sprintf("10.1.%d.2/32", n), 0)
				}
			})
			w.scene("one goes", func() { w.unaddr("10.1.3.2") })
		},
		"alone": func(w *world) {
			w.scene("two links", func() { two(w) })
			w.scene("eth0 is cut, and three connections have nothing else", func() {
				w.carrier(2, false)
				w.state.Alone = map[netip.Addr]int{netip.MustParseAddr("10.1.0.2"): 3}
			})
			w.scene("one is left", func() { w.state.Alone[netip.MustParseAddr("10.1.0.2")] = 1 })
			w.scene("it has got another path", func() { w.state.Alone = nil })
			w.scene("eth0 is back", func() { w.carrier(2, true) })
		},
		"plain": func(w *world) {
			w.scene("a stack without MPTCP", func() {
				two(w)
				w.wants[0].Endpoint, w.wants[1].Endpoint = 0, 0
			})
			w.scene("a link loses its carrier", func() { w.carrier(2, false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{now: time.Unix(1e9, 0)}
			tell(&w)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(w.story.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), w.story.String()); diff != "" {
				t.Errorf("(-want +got); go test ./internal/stack/paths -update writes what is right\n%s", diff)
			}
		})
	}
}

// A deleted endpoint comes back only after the peers have learned of its end.
// Without another path the peers cannot learn of it, so the endpoint comes back
// at once.
func TestReconcileQuickReturn(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{true, false} {
		w := &world{now: time.Unix(1e9, 0)}
		w.link(2, up, paths.Want{Table: 100, Endpoint: stacknet.EndpointSubflow})
		w.addr(2, "10.1.0.2/24", 0)
		w.link(3, up, paths.Want{Table: 101, Endpoint: stacknet.EndpointSubflow})
		w.addr(3, "10.2.0.2/24", 0)
		w.scene("start", func() {})
		step := func(after time.Duration) (texts []string) {
			w.now = w.now.Add(after)
			changes, _ := paths.Reconcile(&w.state, w.wants, &w.mem, w.now)
			for _, c := range changes {
				w.apply(c)
				if c.AddEndpoint != nil || c.DelEndpoint != nil {
					texts = append(texts, c.String())
				}
			}
			return texts
		}
		w.carrier(2, false)
		if diff := cmp.Diff([]string{"mptcp endpoint del id 1 (10.1.0.2)"}, step(time.Millisecond)); diff != "" {
			t.Fatal(diff)
		}
		w.carrier(2, true)
		w.carrier(3, others)
		if others {
			for _, after := range []time.Duration{0, paths.Settle / 2, paths.Settle/2 - 1} {
				if diff := cmp.Diff([]string(nil), step(after)); diff != "" {
					t.Errorf("too early: %s", diff)
				}
			}
		}
		if diff := cmp.Diff([]string{"mptcp endpoint add 10.1.0.2 id 1 subflow dev 2"}, step(1)); diff != "" {
			t.Errorf("another path: %v: %s", others, diff)
		}
	}
}
