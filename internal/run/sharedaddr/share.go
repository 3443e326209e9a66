// SPDX-License-Identifier: Apache-2.0

// Package sharedaddr lets a run share addresses with the host. It reserves ports, and prevents
// the host from answering packets for the stack.
package sharedaddr

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"

	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// unguardLimit bounds the time to change the rules when a link is removed.
const unguardLimit = 10 * time.Second

// Options are the parameters of a Sharing.
type Options struct {
	Plan    *plan.Plan
	Dir     *instance.Dir
	Journal func(netdev.Undo) error // receives the undo of each change before the change
	Log     *slog.Logger
	Tell    func(string) // prints a line for the user
}

// Sharing is the state of a run that shares addresses with the host, or that may do so
// later.
type Sharing struct {
	Options

	mu    sync.Mutex
	guard *guard.Guard // nil: the run shares no address yet
	ports guard.Ports
	links []guard.Link
	conn  *stackconn.Conn // nil: the stack is not running
}

// Reserve reserves the run's ports. more contains addresses that are not in the plan. If
// the ports are already reserved, Reserve only checks that no server of the host uses the
// run's server ports at these addresses.
func (s *Sharing) Reserve(ctx context.Context, more ...netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := wish(s.Plan)
	want.Addrs = append(want.Addrs, more...)
	if s.guard != nil {
		sockets, err := guard.Sockets(ctx, want.Listen)
		if err != nil {
			return err
		}
		return guard.CheckListen(want.Listen, more, sockets)
	}
	got, err := guard.Reserve(ctx, want, s.portsOfOthers, func(ports string) error {
		return s.Journal(netdev.UndoReserve(s.Dir.Name, ports))
	})
	if err != nil {
		return err
	}
	if got.Note != "" {
		s.Tell(got.Note)
	}
	s.ports = got.Ports
	s.guard = guard.New(guard.Config{
		Name: s.Dir.Name, Mode: s.Plan.RSTGuard, Ports: got.Ports, Tell: s.Tell, Log: s.Log,
		Others: s.rulesOfOthers,
		Journal: func(rules guard.Rules) error {
			u, err := netdev.UndoGuard(rules)
			if err != nil {
				return err
			}
			return s.Journal(u)
		},
	})
	if s.conn != nil {
		return s.serve(ctx)
	}
	return nil
}

// Share reserves the run's ports at the addresses that a link shares, and returns
// the filter for its packet socket.
func (s *Sharing) Share(ctx context.Context, l *plan.Link) ([]bpf.RawInstruction, error) {
	if err := s.Reserve(ctx, l.Shared...); err != nil {
		return nil, err
	}
	return guard.Filter(!l.RawIP, l.Shared, s.ports)
}

// wish returns the ports that a run requests from the host.
func wish(p *plan.Plan) guard.Wish {
	w := guard.Wish{First: p.PortRange.First, Last: p.PortRange.Last, Size: p.PortRange.Len(), Listen: p.ListenPorts()}
	for i := range p.Links {
		w.Addrs = append(w.Addrs, p.Links[i].Shared...)
	}
	return w
}

// Guard hides packets for a link's shared addresses from the host, as soon as the link's
// packet socket receives them. The run's ports must already be reserved.
func (s *Sharing) Guard(ctx context.Context, l *plan.Link) (end func(), err error) {
	shared := guard.Link{Device: l.Device, Addrs: l.Shared}
	if err := s.guard.Add(ctx, shared); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, shared)
	s.refuseInside(ctx)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), unguardLimit)
		defer cancel()
		if err := s.guard.Delete(ctx, shared); err != nil { // if this fails, the journal still contains the rules
			s.Log.Debug("deleting rules", "error", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.IndexFunc(s.links, func(o guard.Link) bool { return o.Device == shared.Device }); i >= 0 {
			s.links = slices.Delete(s.links, i, i+1)
		}
		s.refuseInside(ctx)
	}, nil
}

// refuseInside makes the stack refuse to use the host's ports at the shared addresses.
// Without nftables, a stack can still send from these ports, but it gets no answer. The
// caller must hold s.mu.
func (s *Sharing) refuseInside(ctx context.Context) {
	if s.conn == nil {
		return
	}
	if err := guard.Inside(ctx, s.conn, s.links, s.ports); err != nil {
		s.Log.Debug("blocking the host's ports in the stack", "error", err)
	}
}

func (s *Sharing) portsOfOthers() ([]string, error) {
	undos, err := undo.Others(s.Dir, netdev.OpReservePorts, s.Log)
	var ports []string
	for _, u := range undos {
		ports = append(ports, u.New)
	}
	return ports, err
}

func (s *Sharing) rulesOfOthers() ([]guard.Rules, error) {
	undos, err := undo.Others(s.Dir, netdev.OpGuard, s.Log)
	var all []guard.Rules
	for _, u := range undos {
		if rules, err := u.Rules(); err == nil { // an error means that the rules are from another version
			all = append(all, rules)
		}
	}
	return all, err
}

// Serve sets the stack's port range and watches the rules. The stack must be running. A
// run that shares no address yet may do so later.
func (s *Sharing) Serve(ctx context.Context, conn *stackconn.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	if s.guard == nil {
		return nil
	}
	return s.serve(ctx)
}

// Ask answers ask.Guard.
func (s *Sharing) Ask(ctx context.Context, _ struct{}, _ *os.File) (guard.Status, error) {
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
}

// Stop stops watching the rules. The rules remain in place, because the stack still sends
// data and receives answers.
func (s *Sharing) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	if s.guard != nil {
		s.guard.Stop()
	}
}

// serve performs the steps that require a running stack. The caller must hold s.mu.
func (s *Sharing) serve(ctx context.Context) error {
	p := s.ports
	settings := []config.Sysctl{{Name: "net.ipv4.ip_local_port_range", Value: fmt.Sprintf("%d %d", p.First, p.Last)}}
	// The port range is small, so ports that stay in TIME-WAIT for a minute could run
	// out. With TCP timestamps, a new connection may reuse such a port after one
	// second (RFC 6191).
	reuse := config.Sysctl{Name: "net.ipv4.tcp_tw_reuse", Value: "1"}
	if !slices.ContainsFunc(s.Plan.Sysctls, func(k config.Sysctl) bool { return k.Name == reuse.Name }) {
		settings = append(settings, reuse)
	}
	for _, k := range settings {
		if err := stacknet.SetSysctl(ctx, s.conn, k.Name, k.Value); err != nil {
			return err
		}
	}
	s.refuseInside(ctx)
	return s.guard.Start(ctx)
}

// Print writes the rules that a run of the plan would create on the host.
func Print(ctx context.Context, w io.Writer, p *plan.Plan) error {
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
		_, err := fmt.Fprintln(w, "# no interface shares an address with the host, so no rules are required")
		return err
	}
	method, err := guard.Choose(ctx, p.RSTGuard)
	if err != nil { // no privilege is necessary to show the rules
		method = guard.NFTIngress
	}
	if set.Ports, err = guard.Preview(ctx, wish(p)); err != nil {
		return err
	}
	return guard.Print(w, method, set)
}
