// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/matrix"
	"github.com/lklrun/lklrun/pkg/lab"
)

const matrixHelp = `matrix runs a lab with each combination of values of its variables, and prints a
table of the results that its steps report. The file is one of "lklrun lab run";
"lklrun help labs" describes variables and reports.

Two scenarios are built in:

  mptcp     a transfer over two paths, one of which is cut and comes back;
            variables client, server, direction, cut, size, write
  goodput   an upload over a path that loses packets; variables stack, cc, loss,
            delay, rate, size, seed

With --time virtual and --seeds, matrix runs the lab with each of these seeds, one
run on each processor, and prints the seeds that fail. "lklrun lab run --time
virtual --seed N FILE" repeats one of them. The output of the other runs is not
kept.

The exit status is 1 if a run failed.`

const matrixExamples = `  lklrun matrix --stack linux-6.1,mptcp,linux-7.3 --var direction=down,up mptcp
  lklrun matrix --stack vanilla,mine --var cc=cubic,bbr -n 5 goodput
  lklrun matrix --copy mine mptcp && vi mine/mptcp.json
  lklrun matrix --var loss=0%,1%,5% -o json mine/mptcp.json
  lklrun matrix --time virtual --seeds 1..1000 test.json`

// stackVars are the variables that --stack sets.
var stackVars = []string{"client", "server", "stack"}

// matrixRunner contains the flags and the state of the verb matrix.
type matrixRunner struct {
	stacks    []string
	vars      []string
	runs      uint
	clock     string
	seeds     string
	firstSeed uint64
	results   string
	capture   bool
	copyTo    string
	quiet     bool
	output    cli.Output

	builtIn string // name of a built-in scenario; empty: a file
}

func matrixCommand() *cobra.Command {
	r := &matrixRunner{output: cli.OutputTable}
	cmd := &cobra.Command{
		Use:     "matrix [--stack A,B,...] [--var NAME=VALUE,...]... FILE|SCENARIO",
		Short:   "run a lab with each combination of stacks and settings",
		Long:    matrixHelp,
		Example: matrixExamples,

		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return matrix.BuiltIn(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			return r.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&r.stacks, "stack", nil, "give the variables client, server and stack each of these stacks, `A,B,...`")
	f.StringArrayVar(&r.vars, "var", nil, "give a variable each of these values, `NAME=VALUE,...`; repeatable")
	f.UintVarP(&r.runs, "runs", "n", 1, "run each combination this number of times, and print the median")
	f.StringVar(&r.clock, "time", "real", "run in `real|virtual` time")
	f.StringVar(&r.seeds, "seeds", "", "with --time virtual: run each combination with each of these seeds, `FIRST..LAST`")
	f.StringVar(&r.results, "results", "", "write the output of each run to this `FOLDER` (default: NAME.matrix)")
	f.BoolVar(&r.capture, "capture", false, "capture the packets on all wires, too")
	f.StringVar(&r.copyTo, "copy", "", "only write the files of a built-in scenario to this `FOLDER`")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "do not show the progress")
	cli.OutputFlags(f, &r.output, "print a table, or JSON with every run")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("stack", completeStack))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("var", cobra.NoFileCompletions))
	return cmd
}

func (r *matrixRunner) run(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("%d arguments; expected one topology file or scenario; see %s --help", len(args), cmd.CommandPath())
	}
	if matrix.IsBuiltIn(args[0]) {
		r.builtIn = args[0]
	}
	if r.copyTo != "" {
		return r.copy(args[0])
	}
	if r.runs == 0 || r.runs > matrix.MaxRuns {
		return cli.Usagef("-n %d; expected a number from 1 to %d", r.runs, matrix.MaxRuns)
	}
	if err := r.checkTime(cmd.Flags().Changed("runs")); err != nil {
		return err
	}
	m, err := r.prepare(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if r.builtIn != "" {
		if _, err := matrix.Copy(r.builtIn, filepath.Dir(m.Scenario), true); err != nil {
			return cli.Usagef("--results: %w", err)
		}
	}
	r.execute(ctx, m)
	if err := r.print(m); err != nil {
		return err
	}
	failed, all := 0, 0
	for k := range m.Cells {
		failed += m.Cells[k].Failed()
		all += len(m.Cells[k].Runs)
	}
	switch {
	case m.Stopped:
		return errors.New("interrupted before all runs were done")
	case failed > 0:
		return fmt.Errorf("%d of %s failed", failed, text.Plural(all, "run"))
	}
	return nil
}

// virtual reports whether the runs are in virtual time.
func (r *matrixRunner) virtual() bool { return r.clock == "virtual" }

// checkTime checks the flags of virtual time. The number of seeds is that of the runs.
func (r *matrixRunner) checkTime(runs bool) error {
	switch {
	case r.clock != "real" && !r.virtual():
		return cli.Usagef("--time %q; expected real or virtual", r.clock)
	case r.seeds != "" && !r.virtual():
		return cli.Usagef("--seeds: requires --time virtual")
	case r.virtual() && r.seeds == "":
		return cli.Usagef("--time virtual: requires --seeds, because all runs with the same seed are equal")
	case !r.virtual():
		return nil
	case runs:
		return cli.Usagef("-n: cannot be used with --seeds, because all runs with the same seed are equal")
	}
	from, to, _ := strings.Cut(r.seeds, "..")
	first, err := strconv.ParseUint(from, 10, 64)
	last, err2 := strconv.ParseUint(to, 10, 64)
	if err != nil || err2 != nil || last < first || last-first >= matrix.MaxRuns {
		return cli.Usagef("--seeds %q; expected FIRST..LAST, such as 1..1000, at most %d seeds", r.seeds, matrix.MaxRuns)
	}
	r.firstSeed, r.runs = first, uint(last-first+1)
	return nil
}

// copy writes the files of a built-in scenario.
func (r *matrixRunner) copy(name string) error {
	if r.builtIn == "" {
		return cli.Usagef("--copy: %q is not a built-in scenario; expected %s", name, strings.Join(matrix.BuiltIn(), " or "))
	}
	file, err := matrix.Copy(name, r.copyTo, false)
	if err != nil {
		return cli.Usagef("--copy: %w", err)
	}
	fmt.Println(file)
	return nil
}

// prepare checks all combinations before the first run.
func (r *matrixRunner) prepare(ctx context.Context, name string) (*matrix.Matrix, error) {
	if r.results == "" {
		base, _, _ := strings.Cut(filepath.Base(name), ".")
		r.results = base + ".matrix"
	}
	if r.builtIn != "" {
		if _, err := exec.LookPath("python3"); err != nil {
			return nil, cli.Usagef("the scenario %s needs python3, which is not installed; install it, or use a topology file of your own", name)
		}
		name = filepath.Join(r.results, "scenario", name+".json")
	}
	m := &matrix.Matrix{Scenario: name}
	t, err := r.topology(m, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case len(t.Steps) == 0:
		return nil, cli.Usagef("%s: the file has no steps; add \"steps\"", name)
	case len(t.Vars) == 0 && !r.virtual():
		return nil, cli.Usagef("%s: the file has no variables; add \"vars\", or use lklrun lab run", name)
	}
	m.Results = append([]string{}, t.Reports()...)
	if m.Vars, err = r.values(t, name); err != nil {
		return nil, err
	}
	if err := m.Expand(int(r.runs)); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	if err := r.checkCells(m); err != nil {
		return nil, err
	}
	if r.virtual() {
		return m, nil
	}
	return m, notRunning(ctx, t.Name)
}

// values returns the variables with the values of the command line.
func (r *matrixRunner) values(t *lab.Topology, file string) ([]matrix.Var, error) {
	var vars []matrix.Var
	add := func(name string, values []string) {
		at := slices.IndexFunc(vars, func(v matrix.Var) bool { return v.Name == name })
		if at < 0 {
			at = len(vars)
			vars = append(vars, matrix.Var{Name: name})
		}
		vars[at].Values = append(vars[at].Values, values...)
	}
	for _, name := range stackVars {
		if _, ok := t.Vars[name]; ok && len(r.stacks) > 0 {
			add(name, r.stacks)
		}
	}
	if len(r.stacks) > 0 && len(vars) == 0 {
		return nil, cli.Usagef("--stack: %s has no variable %s; use --var", file, strings.Join(stackVars, ", "))
	}
	for _, word := range r.vars {
		name, list, ok := strings.Cut(word, "=")
		values := strings.Split(list, ",")
		if !ok || name == "" || slices.Contains(values, "") {
			return nil, cli.Usagef("--var %q; expected NAME=VALUE,..., such as loss=1%%,5%%", word)
		}
		add(name, values)
	}
	for _, v := range vars {
		for n, value := range v.Values {
			if slices.Contains(v.Values[:n], value) {
				return nil, cli.Usagef("--var %s=%s: given twice; remove one", v.Name, value)
			}
		}
	}
	return vars, nil
}

// topology returns the topology with these values of its variables.
func (r *matrixRunner) topology(m *matrix.Matrix, vars lab.Vars) (*lab.Topology, error) {
	if r.builtIn == "" {
		return readTopology(m.Scenario, vars)
	}
	file, err := matrix.Read(r.builtIn)
	if err != nil {
		return nil, err
	}
	t, err := vars.Parse(m.Scenario, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return t, nil
}

// checkCells checks the topology of each cell, and whether its stacks can be loaded.
func (r *matrixRunner) checkCells(m *matrix.Matrix) error {
	known := map[string]bool{}
	for k := range m.Cells {
		t, err := r.topology(m, m.Cells[k].Vars)
		if err != nil {
			return err
		}
		p, err := t.Plan()
		if err == nil && r.virtual() {
			err = t.CheckVirtual()
		}
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		for _, n := range p.Nodes {
			if known[n.Stack] {
				continue
			}
			known[n.Stack] = true
			s, err := findStack(n.Stack)
			if err != nil {
				return err
			}
			if err := s.CheckLibrary(); err != nil {
				return &cli.UsageError{Err: err}
			}
		}
	}
	return nil
}

// execute makes the runs and shows their progress.
func (r *matrixRunner) execute(ctx context.Context, m *matrix.Matrix) {
	show := func(number, of int, c *matrix.Cell, run *matrix.Run) {
		outcome := "ok"
		if !run.OK {
			outcome = "failed: " + run.Error
		} else if r.virtual() {
			return // there are many
		}
		cli.Note(os.Stderr, self, "%d/%d %s: %s, %.1f s", number, of, label(m, c, run), outcome, run.Seconds)
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		bar, finish := progressBar()
		defer finish()
		show = func(number, of int, c *matrix.Cell, run *matrix.Run) { bar(number, of, label(m, c, run)) }
	}
	if r.quiet {
		show = func(int, int, *matrix.Cell, *matrix.Run) {}
	}
	atOnce := 1
	if r.virtual() {
		atOnce = runtime.GOMAXPROCS(0)
	}
	m.Execute(ctx, int(r.runs), atOnce, func(ctx context.Context, number int, c *matrix.Cell) matrix.Run {
		run := matrix.Run{Folder: filepath.Join(r.results, strconv.Itoa(number))}
		if r.virtual() {
			seed := r.firstSeed + uint64((number-1)/len(m.Cells))
			run.Seed = &seed
		}
		t, err := r.topology(m, c.Vars)
		if err == nil {
			report := &labReport{Lab: t.Name, Folder: run.Folder, Steps: []lab.Result{}}
			err = runLab(ctx, t, report, labRun{capture: r.capture, seed: run.Seed})
			run.Values = report.Results
			if err != nil {
				err = withOutput(err, report.Steps)
			}
		}
		if run.OK = err == nil; err != nil {
			run.Error = err.Error()
		}
		if run.OK && r.virtual() { // it can be repeated
			run.Folder = ""
			_ = os.RemoveAll(filepath.Join(r.results, strconv.Itoa(number))) // nobody needs it
		}
		return run
	}, show)
}

// label describes a run.
func label(m *matrix.Matrix, c *matrix.Cell, run *matrix.Run) string {
	name := m.Name(c)
	if run.Seed == nil {
		return name
	}
	return strings.TrimSpace(fmt.Sprintf("%s seed=%d", name, *run.Seed))
}

// withOutput adds the last line that the failed step printed.
func withOutput(err error, steps []lab.Result) error {
	for _, s := range steps {
		if s.OK || s.Output == "" {
			continue
		}
		output, readErr := os.ReadFile(s.Output)
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		if last := lines[len(lines)-1]; readErr == nil && last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
	}
	return err
}

// print prints the results, and writes them to the folder.
func (r *matrixRunner) print(m *matrix.Matrix) error {
	f, err := os.Create(filepath.Join(r.results, "results.json"))
	if err == nil {
		err = errors.Join(cli.WriteJSON(f, m), f.Close())
	}
	if r.output == cli.OutputJSON {
		return errors.Join(err, cli.WriteJSON(os.Stdout, m))
	}
	return errors.Join(err, writeMatrix(os.Stdout, m))
}

// writeMatrix prints a line for each cell, and the reasons of the failed runs.
func writeMatrix(w io.Writer, m *matrix.Matrix) error {
	var head []string
	for _, v := range m.Varied() {
		head = append(head, strings.ToUpper(v.Name))
	}
	head = append(head, "RUNS")
	for _, name := range m.Results {
		head = append(head, ">"+strings.ToUpper(name))
	}
	t := cli.NewTable(head...).Narrow()
	var reasons strings.Builder
	for k := range m.Cells {
		c := &m.Cells[k]
		if len(c.Runs) == 0 {
			continue
		}
		var row []string
		for _, v := range m.Varied() {
			row = append(row, c.Vars[v.Name])
		}
		outcome := "ok"
		if n := c.Failed(); n > 0 {
			outcome = fmt.Sprintf("%d of %d failed", n, len(c.Runs))
		}
		row = append(row, outcome)
		for _, name := range m.Results {
			row = append(row, c.Summary(name))
		}
		t.Row(row...)
		for _, run := range c.Runs {
			if !run.OK {
				fmt.Fprintf(&reasons, "\n%s: %s\n", label(m, c, &run), run.Error)
			}
		}
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := io.WriteString(w, reasons.String())
	return err
}
