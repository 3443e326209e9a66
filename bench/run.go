// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/scenario"
	"github.com/lklrun/lklrun/bench/table"
)

// scenarios returns the chosen scenarios, in order.
func (o *options) scenarios() ([]scenario.Scenario, error) {
	var chosen []scenario.Scenario
	for _, s := range scenario.All() {
		if o.only != nil && o.only.MatchString(s.Name) || o.only == nil && (s.Quick || o.form.Full || o.list || o.render != "") {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, usageError{fmt.Errorf("-only %q: no scenario has such a name; see -list", o.only)}
	}
	return chosen, nil
}

// list prints the scenarios with their timeouts in seconds.
func list(w io.Writer, chosen []scenario.Scenario) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tseeds\tquick\tfull\twhat")
	var quick, full time.Duration
	for _, s := range chosen {
		q := "-"
		if s.Quick {
			q = fmt.Sprintf("%.0f s", s.Budget.Quick.Seconds())
			quick += s.Budget.Quick
		}
		full += s.Budget.Full
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.0f s\t%s\n", s.Name, s.Seed, q, s.Budget.Full.Seconds(), s.Title)
	}
	fmt.Fprintf(tw, "all\t\t%.0f s\t%.0f s\t\n", quick.Seconds(), full.Seconds())
	_ = tw.Flush() // writes to a terminal
}

// measure measures the scenarios, one after another.
func measure(ctx context.Context, root string, o *options, chosen []scenario.Scenario) (*table.Set, error) {
	account, err := lab.EnterGroup(os.Getenv(lab.AccountEnv))
	if err != nil {
		return nil, err
	}
	l, err := lab.New(ctx, root, o.form, account)
	if err != nil {
		return nil, err
	}
	set := table.New()
	if set.Info, err = l.Info(ctx); err != nil {
		return nil, err
	}
	for i, s := range chosen {
		began := time.Now()
		say := func(format string, args ...any) {
			progress("%d of %d, %s: %s", i+1, len(chosen), s.Name, fmt.Sprintf(format, args...))
		}
		if err := one(ctx, l, s, set, say); err != nil {
			return nil, err
		}
		set.Info.Seconds[s.Name] = time.Since(began).Round(time.Second / 10).Seconds()
		if o.profileOf != "" {
			o.profiles(ctx, l, s, set, say)
		}
	}
	progress("")
	return set, nil
}

// one measures a scenario. Each round runs every measure once, so that other load on the
// machine affects all variants alike. If a measure fails, one records a note and
// continues.
func one(ctx context.Context, l *lab.Lab, s scenario.Scenario, set *table.Set, say func(string, ...any)) error {
	defer l.Close()
	say("setting up")
	note := func(what string, err error) {
		if !errors.Is(err, scenario.ErrSkip) {
			set.Failed = append(set.Failed, what)
		}
		// The page is published, so remove paths of this machine.
		set.Notes = append(set.Notes, strings.ReplaceAll(fmt.Sprintf("%s: %v", what, err), l.Root+"/", ""))
	}
	measures, err := s.Build(ctx, l)
	if err != nil {
		note(s.Name, err)
		return ctx.Err()
	}
	defer func() {
		if n := l.Stalls(); n > 0 {
			set.Notes = append(set.Notes, fmt.Sprintf("%s: %s stood still %d times and was measured again", s.Name, lab.LKL49, n))
		}
	}()
	skipped := map[int]bool{}
	rounds := 0
	for _, m := range measures {
		rounds = max(rounds, m.Turns(l.Form.Rounds))
	}
	for round := range rounds {
		for i, m := range measures {
			m.Key.Scenario = s.Name
			if skipped[i] || round >= m.Turns(l.Form.Rounds) {
				continue
			}
			say("round %d of %d, %d of %d", round+1, rounds, i+1, len(measures))
			v, err := m.Take(ctx)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				note(m.Key.String(), err)
				skipped[i] = true
			default:
				set.Add(m.Key, v)
			}
		}
	}
	return nil
}

// progress replaces the current line; "" clears it. It does nothing unless the
// output is a terminal.
func progress(format string, args ...any) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	fmt.Fprintf(os.Stderr, format, args...)
}

func readSet(path string) (*table.Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	return table.ReadJSON(f)
}
