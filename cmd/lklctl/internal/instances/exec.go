// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/instance/ctlexec"
	"github.com/lklrun/lklrun/internal/remote/desk"
	"github.com/lklrun/lklrun/internal/remote/session"
)

// exitOwn is the exit status if the program could not be started, as in lklrun.
const exitOwn = 125

// Exec is the verb exec.
func Exec(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [-n NAME] [NAME] [--] COMMAND [ARG]...",
		Short: "run another program on an instance's stack",
		Long: `exec runs another program on the stack of a running instance, with the user,
rights and limits of the instance. It exits with the status of the program.

In "exec NAME -- COMMAND", NAME is an instance if one of that name runs. In
"exec -- COMMAND", every word belongs to the program.`,
		Example:           "  lklctl exec ip addr\n  lklctl exec web -- curl -s http://127.0.0.1/\n  lklctl exec bash",
		Args:              verb.SomeArgs("COMMAND"),
		ValidArgsFunction: c.CompleteNameThen,
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := execArgs(c, cmd, args)
			if err != nil {
				return err
			}
			return execProgram(c, cmd, args)
		},
	}
	c.Flags(cmd.Flags(), true)
	verb.Must(cmd.Flags().MarkHidden("output"))
	verb.Must(cmd.Flags().MarkHidden("json"))
	cmd.Flags().SetInterspersed(false) // arguments after the command belong to the command
	return cmd
}

// execArgs returns the command of exec. It selects the instance that the words before --
// name. Instances are often named after their program, so an instance takes precedence
// over a program of the same name, whose first argument would be --.
func execArgs(c *verb.Call, cmd *cobra.Command, args []string) ([]string, error) {
	if cmd.ArgsLenAtDash() == 0 || c.Name != "" {
		return args, nil
	}
	named := c.Running(args[0])
	if len(args) > 1 && args[1] == "--" {
		_, err := osexec.LookPath(args[0])
		switch {
		case !named && (c.Far != nil || err == nil || instance.CheckName(args[0]) != nil):
			return args, nil
		case len(args) == 2:
			return nil, exit.Usagef("no COMMAND given; see %s --help", cmd.CommandPath())
		}
		c.Name = args[0]
		return args[2:], nil
	}
	if named && len(args) > 1 && c.Far == nil {
		if _, err := osexec.LookPath(args[0]); err != nil {
			return nil, exit.Usagef("%q is an instance, not a program; use %s %[1]s -- COMMAND", args[0], cmd.CommandPath())
		}
	}
	return args, nil
}

// execProgram runs the verb exec. It ends with the program's exit status or signal.
func execProgram(c *verb.Call, cmd *cobra.Command, args []string) error {
	if c.Output != cli.OutputTable {
		return exit.Usagef("-o %s: %s prints the output of the program unchanged; remove -o; see %s --help", c.Output, cmd.Name(), cmd.CommandPath())
	}
	end, err := exec(cmd.Context(), c, args)
	switch {
	case exit.Status(err) == exit.Usage:
		return err
	case err != nil:
		cli.Fail(c.Stderr, verb.Program, err)
		end = exit.End{Status: exitOwn}
	}
	return &verb.EndError{End: end}
}

// IP returns the verb ip, which is a shortcut for the most common use of exec.
func IP(c *verb.Call) *cobra.Command {
	return shortcut(c, "ip", "  lklctl ip -br addr\n  lklctl ip route show table all\n  lklctl -n web ip -s link")
}

// Ping returns the verb ping.
func Ping(c *verb.Call) *cobra.Command {
	return shortcut(c, "ping", "  lklctl ping -c 3 192.0.2.1\n  lklctl -n web ping -I eth1 -n example.com")
}

// Tcpdump returns the verb tcpdump.
func Tcpdump(c *verb.Call) *cobra.Command {
	return shortcut(c, "tcpdump", "  lklctl tcpdump -ni eth0 port 80\n  lklctl tcpdump -i any -c 100 -w trace.pcap\n  lklctl -n web tcpdump -vv icmp")
}

// shortcut returns a verb that runs the program of the same name.
func shortcut(c *verb.Call, program, example string) *cobra.Command {
	return &cobra.Command{
		Use:   program + " [ARG]...",
		Short: "run " + program + "(8) on a stack",
		Long: fmt.Sprintf(`%[1]s runs %[1]s(8) on the stack of an instance, as "lklctl exec -- %[1]s"
does. Flags of lklctl precede the verb; the flags after it are those of %[1]s.`, program),
		Example:            example,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return execProgram(c, cmd, append([]string{program}, args...))
		},
	}
}

// exec runs a program on the selected instance's stack, with the standard streams
// of this process. It returns how the program ended.
func exec(ctx context.Context, c *verb.Call, args []string) (exit.End, error) {
	if err := ctlexec.Check(&instance.Info{}, args); err != nil {
		return exit.End{}, err
	}
	attaching, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	if c.Far != nil {
		info, err := c.Choose()
		cancel()
		if err != nil {
			return exit.End{}, err
		}
		return execElsewhere(ctx, c, info, args)
	}
	info, conn, err := c.Attach(attaching)
	cancel()
	if err != nil {
		return exit.End{}, err
	}
	defer conn.Close()
	streams := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	return ctlexec.Run(ctx, info, conn, args, streams, func(format string, args ...any) { cli.Note(c.Stderr, verb.Program, format, args...) })
}

// execElsewhere makes lklrun on the device run the program, in a session like that
// of a run.
func execElsewhere(ctx context.Context, c *verb.Call, info *instance.Info, args []string) (exit.End, error) {
	if err := ctlexec.Check(info, args); err != nil {
		return exit.End{}, err
	}
	start := session.StartMessage{Args: append([]string{"device", "program", info.Name}, args...)}
	return desk.Run(context.WithoutCancel(ctx), c.Far.Ready(), start)
}
