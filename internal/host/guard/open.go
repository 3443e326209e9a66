// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/pkg/config"
)

// Config is the configuration of a Guard.
type Config struct {
	Name  string // of the instance
	Mode  string // config.GuardAuto, GuardNFT, GuardIPTables or GuardOff
	Ports Ports

	// Others lists the rules that other runs have recorded. Journal records
	// this run's rules before they are created.
	Others  func() ([]Rules, error)
	Journal func(Rules) error

	Tell func(string) // prints a line for the user
	Log  *slog.Logger
}

// Guard hides the stack's packets from the host's kernel, on any number of
// devices, which can change at run time. The rules outlive the Guard until
// Remove removes them.
type Guard struct {
	cfg Config

	mu       sync.Mutex // held while rules change
	set      Set
	method   Method // empty: not chosen yet
	backend  backend
	earlier  Count // count of rules that no longer exist
	last     Count // count of the present rules at the last check
	restored int
	failed   bool // the last attempt to restore them failed, and was reported

	watching *watching
}

// New returns a Guard that guards nothing yet.
func New(cfg Config) *Guard {
	return &Guard{cfg: cfg, set: Set{Name: cfg.Name, Ports: cfg.Ports}}
}

// Methods lists the methods that a mode allows, best first.
func Methods(mode string) []Method {
	byNFT := []Method{NFTIngress, NFTPrerouting}
	byIPTables := []Method{IPTRaw, IPTMangle, IPTInput}
	switch mode {
	case config.GuardNFT:
		return byNFT
	case config.GuardIPTables:
		return byIPTables
	case config.GuardOff:
		return nil
	}
	return slices.Concat(byNFT, byIPTables)
}

// Choose returns the method that would be tried first, without trying it.
func Choose(ctx context.Context, mode string) (Method, error) {
	var errs []error
	for _, m := range Methods(mode) {
		err := backendOf(m).available(ctx)
		if err == nil {
			return m, nil
		}
		errs = append(errs, err)
	}
	return "", noMethod(mode, errs)
}

// noMethod returns the error that no method works, with the remedy.
func noMethod(mode string, errs []error) error {
	const otherwise = "choose an address that is not the host's, or pass --rst-guard off and add the rules that --rst-guard print shows"
	var said []string
	for _, e := range errs {
		if errors.Is(e, unix.EPERM) {
			return exit.Usagef("--rst-guard %s: adding rules to the host's firewall requires CAP_NET_ADMIN; run lklrun as root, %s", mode, otherwise)
		}
		if !slices.Contains(said, e.Error()) {
			said = append(said, e.Error())
		}
	}
	return exit.Usagef("--rst-guard %s: %s; install nftables or iptables, %s", mode, strings.Join(said, "; "), otherwise)
}

// Add guards the addresses of an additional device.
func (g *Guard) Add(ctx context.Context, l Link) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	set := g.set
	set.Links = append(slices.Clone(g.set.Links), l)
	if g.cfg.Mode != config.GuardOff {
		if err := g.change(ctx, &set); err != nil {
			return fmt.Errorf("guarding %v: %w", l, err)
		}
	}
	g.set = set
	return nil
}

// Delete stops guarding a device.
func (g *Guard) Delete(ctx context.Context, l Link) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	set := g.set
	i := slices.IndexFunc(set.Links, func(o Link) bool { return o.Device == l.Device && slices.Equal(o.Addrs, l.Addrs) })
	if i < 0 {
		return nil
	}
	set.Links = slices.Delete(slices.Clone(set.Links), i, i+1)
	if g.backend != nil {
		if err := g.change(ctx, &set); err != nil {
			return fmt.Errorf("removing the guard of %v: %w", l, err)
		}
	}
	g.set = set
	return nil
}

// change replaces the present rules by those of set.
func (g *Guard) change(ctx context.Context, set *Set) error {
	if g.backend == nil {
		return g.begin(ctx, set)
	}
	_, counted, err := g.backend.look(ctx, &g.set)
	if err != nil {
		return err
	}
	if len(set.Links) == 0 {
		err = g.backend.remove(ctx, &Rules{Method: g.method, Name: set.Name, Tag: set.tag()})
	} else {
		err = g.backend.apply(ctx, set)
	}
	if err == nil {
		g.earlier.add(counted)
		g.last = Count{}
	}
	return err
}

// begin creates the first rules with the first method that works.
func (g *Guard) begin(ctx context.Context, set *Set) error {
	var errs []error
	for _, m := range Methods(g.cfg.Mode) {
		err := g.try(ctx, m, set)
		if err == nil {
			g.method, g.backend = m, backendOf(m)
			g.cfg.Log.Debug("guarding shared addresses", "method", m, "ports", set.Ports)
			return nil
		}
		var foreign *foreignError
		if errors.As(err, &foreign) {
			return err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return noMethod(g.cfg.Mode, errs)
}

func (g *Guard) try(ctx context.Context, m Method, set *Set) error {
	b := backendOf(m)
	if err := b.available(ctx); err != nil {
		return err
	}
	r := Rules{Method: m, Name: set.Name, Tag: set.tag()}
	if err := b.prepare(ctx, &r); err != nil {
		return err
	}
	others, err := g.cfg.Others()
	if err != nil {
		return err
	}
	for _, o := range others { // the run that ends last removes the objects that the first one made
		if o.Method == m {
			r.Made = append(r.Made, o.Made...)
		}
	}
	slices.Sort(r.Made)
	r.Made = slices.Compact(r.Made)
	if err := g.cfg.Journal(r); err != nil {
		return err
	}
	if err := b.apply(ctx, set); err != nil {
		return errors.Join(err, b.remove(context.WithoutCancel(ctx), &r))
	}
	return nil
}

// Status is the present state of a Guard.
type Status struct {
	Mode     string   `json:"mode"`             // --rst-guard: auto, nft, iptables, off or print
	Method   Method   `json:"method,omitempty"` // method in use; empty: off
	Ports    Ports    `json:"ports"`            // ports of the stack
	Links    []Link   `json:"links"`            // guarded devices and addresses
	Rules    []string `json:"rules"`            // firewall rules
	Kept     Count    `json:"kept"`             // traffic hidden from the host
	Restored int      `json:"restored"`         // number of times that missing rules were restored
}

// Status returns the present state.
func (g *Guard) Status(ctx context.Context) (*Status, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &Status{Mode: g.cfg.Mode, Method: g.method, Ports: g.set.Ports, Links: g.set.Links, Restored: g.restored, Rules: []string{}}
	if g.backend == nil {
		return s, nil
	}
	if err := g.check(ctx); err != nil {
		return nil, err
	}
	s.Restored, s.Kept = g.restored, g.earlier
	s.Kept.add(g.last)
	var b strings.Builder
	if err := g.backend.print(&b, &g.set); err != nil {
		return nil, err
	}
	s.Rules = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	return s, nil
}
