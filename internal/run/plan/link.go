// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Link is the plan of an interface of the stack.
type Link = link.Link

// link plans the interface ethN.
func (p *Plan) link(n int, r *link.Request, found any) (Link, error) {
	i, l := r.Interface, link.New(n, r.Interface)
	l.Endpoint = p.Stack.MPTCP
	r.Link = &l
	err := link.Plan(r, found)
	if err == nil && l.RawIP {
		err = p.Stack.CheckRawIP()
	}
	for j := range r.Others {
		if err == nil {
			err = beside(&l, &r.Others[j])
		}
	}
	if err != nil {
		return l, link.Explain(i, err)
	}
	if l.MTU == 0 {
		l.MTU = defaultMTU
	}
	if l.MAC.IsZero() && !l.Managed && !l.RawIP {
		l.MAC = link.StableMAC(r.Machine, i)
	}
	if len(l.Addrs) == 0 && !l.Leases() && !l.Managed {
		r.Note("%s has no address; give it one with --if %s,ip=ADDRESS/PREFIX", l.Name, i.Target())
	}
	return l, nil
}

// beside returns an error if l conflicts with another link. Unlike earlier
// checks, it includes addresses that the gateway chose, and links added at run
// time.
func beside(l, other *Link) error {
	for _, a := range l.Addrs {
		if slices.ContainsFunc(other.Addrs, func(p netip.Prefix) bool { return p.Addr() == a.Addr() }) {
			return fmt.Errorf("address %s is already used by %s", a.Addr(), other.Name)
		}
	}
	if !l.MAC.IsZero() && l.MAC == other.MAC {
		return fmt.Errorf("mac %s is already used by %s", l.MAC, other.Name)
	}
	if l.Table == other.Table {
		return fmt.Errorf("table %d is already used by %s", l.Table, other.Name)
	}
	return nil
}

// More plans an additional interface for a run in progress. have are the
// present links. More returns the interface and notes for the user. i and machine
// come from preflight.LookLink.
func (p *Plan) More(i preflight.Interface, machine string, have []Link) (Link, []string, error) {
	if p.Stack.ABI == stack.ABIHost {
		return Link{}, nil, errors.New("the stack is the host's own kernel, with the host's own interfaces")
	}
	if p.Confined {
		return Link{}, nil, fmt.Errorf("--if %q: the run has --allow, --egress or --proxy, so its gateway must stay the only interface", i.String())
	}
	if len(have) >= MaxLinks {
		return Link{}, nil, fmt.Errorf("--if %q: %d interfaces exist; the limit is %d", i.String(), len(have), MaxLinks)
	}
	n := 0
	for slices.ContainsFunc(have, func(l Link) bool {
		// If the stack has renamed a link, the link still uses its
		// table.
		return l.Name == fmt.Sprintf("eth%d", n) || i.Table == 0 && l.Table == config.FirstTable+n
	}) {
		n++
	}
	r := link.Request{Interface: &i.Interface, Machine: machine, Others: have}
	l, err := p.link(n, &r, i.Found)
	return l, slices.Concat(r.Notes, r.Hints), err
}

// CheckRawIP returns an error if the stack is known not to support devices
// without a link layer. For ABIAuto it returns nil, because only the library
// knows.
func (s *Stack) CheckRawIP() error {
	switch s.ABI {
	case stack.ABINative, stack.ABIAuto:
		return nil
	}
	return s.NoRawIP()
}

// NoRawIP returns the error for a stack that does not support devices without a
// link layer.
func (s *Stack) NoRawIP() error {
	return fmt.Errorf("stack %s does not support devices without link layer; use tap or raw, or one of lklrun's own stacks", s.Name)
}
