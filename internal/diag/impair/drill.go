// SPDX-License-Identifier: Apache-2.0

// Package impair impairs the paths of a running stack step by step, as real networks do.
// The syntax of a step follows tc(8).
package impair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// State is the set of impairments of an interface.
type State struct {
	Carrier bool // the interface has carrier
	Ways    [2]stacknet.Impairment
}

// A Step changes the impairments that it names and keeps all others.
type Step struct {
	Iface   string
	Ways    []stacknet.Way // directions of impairments that have one
	Words   string         // the step as typed
	changes []func(*State, stacknet.Way)
	carrier *bool
	limit   bool // the step sets a limit
	seed    bool // the step sets a seed
}

// after returns the state after the step.
func (s Step) after(have State) State {
	for _, change := range s.changes {
		for _, w := range s.Ways {
			change(&have, w)
		}
	}
	for w := range have.Ways {
		if e := &have.Ways[w].Netem; e.None() {
			*e = stacknet.Netem{}
		}
	}
	if s.carrier != nil {
		have.Carrier = *s.carrier
	}
	return have
}

// StepError reports that a step is impossible.
type StepError struct{ words string }

// Error returns the reason.
func (e *StepError) Error() string { return e.words }

func stepErrorf(format string, args ...any) error { return &StepError{fmt.Sprintf(format, args...)} }

// from returns the state after the step, or an error if that state is impossible.
func (s Step) from(have State) (State, error) {
	want := s.after(have)
	iface := s.Iface
	for w, i := range want.Ways {
		e := i.Netem
		switch {
		case s.limit && e.None() && slices.Contains(s.Ways, stacknet.Way(w)):
			return want, stepErrorf("%s, direction %v: limit requires a delay or a rate; add one", iface, stacknet.Way(w))
		case s.seed && e.Jitter == 0 && e.Loss+e.Duplicate+e.Reorder+e.Corrupt == 0 && slices.Contains(s.Ways, stacknet.Way(w)):
			return want, stepErrorf("%s, direction %v: seed requires something random: jitter, loss, duplicate, reorder or corrupt; add one, such as `loss 1%%`", iface, stacknet.Way(w))
		case e.Reorder > 0 && e.Delay == 0:
			return want, stepErrorf("%s, direction %v: reorder requires a delay, which reordered packets skip; add one, such as `delay 20ms`", iface, stacknet.Way(w))
		case e.Jitter > e.Delay:
			return want, stepErrorf("%s, direction %v: the jitter %v is greater than the delay %v", iface, stacknet.Way(w), e.Jitter, e.Delay)
		}
	}
	return want, nil
}

// Change returns the state of an interface after the step, or an error if that state is
// impossible.
func (s Step) Change(have State, mtu int) (State, error) {
	want, err := s.from(have)
	want.setLimits(have, mtu)
	return want, err
}

// setLimits sets the size of queues that the user has not chosen.
func (want *State) setLimits(have State, mtu int) {
	for w := range want.Ways {
		e, had := &want.Ways[w].Netem, have.Ways[w].Netem
		computed := e.Limit == had.Limit && had.Limit == room(had, mtu)
		if !e.None() && (e.Limit == 0 || computed) {
			e.Limit = room(*e, mtu)
		}
	}
}

// Possible returns an error if the step is impossible on an interface without impairments.
func (s Step) Possible() error {
	_, err := s.from(State{Carrier: true})
	return err
}

// Queue sizes for netem. Its queue also contains the delayed packets.
const (
	queueTime   = 100 * time.Millisecond // length of the queue at the given rate
	fastest     = 10e9                   // in bit/s; if no rate is given, the queue holds the delayed packets at this rate
	leastQueue  = 20                     // in packets
	usualQueue  = 1000                   // in packets; default of tc(8)
	mostPackets = math.MaxInt32
)

// room returns the number of packets that netem must hold for its delay and its rate.
func room(e stacknet.Netem, mtu int) uint32 {
	rate, queue := float64(e.Rate), queueTime
	if e.Rate == 0 {
		rate, queue = fastest, 0
	}
	packets := rate / 8 * (e.Delay + e.Jitter + queue).Seconds() / float64(max(mtu, 1))
	least := float64(leastQueue)
	if e.Rate == 0 {
		least = usualQueue
	}
	return uint32(min(max(math.Ceil(packets), least), mostPackets))
}

// Paths changes the interfaces of a stack. It is not safe for concurrent use.
type Paths struct{ n *stacknet.Netlink }

// Open opens a Paths that works until ctx is done. The caller must close it.
func Open(ctx context.Context, c *stackconn.Conn) (*Paths, error) {
	n, err := stacknet.Open(ctx, c)
	return &Paths{n}, err
}

// Close closes p.
func (p *Paths) Close() { p.n.Close() }

// Path is an interface with its impairments.
type Path struct {
	stacknet.LinkState
	State
}

// List returns the interfaces that drills can use, with their impairments. It omits the
// loopback device and the devices that drills have created.
func (p *Paths) List() ([]Path, error) {
	links, err := p.n.Links()
	if err != nil {
		return nil, err
	}
	var all []Path
	for _, l := range stacknet.Sorted(links) {
		if l.Flags&unix.IFF_LOOPBACK != 0 || l.Kind == "ifb" {
			continue
		}
		state, err := p.state(l)
		if err != nil {
			return nil, err
		}
		all = append(all, Path{l, state})
	}
	return all, nil
}

func (p *Paths) state(l stacknet.LinkState) (State, error) {
	ways, err := p.n.Impairments(l)
	return State{Carrier: l.Flags&unix.IFF_LOWER_UP != 0 || !l.Up(), Ways: ways}, err
}

func (p *Paths) find(name string) (Path, error) {
	all, err := p.List()
	if err != nil {
		return Path{}, err
	}
	if i := slices.IndexFunc(all, func(q Path) bool { return q.Name == name }); i >= 0 {
		return all[i], nil
	}
	names := make([]string, len(all))
	for i, q := range all {
		names[i] = q.Name
	}
	return Path{}, fmt.Errorf("%s: the stack has no such interface, it has %s: %w", name, strings.Join(names, ", "), stacknet.ErrNoTarget)
}

// Check returns the interface of a step in its present state. It returns an error if the
// step is impossible. It changes nothing.
func (p *Paths) Check(s Step) (Path, error) {
	have, err := p.find(s.Iface)
	if err == nil {
		_, err = s.from(have.State)
	}
	return have, err
}

// Apply performs a step. If the step fails, Apply undoes all of its changes.
func (p *Paths) Apply(s Step) error {
	have, err := p.find(s.Iface)
	if err != nil {
		return err
	}
	want, err := s.from(have.State)
	if err != nil {
		return err
	}
	return p.set(have, want)
}

// Restore restores an interface to a state that List has returned.
func (p *Paths) Restore(was Path) error {
	have, err := p.find(was.Name)
	if err != nil {
		return err
	}
	return p.set(have, was.State)
}

func (p *Paths) set(have Path, want State) error {
	want.setLimits(have.State, have.MTU)
	err := p.n.Impair(have.LinkState, want.Ways)
	if err == nil && want.Carrier != have.Carrier {
		err = p.carrier(have, want.Carrier)
	}
	if err == nil {
		return nil
	}
	undo := p.n.Impair(have.LinkState, have.Ways)
	if errors.Is(err, stacknet.ErrNoSeed) && undo == nil {
		return stepErrorf("%s: %v", have.Name, stacknet.ErrNoSeed)
	}
	return errors.Join(err, undo)
}

func (p *Paths) carrier(l Path, on bool) error {
	err := p.n.SetCarrier(l.LinkState, on)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return stepErrorf("%s: its carrier cannot be turned off; use silent", l.Name)
	}
	if err != nil {
		return fmt.Errorf("%s: setting its carrier: %w", l.Name, err)
	}
	return nil
}
