// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/dhcp"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/plan"
	"github.com/lklrun/lklrun/internal/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// leaser keeps a link supplied with addresses from its network.
type leaser struct {
	r      *run
	l      *liveLink
	client *dhcp.Client

	changed chan struct{} // something did; holds one
	stop    func()
}

// leases is the service of a link that gets addresses from its network.
func leases(r *run, l *liveLink) service {
	if !l.Leases() {
		return nil
	}
	s := &leaser{r: r, l: l, changed: make(chan struct{}, 1)}
	s.client = dhcp.New(r.conn, dhcp.Link{
		Name: stackDevice(l.Link), Metric: l.Metric(), V4: l.DHCP, V6: l.DHCP6, SLAAC: l.SLAAC, IPv6: l.IPv6(),
	}, dhcp.Options{
		Hostname: leaseName(r.dir.Name), Log: r.log, Tell: r.opts.Tell,
		Changed: func() {
			select {
			case s.changed <- struct{}{}:
			default: // somebody is about to look
			}
		},
	})
	return s
}

// stackDevice is the name of the device in the stack that has the link's
// addresses.
func stackDevice(l *plan.Link) string {
	top := stackLink(l)
	return top.Top()
}

// leaseName is what servers are told that we are called. The host's own name
// would take that away from the host, where the server keeps a list of names.
func leaseName(instance string) string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	host, _, _ = strings.Cut(host, ".")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, host+"-"+instance)
	return strings.Trim(name[:min(len(name), 63)], "-")
}

// Start begins to look for addresses; awaitLeases waits for them.
func (s *leaser) Start(ctx context.Context) error {
	if err := s.client.Start(ctx); err != nil {
		return err
	}
	s.r.leased.add(s)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-s.changed:
				s.r.leasesChanged()
			case <-done:
				return
			}
		}
	}()
	s.stop = func() {
		close(done)
		<-ended
	}
	return nil
}

// Stop gives the leases back.
func (s *leaser) Stop() {
	s.client.Stop()
	s.stop()
	s.r.leased.remove(s)
}

// leasers are the running ones of a run, in their links' order.
type leasers struct {
	mu  sync.Mutex
	all []*leaser

	writing sync.Mutex // held while files are written
}

func (k *leasers) add(s *leaser) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, s)
}

func (k *leasers) remove(s *leaser) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(o *leaser) bool { return o == s })
}

func (k *leasers) list() []*leaser {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

// leasesChanged brings to the run's files what the networks gave.
func (r *run) leasesChanged() {
	r.leased.writing.Lock()
	defer r.leased.writing.Unlock()
	clients := map[*liveLink]*dhcp.Client{}
	for _, s := range r.leased.list() {
		clients[s.l] = s.client
	}
	var names []plan.Names
	given := map[string][]dhcp.Status{}
	for _, l := range r.live.all() {
		n := plan.Names{Link: l.Link}
		if c := clients[l]; c != nil {
			n.Servers, n.Search = c.Resolver()
			given[l.Name] = c.Statuses()
		}
		names = append(names, n)
	}
	if r.plan.Resolv != "" {
		if err := r.dir.Rewrite(instance.ResolvFile, []byte(r.plan.ResolvConf(names))); err != nil {
			r.log.Debug("writing the command's name servers", "error", err)
		}
	}
	err := r.changeState(func(s *instance.State) {
		for n := range s.Interfaces {
			s.Interfaces[n].Leases = shownLeases(given[s.Interfaces[n].Name])
		}
	})
	if err != nil {
		r.log.Debug("writing the leases", "error", err)
	}
}

// shownLeases are leases as state.json has them.
func shownLeases(all []dhcp.Status) []instance.Lease {
	var shown []instance.Lease
	for _, x := range all {
		k := instance.Lease{Proto: x.Proto, State: x.State}
		if x.Lease != nil && x.Lease.Addr.IsValid() {
			k.Addr, k.Expires = x.Lease.Addr.String(), x.Lease.Expires
		}
		shown = append(shown, k)
	}
	return shown
}

// awaitLeases waits until every link has the addresses that it shall get. When
// that takes too long, a link that has any address will do for all.
func (r *run) awaitLeases(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, plan.LeaseLimit)
	defer cancel()
	any := false
	var late []string
	for _, l := range r.live.all() {
		any = any || len(l.Addrs) > 0
	}
	for _, s := range r.leased.list() {
		if s.client.Wait(limit) == nil {
			any = true
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		any = any || len(s.client.Missing()) < len(s.client.Statuses())
		late = append(late, s.late())
	}
	if len(late) > 0 && !any {
		return errors.New(late[0])
	}
	for _, text := range late {
		r.opts.Tell(text + "; going on without")
	}
	r.leasesChanged()
	return r.paths.Sync(ctx) // the first connection has all of them
}

// late says what a link has not got in time, and what can be done.
func (s *leaser) late() string {
	var whys []string
	for _, p := range s.client.Missing() {
		switch p {
		case dhcp.ProtoV4:
			whys = append(whys, "no DHCP server has given an address (ip=ADDRESS/PREFIX in place of dhcp needs none)")
		case dhcp.ProtoV6:
			whys = append(whys, "no DHCPv6 server has given an address (slaac or ip6=ADDRESS/PREFIX in place of dhcp6 need none)")
		case dhcp.ProtoRA:
			whys = append(whys, "no router has announced a prefix (ip6=ADDRESS/PREFIX in place of slaac needs none)")
		}
	}
	return fmt.Sprintf("%s (%s:%s): after %v %s", s.l.Name, s.l.Type, s.l.Host(), plan.LeaseLimit.Round(time.Second), strings.Join(whys, ", and "))
}

// heedRouters makes a device of the stack heed the routers of its network, or
// not, before it is up. Nobody who wrote its addresses down expects others there,
// nor a route that a neighbour announces.
func (r *run) heedRouters(ctx context.Context, device string, l *plan.Link, heed bool) error {
	if err := stacknet.MountFilesystems(ctx, r.conn); err != nil {
		return err
	}
	ra := map[string]string{"accept_ra": "0", "autoconf": "0"}
	switch {
	case heed:
		// 2: also for one who has switched forwarding on. The delay, up to a second
		// before each search for another host with the address, is for machines
		// that all boot at once.
		ra = map[string]string{"accept_ra": "2", "autoconf": "0", "use_tempaddr": "0", "addr_gen_mode": "0", "router_solicitation_delay": "0"}
		if l.SLAAC {
			ra["autoconf"] = "1"
		}
	case l.Type != config.TypeRaw:
		// Its link-local address is made of an Ethernet address of its own, which no
		// other has unless it has the IP addresses too. It would be looked for for a
		// second or two, and what watches addresses, a browser for instance, gives up
		// what it began before this one came.
		ra["accept_dad"] = "0"
	}
	for key, value := range ra {
		var missing *stacknet.SysctlError
		err := stacknet.SetSysctl(ctx, r.conn, "net/ipv6/conf/"+device+"/"+key, value)
		if errors.As(err, &missing) && !heed {
			continue // a stack without IPv6
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// heedRoutersOf does so for a link: for its device, or, once that is made, for
// the one that carries its VLAN.
func (r *run) heedRoutersOf(ctx context.Context, l *plan.Link, configured bool) error {
	heed := l.SLAAC || l.DHCP6
	switch {
	case !configured:
		return r.heedRouters(ctx, l.Name, l, heed && l.VLAN == 0)
	case l.VLAN != 0:
		return r.heedRouters(ctx, stackDevice(l), l, heed)
	}
	return nil
}
