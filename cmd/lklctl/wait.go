// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

func (c *ctl) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "wait until an instance ends",
		Long: `wait returns when an instance has ended, with its program's exit status; a
signal that ended the program ends lklctl too, save SIGKILL, which is 137. 125
says that the stack ended otherwise.`,
		Example: "  lklctl -n web wait",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.wait(cmd.Context())
		},
	}
	c.flags(cmd.Flags(), true)
	return cmd
}

func (c *ctl) wait(ctx context.Context) error {
	info, conn, err := c.dial(ctx)
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
	why := "its stack host has gone"
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
	limited, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	gone := c.gone(limited, info)
	if end == nil {
		cli.Fail(c.stderr, program, errors.Join(fmt.Errorf("instance %q ended without its program's status: %s", info.Name, why), gone))
		return &endError{exit.End{Status: exitOwn}}
	}
	if gone != nil {
		return gone
	}
	if c.output == cli.OutputJSON {
		if err := cli.WriteJSON(c.stdout, map[string]any{"name": info.Name, "status": end.Status, "signal": int(end.Signal)}); err != nil {
			return err
		}
	}
	return &endError{*end}
}
