// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/exit"
	"github.com/lklrun/lklrun/internal/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/launch"
	"github.com/lklrun/lklrun/internal/plan"
	"github.com/lklrun/lklrun/internal/program"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

const self = "lklrun"

// exitOwn is the status when a run failed by lklrun's doing or the stack's, not
// the command's; as env(1) and nohup(1) have it.
const exitOwn = 125

// errRun marks an error of a run, as against one of another verb.
type errRun struct{ error }

func (e errRun) Unwrap() error { return e.error }

// execute runs the command line and returns how the process shall end.
func execute(args []string) exit.End {
	r := &runner{}
	cmd := r.command()
	cmd.AddCommand(verbs()...)
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd(args...)
	for _, c := range cmd.Commands() {
		switch c.Name() {
		case "help":
			c.Short = "print the help of a verb"
		case "completion":
			c.Short = "print a completion script for a shell"
		}
	}
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		cli.Fail(os.Stderr, self, err)
		return exit.End{Status: status(err)}
	}
	return r.end
}

func verbs() []*cobra.Command {
	return []*cobra.Command{cleanupCommand(), doctorCommand(), stacksCommand(), versionCommand()}
}

func status(err error) int {
	var (
		usage    *cli.UsageError
		running  *instance.RunningError
		inUse    *hostnet.InUseError
		refused  *launch.RefusedError
		hostSaid *stackconn.RefusedError // a library that is no stack, no namespaces
		command  *program.Error
	)
	switch {
	case errors.As(err, &command):
		return command.Status
	case errors.As(err, &usage), errors.As(err, &running), errors.As(err, &inUse),
		errors.As(err, &refused), errors.As(err, &hostSaid):
		return cli.ExitUsage
	case errors.As(err, new(errRun)):
		return exitOwn
	}
	return cli.ExitFailure
}

// runner is the verb without a name: it runs a command.
type runner struct {
	stack, name, mem, engine, require string
	interfaces, sysctls, dns          []string
	dryRun, verbose, quiet            bool
	output                            cli.Output
	end                               exit.End
}

const longHelp = `lklrun runs a program, unmodified, on a network stack of your choice: the Linux
kernel itself, built as a library. The program and all its children see the
stack's interfaces, eth0, eth1, ..., and no others. No module is loaded, the
host's stack stays as it is, and when the program ends nothing is left of the
run.

Without --if the stack has one interface, which leads to a gateway inside
lklrun. It needs no rights and no set-up, but TCP ends there. With taps the
stack's own packets reach the wire.

INTERFACES
  --if TYPE[:ARG][,KEY=VALUE]...

  user       the gateway: whatever the host reaches, by IPv4 and IPv6; on its
             network 192.168.127.254 is the host's own 127.0.0.1
  tap:NAME   the host's tap device NAME, made if it is absent and removed again
  fd:N       descriptor N, inherited: a SOCK_DGRAM or SOCK_SEQPACKET socket that
             carries a frame a message, or a tap

  ip=, ip6=    ADDRESS/PREFIX, each as often as needed
  gw=, gw6=    the default gateway
  mac=, mtu=   as the names say

  They appear in the stack in the order given, each with a routing table of its
  own (100, 101, ...) and, where TCP becomes MPTCP, as an endpoint.

REQUIREMENTS
  --require stack   the program made a socket on the stack, and none was refused
  --require mptcp   moreover a connection was MPTCP, and none was plain TCP or
                    fell back to it

EXIT STATUS
  The program's own. A signal that ended it ends lklrun too, save SIGKILL,
  which is 137. Else:

  2      the command line asks for what the host or the stack does not allow:
         the program was not started
  123    the program ended with 0, but did not meet --require
  125    lklrun or the stack failed
  126    the program cannot be executed
  127    the program was not found`

const examples = `  lklrun curl http://example.com/
  lklrun --stack bbr --dns 192.0.2.53 -- wget http://example.com/file
  lklrun --if tap:tap0,ip=10.0.1.2/24,gw=10.0.1.1 \
         --if tap:tap1,ip=10.0.2.2/24,gw=10.0.2.1 -- curl -O http://10.0.9.1/
  lklrun --sysctl net.ipv4.tcp_ecn=1 -v -- iperf3 -c server
  lklrun --dry-run --if tap:tap0,ip=10.0.1.2/24 -- true
  lklctl netstat              # meanwhile, from another terminal`

func (r *runner) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "lklrun [FLAG]... [--] COMMAND [ARG]...",
		Short:         "run a program on a network stack of your choice",
		Long:          longHelp,
		Example:       examples,
		Version:       version(),
		Args:          cobra.ArbitraryArgs, // a command's, not the names of verbs
		SilenceErrors: true,
		SilenceUsage:  true,
		// The usage line says it.
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			return r.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	f.StringVar(&r.stack, "stack", stack.Default, "`NAME` of a stack, or its folder's path")
	f.StringArrayVar(&r.interfaces, "if", nil, "`SPEC` of an interface, as above; repeatable")
	f.StringArrayVar(&r.sysctls, "sysctl", nil, "setting of the stack, `NAME=VALUE`; repeatable")
	f.StringArrayVar(&r.dns, "dns", nil, "name server, else the host's; repeatable `ADDRESS`")
	f.StringVar(&r.name, "name", "", "`NAME` of this run for lklctl, else the command's")
	f.StringVar(&r.mem, "mem", "", "`SIZE` of the stack's memory, such as 64M or 1G")
	f.StringVar(&r.engine, "engine", config.EngineAuto, "interception of sockets, `auto|supervise`")
	f.StringVar(&r.require, "require", "", "what the program must have used, `stack|mptcp`; see above")
	f.BoolVar(&r.dryRun, "dry-run", false, "print what would be done, and do nothing")
	r.output = cli.OutputTable
	f.VarP(&r.output, "output", "o", "form of what --dry-run prints")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "tell each step, its time, and the final account")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "leave out the notes at the start")
	f.BoolP("help", "h", false, "print this")
	f.Bool("version", false, "print the version")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.Usagef("%w; %s --help shows the flags", err, cmd.CommandPath())
	})
	cmd.SetUsageTemplate(usageTemplate)
	cmd.SetVersionTemplate("{{.Version}}\n")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("stack", completeStack))
	return cmd
}

// checkFlags refuses what would be given in vain.
func checkFlags(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = cli.Usagef("--%s: an empty word; leave it out or give a value", f.Name)
		}
	})
	if err == nil && flags.Changed("output") && !flags.Changed("dry-run") {
		err = cli.Usagef("--output: is for what --dry-run prints; a run's output is the command's own")
	}
	return err
}

func (r *runner) run(ctx context.Context, args []string) error {
	run, err := r.parse(args)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	s, err := stack.Find(run.Stack, stack.SearchPath())
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--stack: %w", err)}
	}
	facts, err := plan.Look(run, s)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	p, err := plan.Make(run, s, facts)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	if r.dryRun {
		if r.output == cli.OutputJSON {
			return cli.WriteJSON(os.Stdout, p)
		}
		return p.Write(os.Stdout)
	}
	host, err := launch.FindHost()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	r.end, err = launch.Run(ctx, p, launch.Options{
		HostPath: host,
		Log:      logger(r.verbose),
		Tell:     func(line string) { cli.Note(os.Stderr, self, "%s", cli.OneLine(line)) },
		Quiet:    r.quiet,
	})
	if err != nil {
		return errRun{err}
	}
	return nil
}

// parse turns the flags' words into data; the error names the flag.
func (r *runner) parse(args []string) (config.Run, error) {
	run := config.Run{Stack: r.stack, Name: r.name, Command: args}
	if len(args) == 0 {
		return run, errors.New("no command to run; expected lklrun [FLAG]... -- COMMAND [ARG]...")
	}
	if r.name != "" {
		if err := instance.CheckName(r.name); err != nil {
			return run, fmt.Errorf("--name: %w", err)
		}
	}
	var err error
	if run.Interfaces, err = each("--if", r.interfaces, config.ParseInterface); err != nil {
		return run, err
	}
	if err := config.CheckInterfaces(run.Interfaces); err != nil {
		return run, fmt.Errorf("--if %w", err)
	}
	if run.Sysctls, err = each("--sysctl", r.sysctls, config.ParseSysctl); err != nil {
		return run, err
	}
	if run.DNS, err = each("--dns", r.dns, func(s string) (netip.Addr, error) { return config.ParseDNS(s) }); err != nil {
		return run, err
	}
	if r.mem != "" {
		if run.Mem, err = config.ParseMem(r.mem); err != nil {
			return run, fmt.Errorf("--mem %w", err)
		}
	}
	if r.require != "" {
		if run.Require, err = config.ParseRequire(r.require); err != nil {
			return run, fmt.Errorf("--require %w", err)
		}
	}
	if run.Engine, err = config.ParseEngine(r.engine); err != nil {
		return run, fmt.Errorf("--engine %w", err)
	}
	return run, nil
}

// each parses the words of a flag that may be given more than once.
func each[T any](flag string, words []string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for _, w := range words {
		v, err := parse(w)
		if err != nil {
			return nil, fmt.Errorf("%s %w", flag, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// logger is where -v goes.
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

func completeStack(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _ := stack.List(stack.SearchPath()) // what cannot be read is not offered
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"\t"+s.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// usageTemplate is cobra's, in this program's order and within 80 columns.
var usageTemplate = strings.TrimLeft(`
USAGE
  {{if .Runnable}}{{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} VERB{{end}}{{if .HasAvailableSubCommands}}

VERBS{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

  A program of such a name is run by lklrun -- NAME.{{end}}{{if .HasAvailableLocalFlags}}

FLAGS
{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}{{end}}{{if .HasExample}}

EXAMPLES
{{.Example}}{{end}}
`, "\n")
