// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/instance/ctlexec"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/klog"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// printk is the setting whose first number is the log level of the console.
const printk = "kernel.printk"

// Dmesg returns the verb dmesg.
func Dmesg(c *verb.Call) *cobra.Command {
	var follow bool
	var least, console string
	cmd := &cobra.Command{
		Use:   "dmesg [-w] [-l LEVEL] | --console-level LEVEL",
		Short: "show the kernel log of a stack",
		Long: `dmesg prints the log of the stack's kernel, oldest message first, or sets which
messages its console receives.`,
		Example: `  lklctl dmesg -w -l warn
  lklctl dmesg -o json | jq -r .text
  lklctl dmesg --console-level warn`,
		Args: verb.NoArgs,
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
				return exit.Usagef("--console-level: conflicts with -w and -l; choose one")
			case console != "":
				return c.ChangeWithin(verb.QueryLimit, "dmesg -n", func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ []string) error {
					// console_loglevel is the first level that the console does not
					// show (kernel/printk/printk.c).
					return stacknet.SetSysctl(ctx, conn, printk, fmt.Sprint(int(level)+1))
				})(cmd, nil)
			}
			return dmesg(cmd.Context(), c, follow, level)
		},
	}
	c.Flags(cmd.Flags(), true)
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "w", false, "print new messages until Ctrl-C or the end of the instance")
	f.StringVarP(&least, "level", "l", "", "print messages of `LEVEL` and worse: emerg, alert, crit, err, warn, notice, info or debug")
	f.StringVar(&console, "console-level", "", "let the console receive messages of `LEVEL` and worse")
	verb.Document(cmd, klog.Record{})
	return cmd
}

// dmesg prints the log. With follow, it continues until the instance ends.
func dmesg(ctx context.Context, c *verb.Call, follow bool, level klog.Level) error {
	attaching, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	defer cancel()
	info, conn, err := c.Dial(attaching)
	if err != nil {
		return err
	}
	defer conn.Close()
	tell := func(r klog.Record) error {
		if r.Level != klog.Unknown && r.Level > level {
			return nil
		}
		return logLine(c, r)
	}
	switch state := conn.Hello().State; {
	case state == ctlproto.CTL_STATE_NEW:
		return fmt.Errorf("instance %q is starting: its stack has not booted yet; try again", info.Name)
	case state == ctlproto.CTL_STATE_PANICKED:
		return verb.NoAnswer(attaching, info, conn, klog.Kept(attaching, conn, tell))
	case !follow:
		err = klog.Read(attaching, conn, false, tell)
	default:
		var stop func()
		ctx, stop = c.UntilSignal(ctx)
		defer stop()
		err = klog.Read(ctx, conn, true, tell)
		switch {
		case ctx.Err() != nil:
			return nil
		case conn.Err() != nil && errors.Is(err, stackconn.ErrClosed):
			cli.Note(c.Stderr, verb.Program, "instance %q has ended", info.Name)
			return nil
		case errors.Is(err, syscall.EIO):
			asking, cancel := context.WithTimeout(ctx, verb.QueryLimit)
			defer cancel()
			if verb.Ending(asking, conn) {
				cli.Note(c.Stderr, verb.Program, "instance %q has ended", info.Name)
				return nil
			}
			return fmt.Errorf("instance %q: the kernel of its stack panicked%s", info.Name, ctlexec.LastWords(asking, conn))
		}
	}
	return verb.NoAnswer(attaching, info, conn, err)
}

// logLine prints one message: as text, or as a JSON document on one line.
func logLine(c *verb.Call, r klog.Record) error {
	if r.Lost {
		cli.Note(c.Stderr, verb.Program, "some messages are missing: the kernel overwrote them before lklctl read them")
		return nil
	}
	if c.Output == cli.OutputJSON {
		enc := json.NewEncoder(c.Stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	text := text.Plain(r.Text)
	switch {
	case r.Level <= 3:
		text = c.Paint.Red(text)
	case r.Level == 4:
		text = c.Paint.Yellow(text)
	}
	if r.Time != nil {
		text = c.Paint.Dim(r.Time.Local().Format("Jan _2 15:04:05.000")) + " " + text
	}
	_, err := io.WriteString(c.Stdout, text+"\n")
	return err
}
