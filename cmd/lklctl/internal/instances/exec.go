// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/instance/further"
	"github.com/lklrun/lklrun/internal/remote/desk"
	"github.com/lklrun/lklrun/internal/remote/session"
)

// exitOwn is the exit status if the program could not be started, as in lklrun.
const exitOwn = 125

// Exec is the verb exec.
func Exec(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [-n NAME] [--] COMMAND [ARG]...",
		Short: "run another program on an instance's stack",
		Long: `exec runs another program on the stack of a running instance, with the user,
rights and limits of the instance. It exits with the status of the program.`,
		Example: "  lklctl exec ip addr\n  lklctl exec -n web -- curl -s http://127.0.0.1/\n  lklctl exec bash",
		Args:    verb.SomeArgs("COMMAND"),
		RunE:    func(cmd *cobra.Command, args []string) error { return execProgram(c, cmd, args) },
	}
	c.Flags(cmd.Flags(), true)
	verb.Must(cmd.Flags().MarkHidden("output"))
	cmd.Flags().SetInterspersed(false) // arguments after the command belong to the command
	return cmd
}

// execProgram runs the verb exec. It ends with the program's exit status or signal.
func execProgram(c *verb.Call, cmd *cobra.Command, args []string) error {
	if c.Output != cli.OutputTable {
		return exit.Usagef("-o %s: %s prints the output of the program unchanged; remove -o; see %s --help", c.Output, cmd.Name(), cmd.CommandPath())
	}
	end, err := exec(cmd.Context(), c, args)
	var usage *exit.UsageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		cli.Fail(c.Stderr, verb.Program, err)
		end = exit.End{Status: exitOwn}
	}
	return &verb.EndError{End: end}
}

// IP returns the verb ip, which is a shortcut for the most common use of exec.
func IP(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ip [ARG]...",
		Short: "run ip(8) on a stack",
		Long: `ip runs ip(8) on the stack of an instance, as "lklctl exec -- ip" does. Flags of
lklctl precede the verb; the flags after it are those of ip.`,
		Example:            "  lklctl ip -br addr\n  lklctl ip route show table all\n  lklctl -n web ip -s link",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return execProgram(c, cmd, append([]string{"ip"}, args...))
		},
	}
	return cmd
}

// exec runs a program on the selected instance's stack, with the standard streams
// of this process. It returns how the program ended.
func exec(ctx context.Context, c *verb.Call, args []string) (exit.End, error) {
	if err := further.Check(&instance.Info{}, args); err != nil {
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
	return further.Run(ctx, info, conn, args, streams, func(format string, args ...any) { cli.Note(c.Stderr, verb.Program, format, args...) })
}

// execElsewhere makes lklrun on the device run the program, in a session like that
// of a run.
func execElsewhere(ctx context.Context, c *verb.Call, info *instance.Info, args []string) (exit.End, error) {
	if err := further.Check(info, args); err != nil {
		return exit.End{}, err
	}
	start := session.StartMessage{Args: append([]string{"device", "program", info.Name}, args...)}
	return desk.Run(context.WithoutCancel(ctx), c.Far.Ready(), start)
}
