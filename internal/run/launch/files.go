// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
)

// files manages the files of the run directory that describe the run to other
// processes: state.json, plan.json and the target's resolv.conf and hosts.
type files struct {
	dir  *instance.Dir
	plan *plan.Plan
	log  *slog.Logger

	mu     sync.Mutex
	state  instance.State
	resolv string // content of the target's resolv.conf

	writing sync.Mutex // held while the leases are written
}

// writeFiles writes the files that lklhost looks for when it starts.
func writeFiles(dir *instance.Dir, p *plan.Plan, pod *instance.Pod, log *slog.Logger) (*files, error) {
	f := &files{dir: dir, plan: p, log: log, resolv: p.Resolv}
	f.state = instance.State{
		Name: dir.Name, PID: os.Getpid(), Pod: pod, Stack: p.Stack.Name, Engine: p.Engine,
		Started: time.Now(), Command: program.Shown(p.Command), User: p.User,
	}
	for i := range p.Links {
		f.state.Interfaces = append(f.state.Interfaces, shown(&p.Links[i]))
	}
	if p.Hosts != "" {
		if err := dir.WriteFile(instance.HostsFile, []byte(p.Hosts)); err != nil {
			return nil, err
		}
	}
	if p.Resolv == "" {
		return f, nil
	}
	return f, dir.WriteFile(instance.ResolvFile, []byte(p.Resolv))
}

// describe writes the files that only other processes read.
func (f *files) describe() error {
	if err := f.change(func(*instance.State) {}); err != nil {
		return err
	}
	return writePlan(f.dir, f.plan)
}

// Start writes the state, which has the stack's processes and its kernel now.
func (f *files) Start(context.Context) error { return f.change(func(*instance.State) {}) }

// Stop does nothing: the files are removed with the run directory.
func (f *files) Stop() {}

// now returns the current state.
func (f *files) now() instance.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// nameServers returns the target's current name servers.
func (f *files) nameServers() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return plan.NameServers(f.resolv)
}

// set changes the state of the run. The next call of change writes it.
func (f *files) set(change func(*instance.State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
}

// change changes the state of the run and writes it to state.json.
func (f *files) change(change func(*instance.State)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
	return f.dir.WriteState(&f.state)
}

// leases updates the files with the leases of the current links.
func (f *files) leases(v *links) {
	f.writing.Lock()
	defer f.writing.Unlock()
	var names []plan.LinkNames
	given := map[string][]dhcp.Status{}
	for _, l := range v.all() {
		n := plan.LinkNames{Link: l.Link}
		if c := v.leases.Client(l.Link); c != nil {
			n.Servers, n.Search = c.Resolver()
			given[l.Name] = c.Statuses()
		}
		names = append(names, n)
	}
	if f.plan.Resolv != "" {
		text := f.plan.ResolvConf(names)
		f.mu.Lock()
		f.resolv = text
		f.mu.Unlock()
		if err := f.dir.Rewrite(instance.ResolvFile, []byte(text)); err != nil {
			f.log.Debug("writing the command's name servers", "error", err)
		}
	}
	err := f.change(func(s *instance.State) {
		for n := range s.Interfaces {
			s.Interfaces[n].Leases = shownLeases(given[s.Interfaces[n].Name])
		}
	})
	if err != nil {
		f.log.Debug("writing the leases", "error", err)
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

// writePlan writes the plan without secrets into a run directory. Bundles
// include this file.
func writePlan(dir *instance.Dir, p *plan.Plan) error {
	shown := *p
	shown.Command = crash.Words(shown.Command)
	shown.Sysctls = slices.Clone(shown.Sysctls)
	for i := range shown.Sysctls {
		shown.Sysctls[i].Value = crash.Setting(shown.Sysctls[i].Name, shown.Sysctls[i].Value)
	}
	return dir.WriteJSON(instance.PlanFile, shown)
}
