// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Wait returns the verb wait.
func Wait(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "wait [NAME]",
		Short:   "wait until an instance ends",
		Long:    "wait returns when an instance ends, and exits with the status of its program.",
		Example: "  lklctl wait web",
		Args:    c.NameArg,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return wait(cmd.Context(), c)
		},
	}
	c.Flags(cmd.Flags(), true)
	cmd.ValidArgsFunction = c.CompleteName
	return cmd
}

func wait(ctx context.Context, c *verb.Call) error {
	info, conn, err := c.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	events, err := conn.Events(ctx, ctlproto.CTL_EV_EXIT|ctlproto.CTL_EV_PANIC)
	if errors.Is(err, stackconn.ErrClosed) { // it has just ended
		none := make(chan ctlproto.Event)
		close(none)
		events, err = none, nil
	}
	if err != nil {
		return fmt.Errorf("instance %q: %w", info.Name, err)
	}
	var end *exit.End
	why := "its stack host ended"
	for e := range events {
		switch e.Kind {
		case ctlproto.CTL_EV_EXIT:
			was := exit.Of(syscall.WaitStatus(e.Arg))
			end = &was
		case ctlproto.CTL_EV_PANIC:
			why = e.Text
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	defer cancel()
	gone := gone(limited, c, info)
	if end == nil {
		cli.Fail(c.Stderr, verb.Program, errors.Join(fmt.Errorf("instance %q ended without the status of its program: %s", info.Name, why), gone))
		return &verb.EndError{End: exit.End{Status: exitOwn}}
	}
	if gone != nil {
		return gone
	}
	if c.Output == cli.OutputJSON {
		if err := cli.WriteJSON(c.Stdout, map[string]any{"name": info.Name, "status": end.Status, "signal": int(end.Signal)}); err != nil {
			return err
		}
	}
	return &verb.EndError{End: *end}
}
