// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/instance/ctlexec"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// QueryLimit is the timeout for all queries of a verb to a stack.
const QueryLimit = 30 * time.Second

// answerLimit is the timeout for each reply of a stack host that does not wait.
const answerLimit = 10 * time.Second

// Choose finds the instance selected by -n.
func (c *Call) Choose() (*instance.Info, error) {
	if instance.NamesPod(c.Name) {
		if err := instance.CheckSelector(c.Name); err != nil {
			return nil, &exit.UsageError{Err: err}
		}
	}
	info, err := c.Place.Open(c.Name)
	if err == nil {
		return info, nil
	}
	if errors.Is(err, instance.ErrNone) {
		return nil, &exit.StatusError{Err: err, Status: exit.NoInstance}
	}
	// Several instances without -n are an error of the command line.
	if all, lerr := c.Place.List(); lerr == nil && running(all) > 1 {
		return nil, &exit.UsageError{Err: err}
	}
	return nil, err
}

// Running reports whether an instance of that name, or of a pod of that name, runs.
func (c *Call) Running(name string) bool {
	all, err := c.Place.List()
	return err == nil && slices.ContainsFunc(all, func(i instance.Info) bool { return i.Running && i.Is(name) })
}

func running(all []instance.Info) (n int) {
	for _, i := range all {
		if i.Running {
			n++
		}
	}
	return n
}

// Attach connects to the selected instance's stack, which must be alive.
func (c *Call) Attach(ctx context.Context) (*instance.Info, *stackconn.Conn, error) {
	info, conn, err := c.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch conn.Hello().State {
	case ctlproto.CTL_STATE_NEW:
		err = fmt.Errorf("instance %q is starting: its stack has not booted yet; try again", info.Name)
	case ctlproto.CTL_STATE_PANICKED:
		err = fmt.Errorf("instance %q: the kernel of its stack panicked%s; its log is %s", info.Name, ctlexec.LastWords(ctx, conn), logPlace(info))
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return info, conn, nil
}

// logPlace describes where the log of the stack's console is.
func logPlace(info *instance.Info) string {
	path := filepath.Join(info.Dir, instance.LogFile)
	if info.Device != "" {
		path += " on " + info.Device
	}
	return path
}

// Dial is like Attach, but does not check the stack's state.
func (c *Call) Dial(ctx context.Context) (*instance.Info, *stackconn.Conn, error) {
	info, err := c.Choose()
	if err != nil {
		return nil, nil, err
	}
	greeting, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	conn, err := stackconn.Dial(greeting, info.Socket())
	switch {
	case errors.Is(err, fs.ErrNotExist) && info.HostPID != 0: // state.json has it when the stack runs
		return nil, nil, isEnding(info)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("instance %q is starting: it has no control socket yet; try again", info.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, nil, fmt.Errorf("instance %q is ending: its control socket is closed", info.Name)
	case errors.Is(err, stackconn.ErrClosed):
		return nil, nil, isEnding(info)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("instance %q: only its user and root may use its control socket", info.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil, noAnswer(info, "its stack host", info.HostPID)
	case err != nil:
		return nil, nil, fmt.Errorf("instance %q: %w", info.Name, err)
	}
	conn.LimitAnswers(answerLimit)
	if err := c.enterNetns(greeting, info, conn); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return info, conn, nil
}

// Query returns the body of a verb that queries an instance's stack within
// QueryLimit.
func (c *Call) Query(body Body) func(*cobra.Command, []string) error {
	return c.QueryWithin(QueryLimit, body)
}

// Body queries a stack and prints the result.
type Body func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error

// QueryWithin is like Query, but with another timeout.
func (c *Call) QueryWithin(limit time.Duration, body Body) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), limit)
		defer cancel()
		info, conn, err := c.Attach(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return NoAnswer(ctx, info, conn, body(ctx, info, conn, args))
	}
}

// NoAnswer explains to the user why an instance did not answer.
func NoAnswer(ctx context.Context, info *instance.Info, conn *stackconn.Conn, err error) error {
	inside := info.Engine == config.EnginePreload
	silent := errors.Is(err, stackconn.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case errors.Is(err, rpc.ErrNoAnswer):
		return noAnswer(info, "its lklrun", info.PID)
	case errors.Is(err, syscall.EIO) && Ending(ctx, conn):
		return isEnding(info)
	case errors.Is(err, stackconn.ErrClosed):
		return isEnding(info)
	case inside && errors.Is(err, syscall.ESHUTDOWN):
		return fmt.Errorf("instance %q: its program, which contains the stack, is ending or exec'ed another program", info.Name)
	case inside && silent:
		return noAnswer(info, "the stack inside its program", info.TargetPID)
	case silent:
		return noAnswer(info, "its stack host", info.HostPID)
	}
	return err
}

// noAnswer says which process of an instance did not answer in time.
func noAnswer(info *instance.Info, who string, pid int) error {
	return fmt.Errorf("instance %q: %s (pid %d) did not answer in time; check that it is not stopped", info.Name, who, pid)
}

// Ending reports whether EIO means that the instance is ending. If its kernel has
// halted, a stack host returns EIO for each call in the stack. EIO can also be the
// result of the call itself.
func Ending(ctx context.Context, conn *stackconn.Conn) bool {
	hello, err := conn.Refresh(ctx)
	return errors.Is(err, stackconn.ErrClosed) || err == nil && hello.State == ctlproto.CTL_STATE_ENDING
}

// Change is like Query, for a verb that changes the stack's network. It refuses
// to change the network of the host's own kernel.
func (c *Call) Change(body Body) func(*cobra.Command, []string) error {
	return c.ChangeWithin(QueryLimit, "ip(8)", body)
}

// ChangeWithin is like Change, but with another timeout. tool names the program
// that makes the same change on the host.
func (c *Call) ChangeWithin(limit time.Duration, tool string, body Body) func(*cobra.Command, []string) error {
	return c.QueryWithin(limit, func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
		if conn.Hello().ABI == ctlproto.CTL_ABI_HOST {
			return exit.Usagef("instance %q uses the host's own stack, which lklctl does not change; use %s", info.Name, tool)
		}
		return body(ctx, info, conn, args)
	})
}

// isEnding explains why a stack host closed the connection: the instance is
// ending.
func isEnding(info *instance.Info) error {
	return fmt.Errorf("instance %q is ending: its stack host has closed the connection", info.Name)
}
