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
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Wait returns the verb wait.
func Wait(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait [NAME]",
		Short: "wait until an instance ends",
		Long: `wait returns when an instance ends, and exits with the status of its program.
If a run of lklrun --detach has already ended, wait returns at once.`,
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
		if record, rerr := endedRun(c, err); record != nil || rerr != nil {
			return errors.Join(rerr, waited(c, record))
		}
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
			was := exit.FromStatus(syscall.WaitStatus(e.Arg))
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
	if end == nil && gone == nil {
		// lklctl may have connected too late to learn of the end. A record of this
		// very run tells.
		if record, err := c.Place.OpenEnded(info.Name); err == nil && record != nil && record.PID == info.PID {
			return waited(c, record)
		}
	}
	if end == nil {
		cli.Fail(c.Stderr, verb.Program, errors.Join(fmt.Errorf("instance %q ended without the status of its program: %s", info.Name, why), gone))
		return &verb.EndError{End: exit.End{Status: exitOwn}}
	}
	if gone != nil {
		return gone
	}
	return endAs(c, info.Name, *end)
}

// endAs ends lklctl as the program of an instance has ended.
func endAs(c *verb.Call, name string, end exit.End) error {
	if c.Output == cli.OutputJSON {
		if err := cli.WriteJSON(c.Stdout, map[string]any{"name": name, "status": end.Status, "signal": int(end.Signal)}); err != nil {
			return err
		}
	}
	return &verb.EndError{End: end}
}

// endedRun returns the record of the selected run if the error err means that no such
// instance runs; nil if there is none.
func endedRun(c *verb.Call, err error) (*instance.Info, error) {
	if c.Name == "" || c.Far != nil || !errors.Is(err, instance.ErrNone) {
		return nil, nil
	}
	return c.Place.OpenEnded(c.Name)
}

// waited ends lklctl as the program of an ended run.
func waited(c *verb.Call, record *instance.Info) error {
	if record == nil {
		return nil
	}
	how := record.Ended
	switch {
	case how.Status != nil:
		return endAs(c, record.Name, exit.End{Status: *how.Status})
	case how.Signal != 0:
		return endAs(c, record.Name, exit.End{Signal: syscall.Signal(how.Signal)})
	}
	cli.Fail(c.Stderr, verb.Program, fmt.Errorf("instance %q ended without the status of its program: %s", record.Name, how.Error))
	return &verb.EndError{End: exit.End{Status: exitOwn}}
}
