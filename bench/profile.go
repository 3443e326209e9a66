// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/profile"
	"github.com/lklrun/lklrun/bench/scenario"
	"github.com/lklrun/lklrun/bench/stacks"
	"github.com/lklrun/lklrun/bench/table"
)

// The rows to profile: those of missed targets, or of all targets.
const (
	profileMissed = "missed"
	profileAll    = "all"
)

// profileLimit is the time limit of one profile, with its measurement.
const profileLimit = 25 * time.Second

// profileSeconds is the key for the total time of all profiles.
const profileSeconds = "profiles"

// profileForm returns the form of one turn under perf. The turn is long enough for a
// thousand samples of each CPU.
func profileForm(f lab.Form) lab.Form {
	f.Rounds, f.Length, f.Count = 1, time.Second, 20000
	return f
}

// profiles profiles a scenario after its measurement. It runs one more turn, under
// perf, for each side of the scenario's targets. Failures become notes.
func (o *options) profiles(ctx context.Context, l *lab.Lab, s scenario.Scenario, set *table.Set, say func(string, ...any)) {
	wanted := o.profiled(set, s.Targets)
	if len(wanted) == 0 || ctx.Err() != nil {
		return
	}
	note := func(what string, err error) {
		set.Notes = append(set.Notes, strings.ReplaceAll(fmt.Sprintf("profile of %s: %v", what, err), l.Root+"/", ""))
	}
	form, began := l.Form, time.Now()
	defer func() {
		l.Form = form
		set.Info.Seconds[profileSeconds] += time.Since(began).Round(time.Second / 10).Seconds()
	}()
	defer l.Close()
	l.Form = profileForm(form)
	say("setting up for profiles")
	measures, err := s.Build(ctx, l)
	if err != nil {
		note(s.Name, err)
		return
	}
	done := 0
	for _, m := range measures {
		m.Key.Scenario = s.Name
		if !wanted[m.Key.String()] {
			continue
		}
		done++
		say("profile %d of %d", done, len(wanted))
		p, err := o.profile(ctx, l, m)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, lab.ErrNoPerf):
			note("what is missed", err)
			o.profileOf = "" // the row is profiled only once, and one line reports it
			return
		case err != nil:
			note(m.Key.String(), err)
		default:
			set.Profiles = append(set.Profiles, *p)
		}
	}
}

// profiled returns the keys to profile for a scenario's targets: both sides of each
// target, if the CPU time of their operations is known.
func (o *options) profiled(set *table.Set, targets []table.Target) map[string]bool {
	wanted := map[string]bool{}
	for _, t := range targets {
		if _, verdict := set.Judge(t); verdict != table.Missed && o.profileOf != profileAll {
			continue
		}
		for _, k := range []table.Key{t.Of, t.Base} {
			if set.HasCPU(k) {
				wanted[k.String()] = true
			}
		}
	}
	return wanted
}

// profile makes one profile.
func (o *options) profile(ctx context.Context, l *lab.Lab, m scenario.Measure) (*table.Profile, error) {
	ctx, cancel := context.WithTimeout(ctx, profileLimit)
	defer cancel()
	perf, err := l.Perf(ctx)
	if err != nil {
		return nil, err
	}
	defer perf.Close()
	sample, err := m.Take(ctx)
	if err != nil {
		return nil, err
	}
	root, err := perf.Stacks(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.keepStacks(m.Key, root); err != nil {
		return nil, err
	}
	return profile.Of(m.Key, sample, root, perf.Full(), runtime.NumCPU())
}

// keepStacks saves the stacks in the directory of the run's other files.
func (o *options) keepStacks(k table.Key, root *stacks.Node) error {
	path := filepath.Join(o.out, "profiles", strings.ReplaceAll(k.String(), "/", ",")+".folded")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(root.WriteFolded(f), f.Close())
}
