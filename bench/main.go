// SPDX-License-Identifier: Apache-2.0

// Command bench compares the stacks with the host's own kernel. It runs scenarios in
// namespaces, alternates between all variants within one run, and reports medians with
// their spread.
//
// It requires root, because it creates network namespaces for the traffic. It creates
// them inside namespaces of its own, which end together with bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/scenario"
	"github.com/lklrun/lklrun/bench/table"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	var u usageError
	var exit insideError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1)) // the inner process has printed the error
	case errors.As(err, &u):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A usageError is a mistake in the command line.
type usageError struct{ error }

// An insideError is a failure of the process that runs inside the namespaces.
type insideError struct{ *exec.ExitError }

// insideEnv is set in the process that runs inside the namespaces.
const insideEnv = "LKLRUN_BENCH_INSIDE"

// forms maps the name of a form to the form.
var forms = map[string]lab.Form{
	"quick": {Name: "quick", Rounds: 3, Length: 250 * time.Millisecond, Count: 2000},
	"full":  {Name: "full", Rounds: 5, Length: 500 * time.Millisecond, Count: 8000, Full: true},
}

// options contains the options of the command line.
type options struct {
	form    lab.Form
	only    *regexp.Regexp
	list    bool
	out     string
	docs    string
	compare string
	record  string
	render  string
	with    string

	profileOf string
}

func parse(args []string) (*options, error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints errors, in one line
	var o options
	form := f.String("form", "quick", "`quick` (five minutes) or full")
	rounds := f.Int("rounds", 0, "how often each `N` is measured; the median counts; 0: as often as the form has it")
	length := f.Duration("length", 0, "how long one bulk transfer takes; 0: as long as the form has it")
	only := f.String("only", "", "scenarios whose name matches `REGEXP`; of the quick form too those that it leaves out")
	f.BoolVar(&o.list, "list", false, "print the scenarios and their seconds, and measure nothing")
	f.StringVar(&o.out, "out", "build/bench", "`DIR` for run.json, benchstat.txt and report.txt")
	f.StringVar(&o.docs, "docs", "", "write the report, benchmarks.md and its pictures, to `DIR`")
	f.StringVar(&o.compare, "compare", "", "set the ratios beside those of `FILE`; exit with 1 when one fell by more than 15 %")
	f.StringVar(&o.record, "record", "", "write the ratios to `FILE`, for -compare")
	f.StringVar(&o.render, "render", "", "measure nothing: take the run of `FILE`, a run.json")
	f.StringVar(&o.with, "with", "", "add the scenarios of `FILE`, a run.json of the same machine and form; where it is of another commit, those alone that are not measured now")
	f.StringVar(&o.profileOf, "profile", "", "take a turn under perf of both sides of the targets, `missed` ones or all; folded stacks go to profiles/ of -out, for speedscope or flamegraph.pl")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(os.Stdout)
			f.PrintDefaults()
			os.Exit(0)
		}
		return nil, usageError{fmt.Errorf("%w; see -help", err)}
	}
	if f.NArg() > 0 {
		return nil, usageError{fmt.Errorf("%q: expected no arguments; see -help", f.Arg(0))}
	}
	var ok bool
	if o.form, ok = forms[*form]; !ok {
		return nil, usageError{fmt.Errorf("-form %q: expected quick or full", *form)}
	}
	if *rounds < 0 || *length < 0 || *length > 0 && *length < 50*time.Millisecond || *length > 10*time.Second {
		return nil, usageError{errors.New("-rounds, -length: expected at least one round, and 50 ms to 10 s")}
	}
	if o.profileOf != "" && o.profileOf != profileMissed && o.profileOf != profileAll {
		return nil, usageError{fmt.Errorf("-profile %q: expected missed or all", o.profileOf)}
	}
	if *rounds > 0 {
		o.form.Rounds = *rounds
	}
	if *length > 0 {
		o.form.Length = *length
	}
	if *only != "" {
		var err error
		if o.only, err = regexp.Compile(*only); err != nil {
			return nil, usageError{fmt.Errorf("-only: %w", err)}
		}
	}
	for _, path := range []string{o.compare, o.render, o.with} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil { // check now, not after five minutes
			return nil, usageError{err}
		}
	}
	return &o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	chosen, err := o.scenarios()
	if err != nil {
		return err
	}
	if o.list {
		list(os.Stdout, chosen)
		return nil
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bench", "native", "lklbench.c")); err != nil {
		return usageError{errors.New("wants to be started in the repository's folder, as make bench does")}
	}
	if o.render != "" {
		set, err := readSet(o.render)
		if err != nil {
			return err
		}
		return o.finish(set)
	}
	if os.Geteuid() != 0 {
		return usageError{errors.New("makes network namespaces, so it wants root: sudo make bench")}
	}
	if os.Getenv(insideEnv) == "" {
		return inside(ctx, args)
	}
	set, err := measure(ctx, root, o, chosen)
	if err != nil {
		return err
	}
	if err := o.finish(set); err != nil {
		return err
	}
	if n := len(set.Failed); n > 0 {
		return fmt.Errorf("%d measurements failed, the first is %s; see the notes", n, set.Failed[0])
	}
	return nil
}

// finish adds the results of the run in -with, if any, and writes all output.
func (o *options) finish(set *table.Set) error {
	if o.with != "" {
		other, err := readSet(o.with)
		if err != nil {
			return err
		}
		if err := set.Join(other); err != nil {
			// Keep the results of this run despite the error.
			return errors.Join(fmt.Errorf("-with %s: %w", o.with, err), o.write(set, scenario.All()))
		}
	}
	return o.write(set, scenario.All())
}

// inside runs this program again in new namespaces and with a control group for its
// CPU time. The namespaces end with this program, even if it is killed (unshare(1),
// --kill-child).
func inside(ctx context.Context, args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	group := lab.MakeGroup()
	line := append([]string{"--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", exe}, args...)
	cmd := exec.CommandContext(ctx, "unshare", line...)
	cmd.Env = append(os.Environ(), insideEnv+"=1", lab.AccountEnv+"="+group)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // ends the scenario; after WaitDelay, SIGKILL follows
	cmd.WaitDelay = 20 * time.Second
	threads, stop := context.WithCancel(ctx)
	go func() {
		if err := lab.TapThreads(threads, group); err != nil {
			fmt.Fprintln(os.Stderr, "bench: the host's threads that read taps are not in the account:", err)
		}
	}()
	err = cmd.Run()
	stop()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = insideError{exit}
	}
	if e := lab.RemoveGroup(group); err == nil {
		err = e
	}
	return err
}
