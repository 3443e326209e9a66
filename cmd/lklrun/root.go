// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/cli/limitsreport"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/launch"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/internal/run/relay"
	"github.com/lklrun/lklrun/internal/run/sharedaddr"
	"github.com/lklrun/lklrun/internal/run/stackhost"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

const self = "lklrun"

// exitOwn is the exit status if lklrun or the stack failed, as opposed to the
// command. env(1) and nohup(1) use the same status.
const exitOwn = 125

// errRun marks an error of a run, as opposed to one of another verb.
type errRun struct{ error }

func (e errRun) Unwrap() error { return e.error }

func (e errRun) ExitStatus() int { return exit.StatusOr(e.error, exitOwn) }

// execute runs the command line and returns how the process must end.
func execute(args []string) exit.End {
	r := &runner{}
	cmd := r.command()
	cmd.AddCommand(verbs()...)
	cmd.AddCommand(deskVerbs(cmd, &r.end)...)
	cmd.SetHelpCommand(cli.HelpCommand(cmd, allTopics(cmd)))
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd(args...)
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" {
			c.Short = "print a completion script for a shell"
		}
	}
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		return exit.End{Status: cli.Fail(os.Stderr, self, err)}
	}
	return r.end
}

func verbs() []*cobra.Command {
	return []*cobra.Command{cleanupCommand(), configCommand(), deviceCommand(), doctorCommand(), gatewayCommand(), profilesCommand(), stacksCommand(), versionCommand()}
}

// runner is the verb without a name, which runs a command.
type runner struct {
	sources
	deviceFlags
	config     *config.Config
	dryRun     bool
	configured string // file with the configuration as JSON, which a desk has sent; "": none
	background int    // descriptor of the socket in detach.go; -1: none
	relay      bool   // pass connections from the host's loopback interface to the stack
	report     int    // descriptor for the report to ab.go; -1: none
	pod        string // pod that the run serves, as lklrun-oci and the plug-in name it
	output     cli.Output
	end        exit.End
}

const longHelp = `lklrun runs an unmodified program on a network stack of your choice: the Linux
kernel, built as a library. The program sees only the interfaces of the stack.
The host's own stack does not change, and lklrun removes everything at the end.
Without --if, the stack is behind a user-mode gateway and needs no privileges.
With tap, macvtap, raw or rawip, its packets go to the wire unchanged.`

const examples = `  lklrun curl http://example.com/               # no privileges needed
  sudo lklrun --if tap:tap0,nat -- curl http://example.com/
  lklrun lab --paths 2 -- iperf3                # two stacks, joined by wires
  lklctl mptcp                                  # inspect the running stack`

func (r *runner) command() *cobra.Command {
	var printVersion bool
	cmd := &cobra.Command{
		Use:           "lklrun [FLAG]... [--] COMMAND [ARG]...",
		Short:         "run a program on a network stack of your choice",
		Long:          longHelp,
		Example:       examples,
		Args:          cobra.ArbitraryArgs, // the arguments of a command, not names of verbs
		SilenceErrors: true,
		SilenceUsage:  true,
		// The usage line already contains "[flags]".
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if printVersion {
				fmt.Fprintln(cmd.OutOrStdout(), version())
				return nil
			}
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			for _, name := range []string{"output", "json"} {
				if cmd.Flags().Changed(name) && !r.dryRun {
					return cli.Usagef("--%s: requires --dry-run; add --dry-run or remove --%[1]s", name)
				}
			}
			if r.background >= 0 {
				var err error
				r.end, err = runBackground(cmd.Context(), r.background)
				return err
			}
			if done, err := r.deviceFlags.run(cmd.Context(), r, args); done {
				return err
			}
			return r.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	r.deviceFlags.add(f, deviceHelp)
	r.addStay(f)
	r.sources.add(f)
	f.IntVar(&r.background, "detached", -1, "")
	cobra.CheckErr(f.MarkHidden("detached"))
	f.StringVar(&r.configured, "configured", "", "")
	cobra.CheckErr(f.MarkHidden("configured"))
	f.BoolVar(&r.relay, relay.Flag, false, "")
	cobra.CheckErr(f.MarkHidden(relay.Flag))
	f.IntVar(&r.report, "report", -1, "")
	cobra.CheckErr(f.MarkHidden("report"))
	f.StringVar(&r.pod, "pod", "", "")
	cobra.CheckErr(f.MarkHidden("pod"))
	f.BoolVar(&r.dryRun, "dry-run", false, "print the plan without running it")
	r.output = cli.OutputTable
	cli.OutputFlags(f, &r.output, "print the plan as a table or JSON")
	f.BoolP("help", "h", false, "show this help")
	f.BoolVar(&printVersion, "version", false, "print the version")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		err = cli.FlagError(cmd.Flags(), err)
		return cli.Usagef("%w%s", err, flagHelp(cmd, err))
	})
	cmd.SetUsageFunc(printUsage)
	completeFlags(cmd)
	cmd.ValidArgsFunction = completeProgram
	return cmd
}

// flagHelp returns a hint where the flags of a command are listed. The hint is
// empty if the error already contains a remedy.
func flagHelp(cmd *cobra.Command, err error) string {
	switch {
	case strings.HasSuffix(err.Error(), "?"):
		return ""
	case cmd.HasParent():
		return "; see " + cmd.CommandPath() + " --help"
	}
	return "; see lklrun help flags"
}

func (r *runner) run(ctx context.Context, args []string) error {
	p, err := r.plan(args)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	if r.dryRun {
		if r.output == cli.OutputJSON {
			return cli.WriteJSON(os.Stdout, p)
		}
		return p.Write(os.Stdout)
	}
	if p.RSTGuard == config.GuardPrint {
		return sharedaddr.Print(ctx, os.Stdout, p)
	}
	run := &r.config.Run
	t := &task{Plan: p, Verbose: run.Verbose, Quiet: run.Quiet, Log: run.Log, Relay: r.relay, Device: r.configured != ""}
	if r.pod != "" {
		if t.Pod, err = instance.ParsePod(r.pod); err != nil {
			return cli.Usagef("--pod: %w", err)
		}
	}
	if err := t.find(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if run.Detach {
		if err := r.detach(t); err != nil {
			return errRun{err}
		}
		return nil
	}
	opts := t.options()
	opts.Report = reportTo(r.report)
	r.end, err = launch.Run(ctx, p, opts)
	if err != nil {
		return errRun{located(r.config, err)}
	}
	return nil
}

// task is a planned run, with all data that lklrun needs to perform it.
type task struct {
	Plan    *plan.Plan    `json:"plan"`
	Pod     *instance.Pod `json:"pod,omitempty"`
	Host    string        `json:"host"`              // path of lklhost
	Preload string        `json:"preload,omitempty"` // path of the library of the engine preload
	Verbose bool          `json:"verbose,omitempty"`
	Quiet   bool          `json:"quiet,omitempty"`
	Log     string        `json:"log,omitempty"`
	Relay   bool          `json:"relay,omitempty"`
	Device  bool          `json:"device,omitempty"` // a desk has sent the configuration
}

// find finds the programs of the run.
func (t *task) find() (err error) {
	if t.Host, err = stackhost.Find(); err != nil {
		return err
	}
	t.Preload, err = stackhost.FindPreload(t.Host, t.Plan.Preload)
	return err
}

// options returns the parameters of a run in the foreground.
func (t *task) options() launch.Options {
	return launch.Options{
		Pod:      t.Pod,
		HostPath: t.Host, PreloadPath: t.Preload,
		Log:     logger(t.Verbose),
		Tell:    func(line string) { cli.Note(os.Stderr, self, "%s", text.OneLine(line)) },
		Quiet:   t.Quiet,
		Relay:   t.Relay,
		Explain: limitsreport.AtEnd(self, os.Stderr),
	}
}

// plan reads the configuration and plans the run. All errors up to this point are
// ones that the user can fix.
func (r *runner) plan(args []string) (*plan.Plan, error) {
	var err error
	if r.configured != "" {
		r.config, err = configured(r.configured)
	} else {
		r.config, err = r.load(args)
	}
	if err != nil {
		return nil, err
	}
	if err := preflight.Pick(&r.config.Run); err != nil {
		return nil, located(r.config, err)
	}
	run := r.config.Run
	if len(run.Command) == 0 {
		return nil, errors.New("no command to run; expected lklrun [FLAG]... -- COMMAND [ARG]...")
	}
	s, err := stack.Find(run.Stack, stack.SearchPath())
	if err != nil {
		return nil, located(r.config, fmt.Errorf("--stack: %w", err))
	}
	found, err := preflight.Look(run, s, r.dryRun)
	if err != nil {
		return nil, located(r.config, err)
	}
	p, err := plan.Make(run, s, found)
	return p, located(r.config, err)
}

// logger returns the logger for -v.
func logger(verbose bool) *slog.Logger {
	if !verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{
		Level:      slog.LevelDebug,
		TimeFormat: "15:04:05.000",
		NoColor:    !term.IsTerminal(int(os.Stderr.Fd())),
	}))
}

// printUsage prints the help without the description, within a screen of 40 lines and 80
// columns. The rest is in the topics. A template of cobra would add 3 MB, because the linker
// keeps every exported method in a program with text/template.
func printUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	line := cmd.UseLine()
	if !cmd.Runnable() {
		line = cmd.CommandPath() + " NAME"
	}
	fmt.Fprintf(w, "USAGE\n  %s\n", line)
	list := func(title string) {
		fmt.Fprintf(w, "\n%s\n", title)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	switch {
	case !cmd.HasParent():
		fmt.Fprintf(w, commonUsage, cmd.CommandPath(), strings.Join(config.TypeNames(), ","))
		list("VERBS")
		fmt.Fprintf(w, "\nTOPICS           (lklrun help TOPIC)\n  flags%s\n", strings.TrimPrefix(cli.TopicList(topics), " "))
	case cmd.HasAvailableSubCommands():
		list("NAMES")
	}
	if cmd.HasParent() && cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFLAGS\n%s\n", strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(80), " \n"))
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nEXAMPLES\n%s\n", cmd.Example)
	}
	return nil
}

const commonUsage = `  %s VERB          (for a program of that name: lklrun -- NAME)

COMMON FLAGS     (all: lklrun help flags)
  --stack NAME      mptcp (default), bbr, vanilla, host, or a folder
  --if SPEC         interface: %s
  --sysctl N=V      change a setting of the stack's kernel
  --dry-run         print the plan without running it
  -v, --verbose     report each step and a final account
`
