// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// listed is an instance in the output of lklctl list.
type listed struct {
	Name       string            `json:"name"`
	Stack      string            `json:"stack"`
	Running    bool              `json:"running"`
	Interfaces []listedInterface `json:"interfaces"`
}

type listedInterface struct {
	Name string   `json:"name"`
	Type string   `json:"type"`
	Host string   `json:"host"`
	Addr []string `json:"addr"`
}

func instances(ctx context.Context, p programs) ([]listed, error) {
	out, err := run(ctx, p.lklctl, "list", "-o", "json")
	if err != nil {
		if exit, ok := err.(*ExitError); ok && exit.Status == 1 { //nolint:errorlint // run does not wrap it
			return nil, nil // there are none
		}
		return nil, err
	}
	var all []listed
	return all, decode(out, &all, "lklctl list")
}

func decode(out []byte, v any, what string) error {
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("the output of %s: %w", what, err)
	}
	return nil
}

// lab returns the name of the lab to which an instance belongs. A node has a wire whose
// name begins with that of the lab. It may have more interfaces, by lklctl link add.
func (i *listed) lab() (lab, node string, ok bool) {
	lab, node, _ = strings.Cut(i.Name, ".")
	return lab, node, slices.ContainsFunc(i.Interfaces, func(f listedInterface) bool { return f.of(lab) })
}

// of reports whether an interface is at a wire of a lab.
func (f listedInterface) of(lab string) bool {
	return f.Type == "wire" && strings.HasPrefix(f.Host, lab+".")
}

// All returns the running labs of this user in the order of their names. Their
// plans contain only what the instances show.
func All(ctx context.Context, o *Options) ([]*Lab, error) {
	if o == nil {
		o = new(Options)
	}
	p, err := find(o.Bin)
	if err != nil {
		return nil, err
	}
	running, err := instances(ctx, p)
	if err != nil {
		return nil, err
	}
	labs := map[string]*Lab{}
	for _, i := range running {
		name, node, ok := i.lab()
		if !ok || !i.Running {
			continue
		}
		if labs[name] == nil {
			labs[name] = &Lab{Plan: &Plan{Name: name}, programs: p, detached: true}
		}
		labs[name].Plan.add(&i, node)
	}
	var all []*Lab
	for _, name := range sorted(labs) {
		all = append(all, labs[name])
	}
	return all, nil
}

// add adds a node and its wires.
func (p *Plan) add(i *listed, name string) {
	n := PlannedNode{Name: name, Instance: i.Name, Stack: i.Stack}
	for _, f := range i.Interfaces {
		if !f.of(p.Name) {
			continue
		}
		wire := strings.TrimPrefix(f.Host, p.Name+".")
		planned := PlannedInterface{Name: f.Name, Wire: wire}
		for _, a := range f.Addr {
			if prefix, err := netip.ParsePrefix(a); err == nil {
				planned.Addresses = append(planned.Addresses, prefix)
			}
		}
		n.Interfaces = append(n.Interfaces, planned)
		at := -1
		for k := range p.Wires {
			if p.Wires[k].Name == wire {
				at = k
			}
		}
		if at < 0 {
			at = len(p.Wires)
			p.Wires = append(p.Wires, PlannedWire{Name: wire, Wire: f.Host})
		}
		p.Wires[at].Ends = append(p.Wires[at].Ends, WireEnd{name, f.Name})
	}
	p.Nodes = append(p.Nodes, n)
}

// Open returns a running lab by name. An empty name selects the only one.
func Open(ctx context.Context, name string, o *Options) (*Lab, error) {
	all, err := All(ctx, o)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range all {
		if l.Plan.Name == name {
			return l, nil
		}
		names = append(names, l.Plan.Name)
	}
	switch {
	case len(all) == 0:
		return nil, &NotFoundError{"no lab is running; lklrun lab up FILE starts one"}
	case name != "":
		return nil, &NotFoundError{fmt.Sprintf("no lab %q is running; %s", name, suggest.Suggest(name, names, "there are "+strings.Join(names, ", ")))}
	case len(all) > 1:
		return nil, &NotFoundError{"several labs are running: " + strings.Join(names, ", ") + "; select one by name"}
	}
	return all[0], nil
}

// NotFoundError is the error for a lab that is not running.
type NotFoundError struct{ text string }

// Error names the lab.
func (e *NotFoundError) Error() string { return e.text }
