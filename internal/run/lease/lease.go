// SPDX-License-Identifier: Apache-2.0

// Package lease obtains the addresses of links from their networks, by DHCP and
// router advertisements.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Options are the parameters of Leases.
type Options struct {
	Conn    *stackconn.Conn
	Name    string // name of the instance
	Log     *slog.Logger
	Tell    func(string) // prints a line for the user
	Changed func()       // called after a lease has changed
}

// Leases are the leases of a run, in the order of its links.
type Leases struct {
	Options

	mu  sync.Mutex
	all []*Lease
}

// Lease obtains and renews the addresses of a link from its network.
type Lease struct {
	k      *Leases
	l      *plan.Link
	device string // device of the stack that gets the addresses
	client *dhcp.Client

	changed chan struct{} // signals a change; capacity 1
	stop    func()
}

// Add creates the lease of a link. The lease is in k from its Start until its
// Stop.
func (k *Leases) Add(l *plan.Link, device string) *Lease {
	s := &Lease{k: k, l: l, device: device, changed: make(chan struct{}, 1)}
	s.client = dhcp.New(k.Conn, dhcp.Link{
		Name: device, Metric: l.Metric(), V4: l.DHCP, V6: l.DHCP6, SLAAC: l.SLAAC, IPv6: l.IPv6(),
	}, dhcp.Options{
		Hostname: hostname(k.Name), Log: k.Log, Notify: k.Tell,
		Changed: func() {
			select {
			case s.changed <- struct{}{}:
			default: // a signal is already pending
			}
		},
	})
	return s
}

// hostname returns the host name that is sent to servers. It differs from the
// host's own name, because a server that registers names would otherwise assign
// the host's name to the stack.
func hostname(instance string) string {
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

// Start starts to request addresses. It does not wait for them; Await does.
func (s *Lease) Start(ctx context.Context) error {
	if err := s.client.Start(ctx); err != nil {
		return err
	}
	s.k.add(s)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-s.changed:
				s.k.Changed()
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
func (s *Lease) Stop() {
	s.client.Stop()
	s.stop()
	s.k.remove(s)
}

func (k *Leases) add(s *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, s)
}

func (k *Leases) remove(s *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(o *Lease) bool { return o == s })
}

func (k *Leases) list() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

// Client returns the client of a link, or nil if the link has no lease.
func (k *Leases) Client(l *plan.Link) *dhcp.Client {
	for _, s := range k.list() {
		if s.l == l {
			return s.client
		}
	}
	return nil
}

// Await waits until every link has its expected addresses. After the timeout,
// one link with any address is enough. configured means that a link has an
// address that is not from its network.
func (k *Leases) Await(ctx context.Context, configured bool) error {
	limit, cancel := context.WithTimeout(ctx, plan.LeaseLimit)
	defer cancel()
	any := configured
	var late []string
	for _, s := range k.list() {
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
		k.Tell(text + "; continuing without it")
	}
	return nil
}

// late describes the addresses that a link still lacks after the timeout, and
// the remedy.
func (s *Lease) late() string {
	var whys []string
	for _, p := range s.client.Missing() {
		switch p {
		case dhcp.ProtoV4:
			whys = append(whys, "no DHCP server has assigned an address (or use ip=ADDRESS/PREFIX instead of dhcp)")
		case dhcp.ProtoV6:
			whys = append(whys, "no DHCPv6 server has assigned an address (or use slaac or ip6=ADDRESS/PREFIX instead of dhcp6)")
		case dhcp.ProtoRA:
			whys = append(whys, "no router has announced a prefix (or use ip6=ADDRESS/PREFIX instead of slaac)")
		}
	}
	return fmt.Sprintf("%s (%s:%s): after %v %s", s.l.Name, s.l.Type, s.l.Host(), plan.LeaseLimit.Round(time.Second), strings.Join(whys, ", and "))
}
