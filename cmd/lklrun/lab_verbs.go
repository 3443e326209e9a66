// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/lab"
)

// readTopology reads a topology file. All its errors are ones that the user can
// fix.
func readTopology(name string, vars lab.Vars) (*lab.Topology, error) {
	t, err := vars.ReadFile(name)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return t, nil
}

// varFlag is the flag --var, which gives a variable of a topology file a value.
type varFlag struct{ vars lab.Vars }

func (f *varFlag) Set(word string) error {
	name, value, ok := strings.Cut(word, "=")
	if !ok || name == "" || value == "" {
		return errors.New("expected NAME=VALUE, such as loss=1%")
	}
	f.vars[name] = value
	return nil
}

func (f *varFlag) String() string { return "" }
func (f *varFlag) Type() string   { return "NAME=VALUE" }

// addVars adds the flag --var, and returns the values that it collects.
func addVars(f *pflag.FlagSet) lab.Vars {
	vars := lab.Vars{}
	f.Var(&varFlag{vars}, "var", "give a variable of the file this value; repeatable")
	return vars
}

// oneFile checks that there is one argument, a topology file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("%d arguments; expected one topology file; see %s --help", len(args), cmd.CommandPath())
	}
	return nil
}

func labUpCommand() *cobra.Command {
	var (
		shape   shapeFlags
		name    string
		vars    lab.Vars
		explain bool
	)
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:   "up [FILE | FLAG...]",
		Short: "start a lab in the background",
		Long: `up starts a lab in the background: that of a topology file, or a client and a
server with the shape that the flags describe. "lklrun lab down" ends it.`,
		Example: "  lklrun lab up two-paths.json\n  lklrun lab up --paths 2 --loss 1% --name lossy\n  lklctl mptcp -n lossy.client",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			t, err := upTopology(cmd, &shape, name, vars, args)
			if err != nil {
				return err
			}
			if explain {
				return explainLab(t, output)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			if err := notRunning(ctx, t.Name); err != nil {
				return err
			}
			l, err := startLab(ctx, t, lab.Options{Detach: true})
			if err != nil {
				return err
			}
			fmt.Println(l.Plan.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	shape.add(f)
	f.StringVar(&name, "name", "", "call the lab `NAME` (default: after the file, or lab)")
	vars = addVars(f)
	f.BoolVar(&explain, "explain", false, "print the nodes, addresses, routes and wires without starting them")
	f.VarP(&output, "output", "o", "with --explain: print text or JSON")
	return cmd
}

// upTopology returns the topology of a file or of flags.
func upTopology(cmd *cobra.Command, shape *shapeFlags, name string, vars lab.Vars, args []string) (*lab.Topology, error) {
	if len(args) == 0 {
		if len(vars) > 0 {
			return nil, cli.Usagef("--var: requires a topology file; add one or remove it")
		}
		t, _, err := shape.topology(name, nil)
		if err == nil && name == "" {
			t.Name = "lab"
		}
		return t, err
	}
	if err := oneFile(cmd, args); err != nil {
		return nil, err
	}
	for _, flag := range shapeNames {
		if cmd.Flags().Changed(flag) {
			return nil, cli.Usagef("--%s: the file %s describes the lab; remove one of them", flag, args[0])
		}
	}
	t, err := readTopology(args[0], vars)
	if err == nil && name != "" {
		t.Name = name
		if _, err = t.Plan(); err != nil {
			err = cli.Usagef("--%w", err)
		}
	}
	return t, err
}

// notRunning returns an error if a lab of this name is running.
func notRunning(ctx context.Context, name string) error {
	running, err := lab.All(ctx, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(running, func(l *lab.Lab) bool { return l.Plan.Name == name }) {
		return cli.Usagef("lab %q is already running; \"lklrun lab down %s\" ends it", name, name)
	}
	return nil
}

// openLab returns a running lab.
func openLab(ctx context.Context, name string) (*lab.Lab, error) {
	l, err := lab.Open(ctx, name, nil)
	if errors.As(err, new(*lab.NotFoundError)) {
		err = &cli.UsageError{Err: err}
	}
	return l, err
}

func labExecCommand(end *exit.End) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "exec [-n LAB] NODE [--] COMMAND [ARG]...",
		Short:   "run a program on a node of a lab",
		Long:    "exec runs a program on a node of a running lab, and ends with its status.",
		Example: "  lklrun lab exec client -- ping -c 3 server\n  lklrun lab exec -n lossy r1 -- ip route",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = slices.Delete(args, 1, 2)
			}
			if len(args) < 2 {
				return cli.Usagef("expected a node and a command; see %s --help", cmd.CommandPath())
			}
			l, err := openLab(cmd.Context(), name)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(l.Plan.Nodes, func(n lab.PlannedNode) bool { return n.Name == args[0] }) {
				return &cli.UsageError{Err: l.Command(cmd.Context(), args[0], args[1]).Err}
			}
			*end, err = runClient(cmd.Context(), l, args[0], args[1:])
			return err
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return completeProgram(cmd, args[1:], word)
			}
			l, err := lab.Open(cmd.Context(), name, nil)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var nodes []string
			for _, n := range l.Plan.Nodes {
				nodes = append(nodes, n.Name)
			}
			return nodes, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&name, "name", "n", "", "select the lab `LAB`, if several run")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("name", completeLab))
	return cmd
}

func labSetCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "set [-n LAB] WIRE STEP...",
		Short: "cut or change a wire of a lab",
		Long: `set changes a wire of a running lab, at all its ends. The steps are those of
"lklctl path": down cuts the wire, up brings it back, loss 5% adds loss.`,
		Example: "  lklrun lab set a down\n  lklrun lab set a up\n  lklrun lab set -n lossy b loss 5% delay 40ms",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usagef("expected a wire and a step, such as down; see %s --help", cmd.CommandPath())
			}
			l, err := openLab(cmd.Context(), name)
			if err != nil {
				return err
			}
			err = l.Set(cmd.Context(), args[0], strings.Join(args[1:], " "))
			var failed *lab.ExitError
			if err != nil && (!errors.As(err, &failed) || failed.Status == cli.ExitUsage) {
				err = &cli.UsageError{Err: err}
			}
			return err
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			l, err := lab.Open(cmd.Context(), name, nil)
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var wires []string
			for _, w := range l.Plan.Wires {
				wires = append(wires, w.Name)
			}
			return wires, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVarP(&name, "name", "n", "", "select the lab `LAB`, if several run")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("name", completeLab))
	return cmd
}

func completeLab(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, _ := lab.All(cmd.Context(), nil) // offer nothing after an error
	var names []string
	for _, l := range all {
		names = append(names, l.Plan.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func labStatusCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "list the running labs with their nodes",
		Long:    "status lists the nodes of this user's running labs, with their stacks, wires and\naddresses.",
		Example: "  lklrun lab status\n  lklrun lab status -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := lab.All(cmd.Context(), nil)
			if err != nil {
				return err
			}
			if output == cli.OutputJSON {
				plans := []*lab.Plan{}
				for _, l := range all {
					plans = append(plans, l.Plan)
				}
				return cli.WriteJSON(os.Stdout, plans)
			}
			if len(all) == 0 {
				cli.Note(os.Stderr, self, "no lab is running")
				return nil
			}
			t := cli.NewTable("LAB", "NODE", "STACK", "INTERFACES")
			for _, l := range all {
				for _, n := range l.Plan.Nodes {
					var ifs []string
					for _, i := range n.Interfaces {
						at := i.Wire
						for _, a := range i.Addresses {
							at += " " + a.String()
						}
						ifs = append(ifs, at)
					}
					t.Row(l.Plan.Name, n.Name, n.Stack, strings.Join(ifs, ", "))
				}
			}
			return t.Write(os.Stdout)
		},
	}
	cmd.Flags().VarP(&output, "output", "o", "print a table or JSON")
	return cmd
}

func labDownCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "down [LAB | --all]",
		Short:   "end a lab",
		Long:    "down ends a lab that \"lklrun lab up\" has started, with all its programs. Without\na name, it ends the only one.",
		Example: "  lklrun lab down\n  lklrun lab down lossy\n  lklrun lab down --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || all && len(args) > 0 {
				return cli.Usagef("expected one lab or --all; see %s --help", cmd.CommandPath())
			}
			var labs []*lab.Lab
			var err error
			if all {
				labs, err = lab.All(cmd.Context(), nil)
			} else {
				var l *lab.Lab
				l, err = openLab(cmd.Context(), strings.Join(args, ""))
				labs = append(labs, l)
			}
			if err != nil {
				return err
			}
			for _, l := range labs {
				if err := l.Down(cmd.Context()); err != nil {
					return errRun{err}
				}
				fmt.Printf("%s: %s ended\n", l.Plan.Name, text.Plural(len(l.Plan.Nodes), "node"))
			}
			return nil
		},
		ValidArgsFunction: completeLab,
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all labs of this user")
	return cmd
}

// labReport is the output of `lklrun lab run -o json`.
type labReport struct {
	Lab     string            `json:"lab"`
	OK      bool              `json:"ok"`
	Error   string            `json:"error,omitempty"`
	Steps   []lab.Result      `json:"steps"`
	Results map[string]string `json:"results"` // results that the file reports, by name
	Folder  string            `json:"folder"`
	Capture string            `json:"capture,omitempty"` // pcapng file with the packets on all wires

	// In virtual time: the time of the lab, and the time that it took. The second is the
	// only part of a report that does not repeat.
	VirtualSeconds float64 `json:"virtual_seconds,omitempty"`
	WallSeconds    float64 `json:"wall_seconds,omitempty"`

	Stop *lab.Stop `json:"stop,omitempty"` // with --stop-at: when and why the lab stopped

	programs []string // paths of executed programs, in virtual time
	ended    bool     // the lab was run to its end, which may be a step that failed
}

func labRunCommand() *cobra.Command {
	var (
		folder  string
		explain bool
		quiet   bool
		without bool
		vars    lab.Vars
		clock   string
		seed    uint64
		until   time.Duration
		stopAt  string
		hold    bool
		dir     string
	)
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "start a lab, perform the steps of its file, and end it",
		Long: `run starts the lab of a topology file, performs its steps and ends it. The folder
of the results contains wires.pcapng with the packets on all wires, the output
of each node and step, and results.json. The exit status is 1 if a step failed.

With --time virtual, clocks advance only while all programs wait. An hour of
waiting takes no time, and two runs with the same seed and the same programs give
the same packets and output. Not all programs and labs can run so: what is not
supported ends the lab with a line that names it. --stop-at ends the lab at a
moment, and --hold keeps it then, so that lklctl can look at its nodes. --record
writes what "lklrun lab replay" needs to repeat the run elsewhere; programs then
get only HOME, PATH, TMPDIR, SHELL, the user, the time zone and the locale from
the environment.`,
		Example: "  lklrun lab run test.json\n  lklrun lab run --results out -o json test.json\n  lklrun lab run --time virtual --seed 7 test.json",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			t, err := readTopology(args[0], vars)
			if err != nil {
				return err
			}
			if explain {
				return explainLab(t, output)
			}
			if len(t.Steps) == 0 {
				return cli.Usagef("%s: the file has no steps; add \"steps\", or use lklrun lab up", args[0])
			}
			if dir != "" && folder != "" {
				return cli.Usagef("--record and --results: the folder of a record contains the results; remove one of them")
			}
			if folder == "" {
				folder = t.Name + ".results"
			}
			run := labRun{capture: !without, bar: true, lines: output == cli.OutputTable && !quiet}
			switch {
			case clock == "virtual":
				if !cmd.Flags().Changed("seed") {
					seed = uint64(t.Seed)
				}
				run.seed, run.until = &seed, until
				if cmd.Flags().Changed("until") && until <= 0 {
					return cli.Usagef("--until %v; expected a time after the start, such as 90s", until)
				}
				if hold && stopAt == "" {
					return cli.Usagef("--hold: requires --stop-at")
				}
				if err := noInstances(t, hold); err != nil {
					return err
				}
				if run.hold = hold; cmd.Flags().Changed("stop-at") {
					if run.stopAt, err = lab.ParseCondition(stopAt); err != nil {
						return cli.Usagef("--stop-at %w", err)
					}
				}
			case clock != "real":
				return cli.Usagef("--time %q; expected real or virtual", clock)
			case cmd.Flags().Changed("until"):
				return cli.Usagef("--until: requires --time virtual")
			case cmd.Flags().Changed("stop-at"), hold:
				return cli.Usagef("--stop-at and --hold: require --time virtual")
			case dir != "":
				return cli.Usagef("--record: requires --time virtual")
			case cmd.Flags().Changed("seed"):
				return cli.Usagef("--seed: requires --time virtual; in real time, \"seed\" in the file repeats the decisions of the wires")
			}
			report := &labReport{Lab: t.Name, Folder: folder, Steps: []lab.Result{}}
			if dir != "" {
				err = recordLab(cmd.Context(), dir, args[0], vars, t, report, run)
			} else {
				err = runLab(cmd.Context(), t, report, run)
			}
			if output == cli.OutputJSON {
				err = errors.Join(cli.WriteJSON(os.Stdout, report), err)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	vars = addVars(f)
	f.StringVar(&folder, "results", "", "write the results to this `FOLDER` (default: NAME.results)")
	f.BoolVar(&without, "no-capture", false, "do not capture the packets on the wires")
	f.StringVar(&clock, "time", "real", "run in `real|virtual` time")
	f.Uint64Var(&seed, "seed", 0, "with --time virtual: repeat an earlier run with the same `NUMBER` (default: that of the file)")
	f.DurationVar(&until, "until", 0, "with --time virtual: end the lab at this `TIME`, such as 90s, whatever steps are left")
	f.StringVar(&stopAt, "stop-at", "", "with --time virtual: end the lab when a counter of a node meets this `CONDITION`, such as drops>0 or client:TcpRetransSegs>=3")
	f.BoolVar(&hold, "hold", false, "with --stop-at: keep the stopped lab for lklctl until Enter, Ctrl-C or lklctl stop")
	f.StringVar(&dir, "record", "", "with --time virtual: write what \"lklrun lab replay\" needs to this `FOLDER`, with the results")
	f.BoolVarP(&quiet, "quiet", "q", false, "do not print a line for each step")
	f.BoolVar(&explain, "explain", false, "print the nodes, addresses, routes and wires without starting them")
	f.VarP(&output, "output", "o", "print a line for each step, or JSON")
	return cmd
}

// labRun says what runLab does besides the steps.
type labRun struct {
	capture bool          // capture the packets on the wires
	bar     bool          // show a progress bar while the nodes start
	lines   bool          // print a line for each step
	seed    *uint64       // in virtual time, with this seed; nil: in real time
	until   time.Duration // in virtual time, the end of the lab; 0: that of its steps

	stopAt *lab.Condition // in virtual time, another end; nil: none
	hold   bool           // keep the lab then
	env    []string       // in virtual time, the environment of the programs; nil: that of this process
	dir    string         // in virtual time, the working folder of the programs; empty: that of this process
}

// runLab performs the steps of a lab.
func runLab(ctx context.Context, t *lab.Topology, report *labReport, r labRun) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := os.MkdirAll(report.Folder, 0o755); err != nil {
		return cli.Usagef("--results: %w", err)
	}
	done := func(step lab.Result) {
		if r.lines && step.OK {
			fmt.Printf("%d. %s: ok, %.1f s\n", step.Step, step.What, step.Seconds)
		}
	}
	if r.seed != nil {
		return runVirtual(ctx, t, report, r, done)
	}
	if err := notRunning(ctx, t.Name); err != nil {
		return err
	}
	options := lab.Options{Logs: report.Folder}
	if !r.bar {
		options.Progress = func(int, int) {}
	}
	l, err := startLab(ctx, t, options)
	if err != nil {
		report.Error = err.Error()
		return err
	}
	defer func() {
		err = errors.Join(err, l.Down(context.WithoutCancel(ctx)))
	}()
	var packets *lab.Capture
	if r.capture {
		report.Capture = filepath.Join(report.Folder, "wires.pcapng")
		if packets, err = l.Capture(ctx, report.Capture); err != nil {
			return errRun{err}
		}
	}
	report.Steps, err = l.Run(ctx, lab.RunOptions{Folder: report.Folder, Done: done})
	if ctx.Err() == nil {
		var failed error
		report.Results, failed = l.Results(ctx, report.Steps)
		err = cmp.Or(err, failed)
	}
	err = r.conclude(ctx, t, report, err)
	if packets != nil {
		err = errors.Join(err, packets.Stop())
	}
	return errors.Join(err, writeResults(report))
}

// conclude completes the report with the error of the steps, and prints the results.
func (r *labRun) conclude(ctx context.Context, t *lab.Topology, report *labReport, err error) error {
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted before all steps were done")
	}
	if report.OK = err == nil; err != nil {
		report.Error = err.Error()
	}
	if r.lines {
		for _, name := range t.Reports() {
			if value, ok := report.Results[name]; ok {
				fmt.Printf("%s=%s\n", name, value)
			}
		}
	}
	return err
}

// runVirtual performs the steps of a lab in virtual time.
func runVirtual(ctx context.Context, t *lab.Topology, report *labReport, r labRun, done func(lab.Result)) (err error) {
	o := lab.VirtualOptions{Seed: *r.seed, Folder: report.Folder, Capture: r.capture, Until: r.until, StopAt: r.stopAt, Env: r.env, Dir: r.dir, Done: done}
	if r.hold {
		o.Hold = holdLab
	}
	if r.capture {
		report.Capture = filepath.Join(report.Folder, "wires.pcapng")
	}
	began := time.Now()
	result, err := t.RunVirtual(ctx, o)
	report.VirtualSeconds, report.WallSeconds = result.Time.Seconds(), time.Since(began).Seconds()
	if errors.As(err, new(*lab.TopologyError)) {
		return &cli.UsageError{Err: err}
	}
	if errors.As(err, new(*lab.ConditionError)) {
		return cli.Usagef("--stop-at %w", err)
	}
	switch report.Stop = result.Stop; {
	case report.Stop == nil && r.stopAt != nil && err == nil:
		cli.Note(os.Stderr, self, "%s did not hold before the lab ended", r.stopAt)
	case report.Stop != nil && r.lines && !r.hold:
		fmt.Println(stopped(report.Stop))
	}
	report.programs, report.ended = result.Programs, err == nil || ctx.Err() == nil
	report.Steps = append(report.Steps, result.Steps...)
	if report.Results = result.Values; report.Results == nil {
		report.Results = map[string]string{}
	}
	return errors.Join(r.conclude(ctx, t, report, err), writeResults(report))
}

// stopped says when and why a lab has stopped.
func stopped(s *lab.Stop) string {
	return fmt.Sprintf("stopped at %.9f s: %s on %s, where it is %d", s.Seconds, s.Condition, s.Node, s.Value)
}

// noInstances returns an error if a lab will be held, and an instance has the name of a node.
func noInstances(t *lab.Topology, hold bool) error {
	if !hold {
		return nil
	}
	p, err := t.Plan()
	if err != nil {
		return err
	}
	all, err := instance.Place{}.All()
	if err != nil {
		return err
	}
	for _, n := range p.Nodes {
		if slices.ContainsFunc(all, func(i instance.Info) bool { return i.Running && i.Name == n.Instance }) {
			return cli.Usagef("--hold: instance %q is running; end it, or give the lab another \"name\"", n.Instance)
		}
	}
	return nil
}

// holdLab waits until the user has looked at a lab that has stopped.
func holdLab(ctx context.Context, s *lab.Stop) {
	end := "Ctrl-C ends the lab"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if term.IsTerminal(int(os.Stdin.Fd())) {
		end = "Enter ends the lab"
		go func() {
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end counts as well
			cancel()
		}()
	}
	cli.Note(os.Stderr, self, "%s; lklctl sees %s; %s", stopped(s), strings.Join(s.Instances, ", "), end)
	<-ctx.Done()
}

// writeResults writes results.json.
func writeResults(report *labReport) error {
	f, err := os.Create(filepath.Join(report.Folder, "results.json"))
	if err != nil {
		return err
	}
	return errors.Join(cli.WriteJSON(f, report), f.Close())
}
