// SPDX-License-Identifier: Apache-2.0

// Package wire is the interface type wire: all interfaces of this user's stacks
// that name the same wire are joined, as by a switch. Frames go through shared
// memory from one stack to the other (third_party/lkl/lib/wire.c). lklrun only
// introduces the ends to each other (rendezvous.go).
package wire

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/impair"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

func init() {
	link.Register(config.Type{
		Name: "wire", Rank: 15, Arg: "device", Form: "NAME",
		Help: "a virtual wire: the interfaces of your stacks that name the same wire are joined, without privileges",
		Keys: []string{"mac", "dhcp", "dhcp6", "slaac", "offload", "vlan", "neigh"}, Own: impairmentKeys,
		ParseArg: parseName, Check: check,
		// Two interfaces of a stack may be ends of one wire.
		Exclusive: func(*config.Interface) bool { return false },
	}, driver{})
}

// maxName is the maximum length of a wire's name. It is part of the name of a
// socket.
const maxName = 64

func parseName(i *config.Interface, name string) error {
	letter := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	switch {
	case name == "":
		return fmt.Errorf("wire: no name; expected wire:NAME, such as wire:a")
	case len(name) > maxName:
		return fmt.Errorf("wire: %q has %d characters; the limit is %d", name, len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !letter(r) }):
		return fmt.Errorf("wire: %q; expected a name of letters, digits, \".\", \"_\" and \"-\"", name)
	}
	i.Device = name
	return nil
}

// impairmentKeys are words of the step of `lklctl path`, which checks their values.
var impairmentKeys = []config.Key{
	{Name: "delay", Form: "TIME", Help: "hold each packet that this end receives, such as 20ms"},
	{Name: "jitter", Form: "TIME", Help: "change each packet's delay by a random time of up to this"},
	{Name: "rate", Form: "RATE", Help: "limit the rate at which this end receives, such as 100mbit"},
	{Name: "limit", Form: "PACKETS", Least: 1, Most: 1<<31 - 1, Help: "the number of packets that wait for delay and rate (default: enough for both)"},
	{Name: "loss", Form: "SHARE", Help: "drop each packet that this end receives with that probability, such as 1%"},
	{Name: "duplicate", Form: "SHARE", Help: "receive each packet twice with that probability"},
	{Name: "reorder", Form: "SHARE", Help: "receive a packet without its delay with that probability"},
	{Name: "seed", Form: "NUMBER", Least: 1, Most: 1<<31 - 1, Help: "the seed of the random decisions, so that a run can be repeated"},
}

// impairments returns the words of the step of `lklctl path` for each key that
// is set.
func impairments(i *config.Interface) [][]string {
	var steps [][]string
	for _, k := range impairmentKeys {
		if v := i.Own[k.Name]; v != "" && v != "0" {
			steps = append(steps, []string{k.Name, v})
		}
	}
	return steps
}

func check(i *config.Interface) *config.KeyError {
	var all []string
	for _, words := range impairments(i) {
		if _, err := impair.ParseStep(i.Target(), incoming, words); err != nil {
			return config.KeyErrorf(words[0], "%w", plain(err, i.Target()+": "+words[0]+" "))
		}
		all = append(all, words...)
	}
	if len(all) == 0 {
		return nil
	}
	s, err := impair.ParseStep(i.Target(), incoming, all)
	if err == nil {
		err = s.Possible()
	}
	if err != nil {
		return config.KeyErrorf(all[0], "%w", plain(err, i.Target()+", direction in: "))
	}
	return nil
}

// incoming is the direction that an end of a wire impairs. The other end impairs
// the other direction. Impairments of outgoing packets would act before the
// qdisc that paces them, so the pacing of BBR would have no effect.
var incoming = []stacknet.Way{stacknet.In}

// plain removes a prefix that repeats what the message says already.
func plain(err error, prefix string) error {
	return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), prefix))
}

// Facts are the random part of an interface.
type Facts struct {
	MAC config.MAC // for an interface without addresses
}

// Part is empty, because link.Link contains everything.
type Part struct{}

type driver struct{}

// Look chooses an Ethernet address for an interface without IP addresses. The
// default Ethernet address is derived from the IP addresses, and the addresses of
// the ends of a wire must differ.
func (driver) Look(context.Context, *link.Query) (Facts, error) {
	var f Facts
	_, err := rand.Read(f.MAC[:])
	f.MAC[0] = f.MAC[0]&^1 | 2 // unicast, locally administered
	return f, err
}

func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	if r.Link.MAC.IsZero() && len(r.Link.Addrs) == 0 {
		r.Link.MAC = f.MAC
	}
	for _, words := range impairments(r.Interface) {
		r.Link.Impair = append(r.Link.Impair, words...)
	}
	return Part{}, nil
}

func (driver) Describe(l *link.Link, _ Part) link.Description {
	w := link.Description{
		Summary: []string{"wire " + l.Device},
		Step:    fmt.Sprintf("join wire %s as %s", l.Device, l.Name), Undo: "leave it",
	}
	if len(l.Impair) > 0 {
		w.Notes = []string{"what it receives: " + strings.Join(l.Impair, " ")}
	}
	return w
}

func (driver) Open(ctx context.Context, l *link.Link, _ Part, env link.Env) (link.End, error) {
	file, err := link.Wire(l.Name)
	if err != nil {
		return link.End{}, fmt.Errorf("wire %s: %w", l.Device, err)
	}
	end := link.End{
		File: file,
		Kind: ctlproto.CTL_LINK_WIRE, Flags: link.VnetFlags(true),
	}
	m, err := meet(ctx, env.Dir, l.Name, l.Device, env.Log)
	if err != nil {
		end.File.Close()
		return link.End{}, fmt.Errorf("wire %s: %w", l.Device, err)
	}
	end.Close, end.Peers = m.close, m.join
	return end, nil
}

// Check returns nothing, because a wire requires neither privileges nor devices.
func (driver) Check(context.Context) []link.Finding { return nil }
