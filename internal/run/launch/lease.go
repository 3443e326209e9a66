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

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// leaser gets and renews the addresses of a link from its network.
type leaser struct {
	r      *run
	l      *liveLink
	client *dhcp.Client

	changed chan struct{} // signals a change; capacity 1
	stop    func()
}

// leases returns the service of a link that gets addresses from its network.
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
			default: // a signal is already pending
			}
		},
	})
	return s
}

// stackDevice returns the name of the device in the stack that has the link's
// addresses.
func stackDevice(l *plan.Link) string {
	top := stackLink(l)
	return top.Top()
}

// leaseName returns the host name that is sent to servers. It differs from the
// host's own name: a server that registers names would reassign that name to
// the stack.
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

// Start starts to request addresses. awaitLeases waits for them.
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

// Stop releases the leases.
func (s *leaser) Stop() {
	s.client.Stop()
	s.stop()
	s.r.leased.remove(s)
}

// leasers are the active leasers of a run, in the order of their links.
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

// leasesChanged updates the run's files with the leases.
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

// shownLeases converts leases to their form in state.json.
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

// awaitLeases waits until every link has its expected addresses. After the
// timeout, one link with any address is enough.
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
	return r.paths.Sync(ctx) // so that the first connection can use all paths
}

// late describes the missing addresses of a link after the timeout, and the
// remedy.
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

// heedRouters makes a device of the stack process or ignore router
// advertisements, before it is up. A user who configured addresses expects no
// others, and no route that a neighbour announces.
func (r *run) heedRouters(ctx context.Context, device string, l *plan.Link, heed bool) error {
	if err := stacknet.MountFilesystems(ctx, r.conn); err != nil {
		return err
	}
	ra := map[string]string{"accept_ra": "0", "autoconf": "0"}
	switch {
	case heed:
		// accept_ra=2 also works with forwarding enabled. The delay of
		// up to a second before a solicitation is for machines that all
		// boot at once.
		ra = map[string]string{"accept_ra": "2", "autoconf": "0", "use_tempaddr": "0", "addr_gen_mode": "0", "router_solicitation_delay": "0"}
		if l.SLAAC {
			ra["autoconf"] = "1"
		}
	case l.Type != config.TypeRaw:
		// Duplicate address detection is unnecessary here: the
		// link-local address derives from an Ethernet address that no
		// other host has, unless it also has the same IP addresses. The
		// check would take a second or two. Programs that watch
		// addresses, such as browsers, abort what they started before
		// the address appeared.
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

// heedRoutersOf calls heedRouters for a link's device or, once it exists, for
// the device of its VLAN.
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
