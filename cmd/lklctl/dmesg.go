// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/instance/further"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/klog"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// printk is the setting whose first number is the console's level.
const printk = "kernel.printk"

func (c *ctl) dmesgCommand() *cobra.Command {
	var follow bool
	var least, console string
	cmd := &cobra.Command{
		Use:   "dmesg [-w] [-l LEVEL] | --console-level LEVEL",
		Short: "show the kernel log of a stack",
		Long: `dmesg shows what the stack's kernel has logged, the oldest first, with the time
of this machine, reckoned from the stack's uptime. Of a kernel that has panicked
it shows the lines that lklhost has kept, which have no times.

With --console-level LEVEL the kernel's console gets only messages that are
worse than that; what the console gets is also in the file log of the run
directory, and in the bundle after a panic. The kernel keeps all of them.`,
		Example: `  lklctl dmesg
  lklctl dmesg -w -l warn
  lklctl dmesg -o json | jq -r .text
  lklctl dmesg --console-level warn`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := klog.Level(7)
			for _, word := range []string{console, least} {
				if word == "" {
					continue
				}
				var err error
				if level, err = klog.ParseLevel(word); err != nil {
					return &exit.UsageError{Err: err}
				}
			}
			switch {
			case console != "" && (follow || least != ""):
				return exit.Usagef("--console-level changes, -w and -l show: choose one")
			case console != "":
				return c.changeWithin(queryLimit, "dmesg -n", func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ []string) error {
					// console_loglevel is the first level that is not
					// shown (kernel/printk/printk.c).
					return stacknet.SetSysctl(ctx, conn, printk, fmt.Sprint(int(level)+1))
				})(cmd, nil)
			}
			return c.dmesg(cmd.Context(), follow, level)
		},
	}
	c.flags(cmd.Flags(), true)
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "w", false, "go on with what comes, until Ctrl-C or the instance's end")
	f.StringVarP(&least, "level", "l", "", "leave out what is less serious than `LEVEL`: emerg, alert, crit, err, warn, notice, info or debug")
	f.StringVar(&console, "console-level", "", "let the console have what is at least `LEVEL`")
	document(cmd, klog.Record{})
	return cmd
}

// dmesg prints the log, and with follow continues until the end.
func (c *ctl) dmesg(ctx context.Context, follow bool, level klog.Level) error {
	attaching, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	info, conn, err := c.dial(attaching)
	if err != nil {
		return err
	}
	defer conn.Close()
	tell := func(r klog.Record) error {
		if r.Level != klog.Unknown && r.Level > level {
			return nil
		}
		return c.logLine(r)
	}
	switch state := conn.Hello().State; {
	case state == ctlproto.CTL_STATE_NEW:
		return fmt.Errorf("instance %q is starting: its stack has not booted yet, try again", info.Name)
	case state == ctlproto.CTL_STATE_PANICKED:
		return asked(attaching, info, conn, queryLimit, klog.Kept(attaching, conn, tell))
	case !follow:
		err = klog.Read(attaching, conn, false, tell)
	default:
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err = klog.Read(ctx, conn, true, tell)
		switch {
		case ctx.Err() != nil:
			return nil
		case conn.Err() != nil && errors.Is(err, stackconn.ErrClosed):
			cli.Note(c.stderr, program, "instance %q has ended", info.Name)
			return nil
		case errors.Is(err, syscall.EIO):
			asking, cancel := context.WithTimeout(ctx, queryLimit)
			defer cancel()
			if ending(asking, conn) {
				cli.Note(c.stderr, program, "instance %q has ended", info.Name)
				return nil
			}
			return fmt.Errorf("instance %q: the kernel of its stack has died%s", info.Name, further.LastWords(asking, conn))
		}
	}
	return asked(attaching, info, conn, queryLimit, err)
}

// logLine prints one message, as text or as a JSON document per line.
func (c *ctl) logLine(r klog.Record) error {
	if r.Lost {
		cli.Note(c.stderr, program, "messages were lost: they came faster than they were read")
		return nil
	}
	if c.output == cli.OutputJSON {
		enc := json.NewEncoder(c.stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	text := text.Plain(r.Text)
	switch {
	case r.Level <= 3:
		text = c.paint.Red(text)
	case r.Level == 4:
		text = c.paint.Yellow(text)
	}
	if r.Time != nil {
		text = c.paint.Dim(r.Time.Local().Format("Jan _2 15:04:05.000")) + " " + text
	}
	_, err := io.WriteString(c.stdout, text+"\n")
	return err
}
