// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/capture"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/counters"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/drops"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/explain"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/instances"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/kernel"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/link"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/live"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/mptcp"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/sockets"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/suggest"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
)

// run is main without the exit. It returns how the process must end.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) exit.End {
	return perform(ctx, verb.New(stdout, stderr), args)
}

// perform carries out one command line.
func perform(ctx context.Context, c *verb.Call, args []string) exit.End {
	root := rootCommand(c)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	// An error before a verb's body starts is an error of the command line. Some of
	// these errors, such as those of flags before the verb, do not pass through
	// flagError.
	if err != nil && !c.Began && exit.Status(err) != exit.Usage {
		err = flagError(root, err)
	}
	if end := (*verb.EndError)(nil); errors.As(err, &end) {
		return end.End
	}
	return exit.End{Status: c.Fail(err)}
}

func rootCommand(c *verb.Call) *cobra.Command {
	root := &cobra.Command{
		Use:           "lklctl [-n NAME] [-o table|json] VERB",
		Short:         "inspect and change the stacks of lklrun",
		Long:          "lklctl inspects and changes running stacks of lklrun.",
		SilenceErrors: true,
		SilenceUsage:  true,
		// The flags -n and -o are valid before the verb, and each verb defines
		// them, too. If they were persistent flags, they would conflict with the
		// flag -n of netstat.
		TraverseChildren: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exit.Usagef("unknown verb %q; %s", args[0], suggest.Suggest(args[0], verbs(cmd), "see "+verb.Program+" --help"))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version, _ := cmd.Flags().GetBool("version"); version {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), cli.Version(verb.Program))
				return err
			}
			return cmd.Help()
		},
		ValidArgsFunction: completeAliases,
	}
	root.SetOut(c.Stdout)
	root.SetErr(c.Stderr)
	c.Flags(root.Flags(), true)
	root.Flags().Bool("version", false, "print the version")
	verb.Must(root.Flags().MarkHidden("json")) // -o is enough on the first screen
	for _, g := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{"Inspect:", []*cobra.Command{
			instances.List(c),
			sockets.Netstat(c),
			mptcp.Command(c),
			explain.Command(c),
			counters.Command(c),
			drops.Drops(c),
			drops.Resets(c),
			capture.Command(c),
			instances.Tcpdump(c),
			capture.Extcap(c),
			instances.Account(c),
			instances.Egress(c),
			link.Lease(c),
			instances.Guard(c),
			kernel.Dmesg(c),
			instances.Bundle(c),
			kernel.Cat(c),
			live.Top(c),
			live.Web(c),
		}},
		{"Change:", []*cobra.Command{
			sockets.Kill(c),
			kernel.Sysctl(c),
			link.Command(c),
			link.Addr(c),
			link.Path(c),
		}},
		{"Run programs, manage instances:", []*cobra.Command{
			instances.Exec(c),
			instances.IP(c),
			instances.Ping(c),
			instances.Wait(c),
			instances.Stop(c),
			instances.Logs(c),
			instances.Remove(c),
			instances.App(c),
			kubectlCommand(c),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, v := range g.verbs {
			v.GroupID = g.title
			root.AddCommand(v)
		}
	}
	root.AddCommand(cli.ManCommand(root, topics...))
	root.SetUsageFunc(printUsage)
	root.SetHelpFunc(printHelp)
	prepareCommand(c, root)
	root.InitDefaultCompletionCmd("")
	root.SetHelpCommand(cli.HelpCommand(root, topics))
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Short = "print a completion script for a shell"
		}
	}
	return root
}

// topics contains the pages of `lklctl help TOPIC`.
var topics = []cli.Topic{
	{Name: "exit-status", Short: "what each exit status means", Text: `  0      success
  1      the verb failed, or found nothing that the command line names;
         with --fail-empty, also if a list is empty
  2      the command line is wrong; nothing was done
  3      no instance of that name is running
  125    the connection to the device failed

"lklctl exec" exits with the status of its program, "lklctl wait" with that of
the instance's program. If a signal ended the program, lklctl ends by the same
signal, except SIGKILL, which becomes 137. Otherwise:

  125    no such instance runs, or the stack or the connection failed
  126    exec: the program cannot be executed
  127    exec: the program was not found
`},
	{Name: "examples", Short: "common commands", Text: `  lklctl ps                              # running instances; -a: also ended ones
  lklctl mptcp                           # MPTCP connections and their subflows
  lklctl sysctl -w net.ipv4.tcp_congestion_control=bbr
  lklctl -n web netstat -ti              # TCP sockets of the run "web"
  lklctl capture -w trace.pcapng tcp port 80
  lklctl tcpdump -ni eth0 port 80        # the real tcpdump, on the stack's packets
  lklctl exec web -- ss -tin             # any program, on the same stack
  lklctl logs -f web                     # the output of lklrun --detach
  lklctl --device adb mptcp              # a stack that runs on a phone
`},
	{Name: "filters", Short: "select sockets for netstat and kill", Text: `FILTER selects sockets in the syntax of ss(8): states first, then conditions.

  [state STATE | exclude STATE]... [CONDITION...]

Conditions:

  dst, src [=|!=] HOST          HOST is ADDRESS[/BITS][:PORT]
  dport, sport OPERATOR :PORT   OPERATOR is =, !=, >, <, >= or <=
  dev [=|!=] INTERFACE          the socket is bound to this interface

Combine conditions with "and", "or", "not" and parentheses. "and", "or" and two
adjacent conditions have the same precedence and apply from left to right.

Unless the filter names states, netstat shows sockets in every state, and kill
ends only connected ones. kill -l ends listening sockets, kill -a all of them.

  lklctl netstat state established dst 192.0.2.0/24
  lklctl netstat '( dport = :443 or dport = :80 )'
  lklctl kill -t dport = :443 and src 10.1.0.2
`},
	{Name: "instances", Short: "select an instance", Text: `If only one instance runs, no name is necessary. Otherwise:

  lklctl -n NAME VERB            before the verb, -n selects the instance
  lklctl VERB --name NAME        the same, after the verb
  lklctl stop|wait|logs NAME     verbs about the instance itself
  lklctl exec NAME -- COMMAND    if an instance of that name runs
  lklctl exec -- COMMAND         every word belongs to the program

NAMESPACE/POD selects the instance of a pod wherever NAME does.

After the verb, -n means what it means to the program whose name the verb has:
numeric output for netstat, ss, tcpdump and ping. For the other verbs, -n selects
the instance there, too.

"lklctl list -a" also shows runs of "lklrun --detach" that have ended. wait, logs
and rm accept their names.
`},
	{Name: "path-steps", Short: "impair the packets of an interface with path", Text: `A step changes the settings that it names and keeps the others. It applies to
both directions, unless --direction selects one.

  down              remove the carrier, as if the cable were pulled
  silent            drop every packet without notice
  up                restore the carrier, and let packets pass
  delay TIME        hold each packet for that time, such as 80ms
  jitter TIME       vary the delay by up to that time; packets can be reordered
  rate RATE         limit the rate, such as 20mbit, with a queue of 100 ms
  loss SHARE        drop packets with that probability, such as 2%
  duplicate SHARE   duplicate packets with that probability
  reorder SHARE     send packets without the delay with that probability
  corrupt SHARE     flip one bit of a packet with that probability
  limit PACKETS     hold at most that many packets for delay and rate
  seed NUMBER       make the random decisions of a step repeatable
  clear             remove all of these settings

Units are those of tc(8), and a time or a rate requires one. A number without a
unit is percent for a SHARE of 1 or more. The value 0 removes a setting. The
interface keeps its own queueing discipline.

  lklctl path eth1 delay 40ms loss 1% rate 20mbit
  lklctl path eth1 down --for 10s
  lklctl path eth0 silent --direction in
`},
	{Name: "settings", Short: "keys, patterns and files of sysctl", Text: `KEY is the name of a setting, with dots or slashes. A directory stands for all
settings below it. PATTERN is a part of a key, or a glob such as
'net.ipv4.tcp_*mem'.

--save and --load use the format of sysctl.conf(5). The file - is standard input
or output.

  KEY = VALUE    change a setting; in a glob, * does not match dots
  -KEY = VALUE   change a setting, and ignore a failure
  -KEY           exclude a setting from globs
  # TEXT         comment; also ; TEXT

-w and --load change all settings or none: lklctl checks every key first, and
restores the previous values if the stack refuses one. With -e, lklctl reports
failures and continues.

  lklctl sysctl net.ipv4.tcp_congestion_control
  lklctl sysctl --save tcp.conf 'net.ipv4.tcp_*'
  lklctl sysctl --load tcp.conf --dry-run
`},
}

// printHelp prints the help of a verb, or of lklctl itself, which must fit on one screen.
// Templates of cobra would add 4 MB, because the linker keeps every exported method in a
// program with text/template.
func printHelp(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	if cmd.HasParent() {
		if text := strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)); text != "" {
			fmt.Fprintf(w, "%s\n\n", text)
		}
		fmt.Fprint(w, cmd.UsageString())
		return
	}
	fmt.Fprintf(w, "Usage: %s\n\n", cmd.UseLine())
	for _, g := range cmd.Groups() {
		fmt.Fprintln(w, g.Title)
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID {
				fmt.Fprintf(w, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	fmt.Fprint(w, `Flags: -n NAME (an instance), -o json, --device adb|ssh:HOST, --version. Help:
lklctl help VERB|examples|exit-status|filters|instances|path-steps|settings
`)
}

// printUsage prints the part of the help that follows the description.
func printUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprint(w, "Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(w, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nAvailable Commands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s\n", strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(helpColumns), " \n"))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nUse \"%s [command] --help\" to show its help.\n", cmd.CommandPath())
	}
	return nil
}

// verbs returns the names of a command's subcommands.
func verbs(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// completeAliases completes the other names of verbs, which cobra omits.
func completeAliases(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	for _, c := range cmd.Commands() {
		for _, name := range c.Aliases {
			if len(args) == 0 && strings.HasPrefix(name, toComplete) {
				found = append(found, cobra.CompletionWithDesc(name, c.Short))
			}
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// helpColumns is the width of the help.
const helpColumns = 80

// prepareCommand performs the common setup of a command and its subcommands.
func prepareCommand(c *verb.Call, cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		prepareCommand(c, below)
	}
	cmd.DisableFlagsInUseLine = true
	cmd.InitDefaultHelpFlag()
	cmd.Flags().Lookup("help").Usage = "show this help"
	cmd.SetFlagErrorFunc(flagError)
	body := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.Perform(cmd, args, body)
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"name":   c.CompleteInstances,
		"output": cobra.FixedCompletions([]cobra.Completion{"table", "json"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if _, known := cmd.GetFlagCompletionFunc(flag); cmd.Flags().Lookup(flag) != nil && !known {
			verb.Must(cmd.RegisterFlagCompletionFunc(flag, complete))
		}
	}
}

// removed maps former flags, and former values of flags, to their replacements.
var removed = map[string]string{
	"lklctl counters --differences": "use lklctl counters --around -- sleep SECONDS",
	"lklctl counters --exec":        "use lklctl counters --around -- lklctl exec COMMAND",
	"lklctl netstat --kill":         "use lklctl kill FILTER",
	"lklctl netstat -K":             "use lklctl kill FILTER",
	"lklctl path --script":          "run the steps from a shell, as in: lklctl path eth1 down --for 3s; sleep 2",
}

// removal returns an error with the remedy if err is about a removed flag or value.
func removal(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var flag, value string
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		flag = "-" + unknown.GetSpecifiedName()
	case errors.As(err, &unknown):
		flag = "--" + unknown.GetSpecifiedName()
	case errors.As(err, &invalid):
		flag, value = "--"+invalid.GetFlag().Name, "="+invalid.GetValue()
	}
	if remedy := removed[cmd.CommandPath()+" "+flag]; remedy != "" {
		return exit.Usagef("%s%s was removed; %s", flag, value, remedy)
	}
	return nil
}

// flagError converts an error about flags to our form: one line with the
// remedy.
func flagError(cmd *cobra.Command, err error) error {
	if err := removal(cmd, err); err != nil {
		return err
	}
	text := strings.TrimSuffix(text.OneLine(cli.FlagError(cmd.Flags(), err).Error()), ".")
	if strings.HasSuffix(text, "?") { // the error already contains a suggestion
		return exit.Usagef("%s", text)
	}
	return exit.Usagef("%s; see %s --help", text, cmd.CommandPath())
}
