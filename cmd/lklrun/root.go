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

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/launch"
	"github.com/lklrun/lklrun/internal/plan"
	"github.com/lklrun/lklrun/internal/program"
	"github.com/lklrun/lklrun/internal/stack"
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
	cmd.AddCommand(deskVerbs(cmd)...)
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
	return []*cobra.Command{cleanupCommand(), configCommand(), deviceCommand(), doctorCommand(), profilesCommand(), stacksCommand(), versionCommand()}
}

func status(err error) int {
	var (
		far     interface{ Status() int } // of another machine
		usage   *cli.UsageError
		running *instance.RunningError
		place   *instance.PlaceError
		command *program.Error
	)
	switch {
	case errors.As(err, &command):
		return command.Status
	case errors.As(err, &far):
		return far.Status()
	case errors.As(err, &usage), errors.As(err, &running), errors.As(err, &place), launch.Mendable(err):
		return cli.ExitUsage
	case errors.As(err, new(errRun)):
		return exitOwn
	}
	return cli.ExitFailure
}

// runner is the verb without a name: it runs a command.
type runner struct {
	sources
	far
	config     *config.Config
	dryRun     bool
	background int // the descriptor of detach.go, -1: none
	report     int // that of ab.go, -1: none
	cmd        *cobra.Command
	output     cli.Output
	end        exit.End
}

var longHelp = `lklrun runs a program, unmodified, on a network stack of your choice: the Linux
kernel itself, built as a library. The program and all its children see the
stack's interfaces, eth0, eth1, ..., and no others. No module is loaded, the
host's stack stays as it is, and when the program ends nothing is left of the
run.

Without --if the stack has one interface, which leads to a gateway inside
lklrun. It needs no rights and no set-up, but TCP ends there. With tap, macvtap,
raw and rawip the stack's own packets reach the wire.

INTERFACES
  --if TYPE[:ARG][,KEY[=VALUE]]...

` + config.InterfaceHelp() + `
  A key without a value means on.

  They appear in the stack in the order given, each with a routing table of its
  own (100, 101, ...) and, where TCP becomes MPTCP, as an endpoint.

DESTINATIONS
  --host-net CIDR[:PORT]

  Connections and datagrams to such an address go by the host's stack, such as
  those to a database on its loopback: 127.0.0.1:5432, [::1]:5432, 10.0.0.0/8.
  All others stay on the stack; unix sockets are always the host's. -v tells how
  many went where. --require neither counts them nor takes them amiss.

SERVERS
  --publish [ADDRESS:]HOSTPORT:PORT[/udp]   with user and passt: who asks the
  host at HOSTPORT reaches the program's PORT. Without ADDRESS that is for the
  host itself, at 127.0.0.1 and ::1; 0.0.0.0 and [::] are all its addresses.

SHARED ADDRESSES
  With raw and rawip the stack can have the host's own address. Its connections
  then come from ports that are reserved on the host, 4096 of them or as
  --port-range says, and its servers have the ports that --listen names. What is
  sent to these is kept from the host's kernel, which would answer it with
  resets, and nothing else is. --rst-guard says how: by nft or iptables, auto by
  what there is, off not at all; print shows the rules and does nothing. The
  host itself cannot reach such a server, nor the program the host.

ENGINES
  supervise   a process beside the program answers its socket calls: for any
              program, and all that it starts. Auto means this, where the host
              has seccomp user notification
  preload     the kernel is loaded into the program itself, which is faster: for
              one dynamic program; what that starts has no network. "lklrun
              doctor COMMAND" tells which commands can have it

  --lane is for programs that send much under supervise: a library is loaded
  into them, by LD_PRELOAD, that carries their large writes in memory which they
  share with the process beside them. A program that cannot load it, a static
  one for instance, runs as without.

DAEMONS
  The run ends with the command's first process, which takes all others with it.
  With --wait-all it ends with the last of them, and has the first one's status:
  for a daemon that forks away. With --detach that happens in the background:
  lklrun prints the run's name and ends with 0 as soon as the command runs.
  "lklctl stop" ends it, "lklctl wait" waits for its end and has its status.

OTHER MACHINES
  --device DEVICE[,DEVICE]...

  adb[:SERIAL]             an Android device, the only one or that with SERIAL
  all                      all devices that adb has
  ssh:[USER@]HOST[:PORT]   a machine that ssh reaches

  COMMAND, a program of that machine, runs on a stack there as if it were here:
  input, output, terminal, signals and exit status are this lklrun's. What is
  needed there is put there once, in one folder, and nothing is installed. The
  run ends with this lklrun, or within 10 seconds of the loss of the way there;
  with --stay it goes on, and "lklctl --device DEVICE stop" ends it. Of several
  devices each line of output bears the name, a table at the end the outcomes,
  and the exit status is that of the first that did not end with 0.
  "lklrun doctor --device DEVICE" looks at a device, "lklrun cleanup --device
  DEVICE" takes lklrun away from it.

CAPTURES
  --capture FILE[,snap=BYTES][,if=NAME]...[,filter=EXPRESSION]
  --capture ring[,size=SIZE][,snap=BYTES][,if=NAME]...[,filter=EXPRESSION]

  Writes the stack's packets to a pcapng file for Wireshark, from the first one,
  before the interfaces are configured: of all interfaces or of those named, the
  whole or the first BYTES of each, all or those that the EXPRESSION of
  pcap-filter(7) lets through. A disk that is slow or full costs packets, not
  the run. "lklctl capture" begins and ends one while the stack runs.
  A ring keeps the last packets in memory, 1M of them with 128 bytes of each
  unless told otherwise: they are in what a panic leaves, and in that of
  "lklctl bundle". A file of that name is ./ring.

CONFIGURATION
  Each flag can be a variable, such as LKLRUN_STACK and LKLRUN_IF, or stand in a
  file of JSON: that of --config, else ~/.config/lklrun/config.json. Flags are
  the strongest. "lklrun config" shows what holds and where it comes from;
  "lklrun config --help" tells the rest.

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
  125    lklrun, the stack or the way to the DEVICE failed
  126    the program cannot be executed
  127    the program was not found`

const examples = `  lklrun curl http://example.com/
  lklrun --stack bbr --dns 192.0.2.53 -- wget http://example.com/file
  lklrun --if tap:tap0,ip=10.0.1.2/24,gw=10.0.1.1 \
         --if tap:tap1,ip=10.0.2.2/24,gw=10.0.2.1 -- curl -O http://10.0.9.1/
  lklrun --sysctl net.ipv4.tcp_ecn=1 -v -- iperf3 -c server
  lklrun --dry-run --if tap:tap0,ip=10.0.1.2/24 -- true
  lklrun --device adb --iface wlan0,rmnet0 -- /data/local/tmp/fetch
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
			if cmd.Flags().Changed("output") && !r.dryRun {
				return cli.Usagef("--output: is for what --dry-run prints; a run's output is the command's own")
			}
			r.cmd = cmd
			if done, err := r.far.run(cmd.Context(), r, args); done {
				return err
			}
			return r.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	r.far.add(f, deviceHelp+", as above")
	r.addStay(f)
	r.sources.add(f, ", as above")
	f.IntVar(&r.background, "detached", -1, "")
	cobra.CheckErr(f.MarkHidden("detached"))
	f.IntVar(&r.report, "report", -1, "")
	cobra.CheckErr(f.MarkHidden("report"))
	f.BoolVar(&r.dryRun, "dry-run", false, "print what would be done, and do nothing")
	r.output = cli.OutputTable
	f.VarP(&r.output, "output", "o", "form of what --dry-run prints")
	f.BoolP("help", "h", false, "print this")
	f.Bool("version", false, "print the version")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.Usagef("%w; %s --help shows the flags", cli.FlagError(err), cmd.CommandPath())
	})
	cmd.SetUsageTemplate(usageTemplate)
	cmd.SetVersionTemplate("{{.Version}}\n")
	completeFlags(cmd)
	return cmd
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
		return launch.PrintGuard(ctx, os.Stdout, p)
	}
	run := &r.config.Run
	if run.Detach && r.background < 0 {
		if st, err := os.Stat(r.file); r.file != "" && err == nil && !st.Mode().IsRegular() {
			return cli.Usagef("--config %s: can be read but once, and --detach reads it twice; give a file", r.file)
		}
		if err := r.detach(os.Args[1:]); err != nil {
			return errRun{err}
		}
		return nil
	}
	host, err := launch.FindHost()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	library, err := launch.FindPreload(host, p.Engine)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	lane, err := launch.FindLane(host, p.Lane)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	opts := launch.Options{
		HostPath: host, PreloadPath: library, LanePath: lane,
		Log:    logger(run.Verbose),
		Tell:   func(line string) { cli.Note(os.Stderr, self, "%s", cli.OneLine(line)) },
		Quiet:  run.Quiet,
		Report: reportTo(r.report),
	}
	if r.background >= 0 {
		return newBackground(r.background).run(r, p, opts)
	}
	r.end, err = launch.Run(ctx, p, opts)
	if err != nil {
		return errRun{located(r.config, err)}
	}
	return nil
}

// plan reads the configuration and plans the run. All that is wrong by now is
// the user's to mend.
func (r *runner) plan(args []string) (*plan.Plan, error) {
	var err error
	if r.config, err = r.load(args); err != nil {
		return nil, err
	}
	if err := plan.Pick(&r.config.Run); err != nil {
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
	facts, err := plan.Look(run, s)
	if err != nil {
		return nil, located(r.config, err)
	}
	p, err := plan.Make(run, s, facts)
	return p, located(r.config, err)
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
