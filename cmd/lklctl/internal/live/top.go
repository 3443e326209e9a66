// SPDX-License-Identifier: Apache-2.0

// Package live contains the verbs top and web: the live view.
package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/ui/top"
)

// topOptions contains the flags of top.
type topOptions struct {
	every verb.Watching
	batch bool
	count int
	ascii bool
}

// Top returns the verb top.
func Top(c *verb.Call) *cobra.Command {
	o := topOptions{every: verb.Watching{Every: time.Second}}
	cmd := &cobra.Command{
		Use:   "top [-d SECONDS] [-b [-c N]] [--ascii]",
		Short: "watch interfaces, connections and subflows live",
		Long: `top shows the instances of this user and, for one of them, the rates of its
interfaces, connections and subflows. Press F1 to list the keys.`,
		Example: `  lklctl -n web top -d 0.5
  lklctl top -b -c 1
  lklctl top -o json -c 10 | jq -c '.connections[].subflows[] | {iface, rtt_us}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("count") && o.count < 1 {
				return exit.Usagef("-c %d: expected 1 or more", o.count)
			}
			if o.count > 0 && !o.batch && c.Output == cli.OutputTable {
				return exit.Usagef("-c requires -b or -o json")
			}
			return verb.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return showTop(cmd.Context(), c, o) },
	}
	c.Flags(cmd.Flags(), true)
	f := cmd.Flags()
	f.VarP(&o.every, "delay", "d", "sample every `SECONDS`")
	f.BoolVarP(&o.batch, "batch", "b", false, "print text; no terminal needed")
	f.IntVarP(&o.count, "count", "c", 0, "with -b or -o json: stop after `N` samples of each instance")
	f.BoolVar(&o.ascii, "ascii", false, "draw graphs with ASCII characters (default in locales without UTF-8)")
	verb.Document(cmd, live.Snapshot{})
	return cmd
}

func showTop(ctx context.Context, c *verb.Call, o topOptions) error {
	batch := o.batch || c.Output == cli.OutputJSON
	if c.Name != "" || batch {
		var none *exit.StatusError
		info, err := c.Choose()
		switch {
		case err == nil && c.Name != "":
			c.Name = info.Name // which may be that of a pod
		case errors.As(err, &none): // top accepts several running instances
			return err
		}
	}
	ctx, stop := c.UntilSignal(ctx, syscall.SIGHUP)
	defer stop()
	monitor := live.NewMonitor(c.Place, c.Name, o.every.Every)
	ascii := o.ascii || !utf8Locale(os.Getenv)
	if batch {
		return top.Batch(ctx, monitor, c.Stdout, top.BatchOptions{Place: c.Place, Name: c.Name, Count: o.count, JSON: c.Output == cli.OutputJSON, ASCII: ascii})
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) || !c.Paint.Terminal() {
		return exit.Usagef("top requires a terminal; use --batch for files and pipes")
	}
	if name := os.Getenv("TERM"); name == "" || name == "dumb" {
		return exit.Usagef("top: TERM=%s has no cursor control; set another TERM or use --batch", name)
	}
	err := top.Run(ctx, monitor, os.Stdin, os.Stdout, top.Options{Name: c.Name, ASCII: ascii, Paint: c.Paint})
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("showing the instances: %w", err)
	}
	return nil
}

// utf8Locale reports whether the locale uses UTF-8 (locale(7)).
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(getenv(name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}
