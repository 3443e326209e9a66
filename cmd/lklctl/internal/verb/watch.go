// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Watching is the flag --watch: the interval between queries; 0: query once.
type Watching struct{ Every time.Duration }

// Limits of --watch. A shorter interval would load the stack, and its output would
// be too fast to read.
const (
	watchLeast = 50 * time.Millisecond
	watchMost  = time.Hour
)

// Flag adds the flag --watch.
func (w *Watching) Flag(f *pflag.FlagSet) {
	f.Var(w, "watch", "repeat every `SECONDS` (1 if omitted) until Ctrl-C or the end of the instance")
	f.Lookup("watch").NoOptDefVal = "1"
}

// Set parses seconds, or a duration with a unit.
func (w *Watching) Set(s string) error {
	d, err := time.ParseDuration(s)
	if seconds, ferr := strconv.ParseFloat(s, 64); ferr == nil && seconds >= 0 && seconds <= watchMost.Seconds() {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < watchLeast || d > watchMost {
		return fmt.Errorf("expected %v to %v seconds", watchLeast.Seconds(), watchMost.Seconds())
	}
	w.Every = d
	return nil
}

// String returns the seconds.
func (w *Watching) String() string {
	if w.Every == 0 {
		return ""
	}
	return strconv.FormatFloat(w.Every.Seconds(), 'f', -1, 64)
}

// Type names the kind of value in help texts.
func (w *Watching) Type() string { return "seconds" }

// Watch is like Query. With --watch it repeats the query on one connection.
func (c *Call) Watch(w *Watching, body Body) func(*cobra.Command, []string) error {
	once := c.Query(body)
	return func(cmd *cobra.Command, args []string) error {
		if w.Every == 0 {
			return once(cmd, args)
		}
		return c.Follow(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
			return c.rounds(ctx, w, info, conn, body, args)
		})(cmd, args)
	}
}

// stuckLimit is the time after a signal in which a verb may finish. It is longer than the last
// query of a stack's counters, at the end of a capture.
const stuckLimit = 6 * time.Second

// UntilSignal returns a context that ends on SIGINT, SIGTERM or one of the signals in more, and
// a function stop. If the verb does not call stop soon after the signal, UntilSignal ends this
// process: a write to a pipe that nobody reads never returns, and neither does the opening of a
// pipe without a reader.
func (c *Call) UntilSignal(ctx context.Context, more ...os.Signal) (context.Context, func()) {
	ctx, cancel := signal.NotifyContext(ctx, append(more, syscall.SIGINT, syscall.SIGTERM)...)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-stopped:
			return
		case <-ctx.Done():
		}
		select {
		case <-stopped:
		case <-time.After(stuckLimit):
			why := fmt.Sprintf("the command did not end within %v of the signal", stuckLimit)
			out := []unix.PollFd{{Fd: int32(os.Stdout.Fd()), Events: unix.POLLOUT}}
			if n, err := unix.Poll(out, 0); n == 0 && err == nil {
				why = "the reader of the output does not read"
			}
			cli.Note(c.Stderr, Program, "%s; the last data may be lost", why)
			os.Exit(exit.Failure)
		}
	}()
	return ctx, sync.OnceFunc(func() { cancel(); close(stopped) })
}

// Follow is like Query, for a body that runs until Ctrl-C or until the instance
// ends. Neither is a failure.
func (c *Call) Follow(body Body) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := c.UntilSignal(cmd.Context())
		defer stop()
		attaching, cancel := context.WithTimeout(ctx, QueryLimit)
		info, conn, err := c.Attach(attaching)
		cancel()
		if err != nil {
			return err
		}
		defer conn.Close()
		switch err := body(ctx, info, conn, args); {
		case ctx.Err() != nil:
			return nil
		case err != nil && conn.Err() != nil, errors.Is(err, syscall.EIO) && Ending(ctx, conn):
			cli.Note(c.Stderr, Program, "instance %q has ended", info.Name)
			return nil
		default:
			return err
		}
	}
}

// rounds repeats the query until ctx is done or the instance ends. Neither is a
// failure.
func (c *Call) rounds(ctx context.Context, w *Watching, info *instance.Info, conn *stackconn.Conn, body Body, args []string) error {
	out := c.Stdout
	defer func() { c.Stdout = out }()
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for first := true; ; first = false {
		var b strings.Builder
		c.Stdout = cli.Screen{Writer: &b, Width: cli.Columns(out)}
		round, cancel := context.WithTimeout(ctx, QueryLimit)
		err := body(round, info, conn, args)
		cancel()
		none := (*nothingError)(nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &none):
			if c.Output == cli.OutputTable {
				fmt.Fprintf(&b, "%s\n", none.words)
			}
		case err != nil && conn.Err() != nil, errors.Is(err, syscall.EIO):
			return err // Follow evaluates the error
		case err != nil:
			return NoAnswer(ctx, info, conn, err)
		}
		if err := c.frame(out, b.String(), first); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-conn.Done():
			return conn.Err()
		case <-tick.C:
		}
	}
}

// frame writes the output of one round. On a terminal, it replaces the output of
// the previous round. Otherwise it appends to it, with one JSON document per line.
func (c *Call) frame(w io.Writer, text string, first bool) error {
	var b strings.Builder
	switch {
	case c.Output == cli.OutputJSON:
		enc := json.NewEncoder(&b) // without indentation, so that it is one line
		enc.SetEscapeHTML(false)
		if err := enc.Encode(json.RawMessage(text)); err != nil {
			return err
		}
	case c.Paint.Terminal():
		b.WriteString("\x1b[H\x1b[2J") // ECMA-48: cursor home, erase the display
		b.WriteString(text)
	default:
		if !first {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
