// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/diag/ask"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// unguardLimit bounds the change of rules when a link is removed.
const unguardLimit = 10 * time.Second

// sharing is the state of a run that shares addresses with the host.
type sharing struct {
	mu      sync.Mutex
	guard   *guard.Guard // nil: the run shares no address yet
	ports   guard.Ports
	links   []guard.Link
	serving bool // the stack runs
}

// share reserves the run's ports, once. The addresses more are not in the plan.
// If the ports are already reserved, share checks the run's server ports at
// these addresses, which no server of the host may use.
func (r *run) share(ctx context.Context, more ...netip.Addr) error {
	s := &r.sharing
	s.mu.Lock()
	defer s.mu.Unlock()
	want := wish(r.plan)
	want.Addrs = append(want.Addrs, more...)
	if s.guard != nil {
		sockets, err := guard.Sockets(ctx, want.Listen)
		if err != nil {
			return err
		}
		return wished(guard.CheckListen(want.Listen, more, sockets))
	}
	got, err := guard.Reserve(ctx, want, r.portsOfOthers, func(ports string) error {
		return r.journal.Add(hostnet.UndoReserve(r.dir.Name, ports))
	})
	if err != nil {
		return wished(err)
	}
	if got.Note != "" {
		r.opts.Tell(got.Note)
	}
	s.ports = got.Ports
	s.guard = guard.New(guard.Config{
		Name: r.dir.Name, Mode: r.plan.RSTGuard, Ports: got.Ports, Tell: r.opts.Tell, Log: r.log,
		Others: r.rulesOfOthers,
		Journal: func(rules guard.Rules) error {
			u, err := hostnet.UndoGuard(rules)
			if err != nil {
				return err
			}
			return r.journal.Add(u)
		},
	})
	if s.serving {
		return r.serveSharing(ctx)
	}
	return nil
}

// wish returns the ports that a run needs from the host.
func wish(p *plan.Plan) guard.Wish {
	w := guard.Wish{First: p.PortRange.First, Last: p.PortRange.Last, Size: p.PortRange.Len(), Listen: p.ListenPorts()}
	for i := range p.Links {
		w.Addrs = append(w.Addrs, p.Links[i].Shared...)
	}
	return w
}

// wished turns an error that the user can fix into a *RefusedError.
func wished(err error) error {
	var w *guard.WishError
	if errors.As(err, &w) {
		return &RefusedError{err}
	}
	return err
}

// guardLink hides packets for a link's shared addresses from the host, once the
// link's packet socket receives them. The run's ports must be reserved.
func (r *run) guardLink(ctx context.Context, l *plan.Link) (end func(), err error) {
	s, shared := &r.sharing, guard.Link{Device: l.Device, Addrs: l.Shared}
	if err := s.guard.Add(ctx, shared); err != nil {
		return nil, wished(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, shared)
	r.refuseInside(ctx)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), unguardLimit)
		defer cancel()
		if err := s.guard.Delete(ctx, shared); err != nil { // if it fails, the journal still has the rules
			r.log.Debug("taking rules away", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.IndexFunc(s.links, func(o guard.Link) bool { return o.Device == shared.Device }); i >= 0 {
			s.links = slices.Delete(s.links, i, i+1)
		}
		r.refuseInside(ctx)
	}, nil
}

// refuseInside makes the stack refuse to use the host's ports at the shared
// addresses. A stack kernel without nftables sends from them, but gets no
// answer. The caller holds sharing.mu.
func (r *run) refuseInside(ctx context.Context) {
	if !r.sharing.serving {
		return
	}
	if err := guard.Inside(ctx, r.conn, r.sharing.links, r.sharing.ports); err != nil {
		r.log.Debug("refusing the host's ports in the stack", "error", err)
	}
}

func (r *run) portsOfOthers() ([]string, error) {
	undos, err := undo.Others(r.dir, hostnet.OpReservePorts, r.log)
	var ports []string
	for _, u := range undos {
		ports = append(ports, u.New)
	}
	return ports, err
}

func (r *run) rulesOfOthers() ([]guard.Rules, error) {
	undos, err := undo.Others(r.dir, hostnet.OpGuard, r.log)
	var all []guard.Rules
	for _, u := range undos {
		if rules, err := u.Rules(); err == nil { // else the rules are of another version
			all = append(all, rules)
		}
	}
	return all, err
}

// guardService sets the stack's port range and watches the rules while the
// stack runs.
type guardService struct{ r *run }

// Start applies the present state. A run may get its first shared address
// later.
func (g *guardService) Start(ctx context.Context) error {
	s := &g.r.sharing
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = true
	ask.Handle(&g.r.asked, ask.Guard, func(ctx context.Context, _ struct{}, _ *os.File) (guard.Status, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.guard == nil {
			return guard.Status{}, nil
		}
		st, err := s.guard.Status(ctx)
		if err != nil {
			return guard.Status{}, err
		}
		return *st, nil
	})
	if s.guard == nil {
		return nil
	}
	return g.r.serveSharing(ctx)
}

// Stop leaves the rules in place: the stack still sends, and gets answers.
func (g *guardService) Stop() {
	s := &g.r.sharing
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = false
	if s.guard != nil {
		s.guard.Stop()
	}
}

// serveSharing performs the steps that need a running stack. The caller holds
// sharing.mu.
func (r *run) serveSharing(ctx context.Context) error {
	p := r.sharing.ports
	settings := []config.Sysctl{{Name: "net.ipv4.ip_local_port_range", Value: fmt.Sprintf("%d %d", p.First, p.Last)}}
	// With few ports, one in TIME-WAIT for a minute would be missed. With
	// TCP timestamps, a new connection may use it after one second (RFC
	// 6191).
	reuse := config.Sysctl{Name: "net.ipv4.tcp_tw_reuse", Value: "1"}
	if !slices.ContainsFunc(r.plan.Sysctls, func(s config.Sysctl) bool { return s.Name == reuse.Name }) {
		settings = append(settings, reuse)
	}
	for _, s := range settings {
		if err := stacknet.SetSysctl(ctx, r.conn, s.Name, s.Value); err != nil {
			return err
		}
	}
	r.refuseInside(ctx)
	return r.sharing.guard.Start(ctx)
}

// PrintGuard writes the rules that a run of the plan would create on the host.
func PrintGuard(ctx context.Context, w io.Writer, p *plan.Plan) error {
	set := guard.Set{Name: p.Name}
	if set.Name == "" {
		set.Name = p.BaseName
	}
	for i := range p.Links {
		if l := &p.Links[i]; len(l.Shared) > 0 {
			set.Links = append(set.Links, guard.Link{Device: l.Device, Addrs: l.Shared})
		}
	}
	if len(set.Links) == 0 {
		_, err := fmt.Fprintln(w, "# no interface shares an address with the host: there is nothing to guard")
		return err
	}
	method, err := guard.Choose(ctx, p.RSTGuard)
	if err != nil { // showing the rules needs no privilege
		method = guard.NFTIngress
	}
	if set.Ports, err = guard.Preview(ctx, wish(p)); err != nil {
		return wished(err)
	}
	return guard.Print(w, method, set)
}
