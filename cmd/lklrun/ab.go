// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/ab"
	"github.com/lklrun/lklrun/pkg/config"
)

const abHelp = `ab runs a command repeatedly with two or more stacks or other variants, and
compares time, CPU time, bytes and retransmissions. Flags of lklrun apply to all
runs, those in --variant to one variant. --merge combines the results of several
machines into one.`

const abExamples = `  lklrun ab --stack host --stack mptcp --if tap:t0,ip=10.0.1.2/24,gw=10.0.1.1 \
        -- curl -s -o /dev/null http://10.0.1.1/file
  lklrun ab -n 20 --if raw:eth0 --stack vanilla --stack bbr -- ./fetch
  lklrun ab --if raw:eth0 --variant 'plain: --stack vanilla' \
        --variant 'ecn: --stack vanilla --sysctl net.ipv4.tcp_ecn=1' -- ./fetch
  lklrun ab --merge node1.json node2.json       # results of ab -o json`

// comparer contains the flags and the state of the verb ab.
type comparer struct {
	sources
	stacks   []string
	variants []string
	rounds   uint
	warmups  uint
	show     bool
	merge    bool
	output   cli.Output
}

func abCommand() *cobra.Command {
	a := &comparer{output: cli.OutputTable}
	cmd := &cobra.Command{
		Use:     "ab --stack A --stack B [FLAG]... -- COMMAND [ARG]...",
		Short:   "compare stacks or settings on one command",
		Long:    abHelp,
		Example: abExamples,

		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeProgram,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.merge {
				return a.combine(cmd.Flags(), args)
			}
			p, c, err := a.prepare(cmd, args)
			if err != nil {
				return err
			}
			return a.compare(cmd.Context(), p, c)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	f.UintVarP(&a.rounds, "runs", "n", 10, "run each variant this number of times")
	f.UintVar(&a.warmups, "warmups", 1, "first run each variant this number of times without counting")
	f.StringArrayVar(&a.variants, "variant", nil, "add a variant `'NAME: FLAGS'` with these flags; repeatable")
	f.BoolVar(&a.show, "show", false, "show the output of the command")
	f.BoolVar(&a.merge, "merge", false, "run nothing; combine results of ab -o json, given as files (- is standard input)")
	cli.OutputFlags(f, &a.output, "print a table, or JSON with every run")
	a.add(f)
	stack := f.Lookup("stack")
	stack.Value, stack.DefValue, stack.Usage = &stackList{&a.stacks}, "", "add a variant that uses this stack; repeatable"
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("stack", completeStack))
	return cmd
}

// stackList is the flag --stack, which can be repeated in ab.
type stackList struct{ to *[]string }

func (l *stackList) Set(word string) error { *l.to = append(*l.to, word); return nil }
func (l *stackList) String() string        { return strings.Join(*l.to, " ") }
func (l *stackList) Type() string          { return "NAME|DIR" }

// prepare parses the command line.
func (a *comparer) prepare(cmd *cobra.Command, args []string) (*ab.Program, *ab.Comparison, error) {
	if err := checkFlags(cmd.Flags()); err != nil {
		return nil, nil, err
	}
	if len(args) == 0 {
		return nil, nil, cli.Usagef("no command to run; expected lklrun ab [FLAG]... -- COMMAND [ARG]...")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("finding the lklrun program: %w", err)
	}
	p := &ab.Program{Path: exe, Command: args}
	c := &ab.Comparison{Command: args, Rounds: int(a.rounds), Warmups: int(a.warmups)}
	if p.Flags, err = a.common(cmd.Flags()); err != nil {
		return nil, nil, err
	}
	const most = 10000
	if a.rounds == 0 || a.rounds > most || a.warmups > most {
		return nil, nil, cli.Usagef("-n %d, --warmups %d; expected 1 to %d runs and 0 to %[3]d warmups", a.rounds, a.warmups, most)
	}
	for _, s := range a.stacks {
		c.Variants = append(c.Variants, ab.Variant{Name: s, Flags: []string{"--stack=" + s}})
	}
	for _, v := range a.variants {
		name, flags, ok := strings.Cut(v, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, nil, cli.Usagef("--variant %q; expected NAME: FLAGS, as in 'ecn: --sysctl net.ipv4.tcp_ecn=1'", v)
		}
		c.Variants = append(c.Variants, ab.Variant{Name: name, Flags: strings.Fields(flags)})
	}
	if len(c.Variants) < 2 {
		return nil, nil, cli.Usagef("at least two variants are required; add --stack or --variant")
	}
	names := map[string]bool{}
	for i := range c.Variants {
		v := &c.Variants[i]
		if names[v.Name] {
			return nil, nil, cli.Usagef("variant %q: given twice; rename one with --variant 'NAME: FLAGS'", v.Name)
		}
		names[v.Name] = true
		if err := p.Check(cmd.Context(), v); err != nil {
			return nil, nil, &cli.UsageError{Err: err}
		}
	}
	if err := checkMeasurable(p, c); err != nil {
		return nil, nil, err
	}
	if a.show {
		p.Stdout, p.Stderr = os.Stdout, os.Stderr
		if a.output == cli.OutputJSON { // standard output must contain only JSON
			p.Stdout = os.Stderr
		}
	}
	return p, c, nil
}

// checkMeasurable rejects variants whose stacks or kernel settings differ, but whose TCP
// ends at the user-mode gateway: to the peer, all of them use the host's TCP.
func checkMeasurable(p *ab.Program, c *ab.Comparison) error {
	first, behind := "", ""
	for i := range c.Variants {
		v := &c.Variants[i]
		s, f := new(sources), pflag.NewFlagSet(v.Name, pflag.ContinueOnError)
		s.add(f)
		if err := f.Parse(p.Args(v)); err != nil {
			return cli.Usagef("variant %q: %w", v.Name, err)
		}
		set, err := s.load(p.Command)
		if err != nil {
			return cli.Usagef("variant %q: %w", v.Name, err)
		}
		run := &set.Run
		onWire := func(i config.Interface) bool { return i.Type != config.DefaultType }
		if run.Stack == "host" || len(run.Ifaces) > 0 || slices.ContainsFunc(run.Interfaces, onWire) {
			continue
		}
		kernel := fmt.Sprint(run.Stack, run.Sysctls)
		if first == "" {
			first, behind = v.Name, kernel
		} else if kernel != behind {
			return cli.Usagef("variants %q and %q: no difference of their kernels reaches the peer, because TCP ends at the user-mode gateway (--if %s); add --if wire:NAME, tap:NAME,nat or raw:DEV", first, v.Name, config.DefaultType)
		}
	}
	return nil
}

// common returns the flags that apply to all runs, as given on the command line.
func (a *comparer) common(flags *pflag.FlagSet) (common []string, err error) {
	flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "name", "detach", "log", "wait-all":
			err = cli.Usagef("--%s: does not work with ab, which waits for each of its runs; remove it", f.Name)
		}
		if w, ok := f.Value.(*wordsFlag); ok {
			for _, word := range a.words[w.s.Key] {
				common = append(common, "--"+f.Name+"="+word)
			}
		}
	})
	if a.file != "" {
		common = append(common, "--config="+a.file)
	}
	if a.noFile {
		common = append(common, "--no-config")
	}
	return common, err
}

// compare performs the runs and prints the results.
func (a *comparer) compare(ctx context.Context, p *ab.Program, c *ab.Comparison) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	next := func(int, int, *ab.Variant) {}
	if term.IsTerminal(int(os.Stderr.Fd())) && !a.show {
		show, finish := progressBar()
		defer finish()
		next = func(n, of int, v *ab.Variant) { show(n, of, v.Name) }
	}
	err := c.Compare(ctx, p.Run, next)
	return a.report(c, err)
}

// progressBar starts a progress bar on standard error. show sets its state.
func progressBar() (show func(n, of int, what string), finish func()) {
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionShowCount())
	show = func(n, of int, what string) {
		bar.ChangeMax(of)
		_ = bar.Set(n) // only a progress display
		bar.Describe(what)
	}
	return show, func() { _ = bar.Finish() }
}

// combine merges the results in the files and prints the whole.
func (a *comparer) combine(flags *pflag.FlagSet, files []string) error {
	var err error
	flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "merge", "output", "json":
		default:
			err = cli.Usagef("--%s: does not work with --merge, which runs nothing; remove it", f.Name)
		}
	})
	switch {
	case err != nil:
		return err
	case len(files) == 0:
		return cli.Usagef("--merge: no file to merge; expected lklrun ab --merge FILE...")
	}
	var parts []ab.Part
	for _, name := range files {
		file, name, err := os.Stdin, name, error(nil)
		if name == "-" {
			name = "standard input"
		} else if file, err = os.Open(name); err != nil {
			return &cli.UsageError{Err: err}
		}
		some, err := ab.ReadParts(name, file)
		file.Close()
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		parts = append(parts, some...)
	}
	c, err := ab.Merge(parts)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	return a.report(c, nil)
}

// report prints a comparison. It returns an error if the comparison or one of its runs failed.
func (a *comparer) report(c *ab.Comparison, err error) error {
	failed := 0
	for i := range c.Variants {
		failed += c.Variants[i].Failed()
	}
	if a.output == cli.OutputJSON {
		err = errors.Join(err, cli.WriteJSON(os.Stdout, c))
	} else {
		err = errors.Join(err, writeComparison(os.Stdout, c))
	}
	switch {
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("%s failed", text.Plural(failed, "run"))
	case c.Stopped:
		return errors.New("interrupted before all runs were done")
	}
	return nil
}
