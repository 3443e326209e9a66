// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
)

// Logs returns the verb logs.
func Logs(c *verb.Call) *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "logs [-f] [--tail LINES] [NAME]",
		Short: "print the output of a run in the background",
		Long: `logs prints the output of a run of lklrun --detach, which may have ended. lklrun
keeps the last megabyte, or with --log everything in a file.`,
		Example:           "  lklctl logs web\n  lklctl logs -f --tail 20 web",
		Args:              c.NameArg,
		ValidArgsFunction: completeEnded(c, true),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case c.Output != cli.OutputTable:
				return exit.Usagef("-o %s: logs prints the output of the program unchanged; remove -o", c.Output)
			case tail < -1:
				return exit.Usagef("--tail %d: expected a number of lines, 0 or more", tail)
			case c.Far != nil:
				return exit.Usagef("--device %s: logs shows only runs of this machine; a device keeps nothing after a run", c.Device)
			}
			return logs(cmd.Context(), c, follow, tail)
		},
	}
	c.Flags(cmd.Flags(), true)
	verb.Must(cmd.Flags().MarkHidden("output"))
	verb.Must(cmd.Flags().MarkHidden("json"))
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print further output until the run ends")
	cmd.Flags().IntVar(&tail, "tail", -1, "print only the last `LINES`; -1 prints all")
	return cmd
}

// completeEnded completes the argument with the names of ended runs, and with those of
// running instances if running is set.
func completeEnded(c *verb.Call, running bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []cobra.Completion
		if running {
			names, _ = c.CompleteName(cmd, args, toComplete)
		}
		if records, err := c.Place.Ended(); err == nil && (len(args) == 0 || !running) {
			for _, r := range records {
				names = append(names, r.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// logs prints the output of the selected run.
func logs(ctx context.Context, c *verb.Call, follow bool, tail int) error {
	info, err := c.Choose()
	if err != nil {
		record, rerr := endedRun(c, err)
		if record == nil || rerr != nil {
			return errors.Join(rerr, err)
		}
		info = record
	}
	path := info.Output
	if path == "" && info.Ended != nil {
		return fmt.Errorf("instance %q: %s", info.Name, info.Ended.Error)
	}
	if path == "" {
		return fmt.Errorf("instance %q keeps no log: it runs in the foreground, or its program has not started yet", info.Name)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) == info.Dir && info.Ended == nil {
		// The run has just ended, and its record has the output.
		if record, rerr := c.Place.OpenEnded(info.Name); rerr == nil && record != nil {
			info, path = record, record.Output
			f, err = os.Open(path)
		}
	}
	if err != nil {
		return fmt.Errorf("instance %q: its output: %w", info.Name, err)
	}
	defer f.Close()
	if err := seekTail(f, tail); err != nil {
		return err
	}
	ctx, stop := c.UntilSignal(ctx)
	defer stop()
	if info.Ended == nil && follow {
		if err := followLog(ctx, c, info, f); err != nil || ctx.Err() != nil {
			return err
		}
	} else if err := copyLog(c.Stdout, f); err != nil {
		return err
	}
	if info.Ended != nil && info.Ended.Error != "" {
		cli.Note(c.Stderr, verb.Program, "instance %q ended: %s", info.Name, text.OneLine(info.Ended.Error))
	}
	return nil
}

// seekTail seeks to the last lines of a file, or to its beginning if lines is negative.
func seekTail(f *os.File, lines int) error {
	if lines < 0 {
		return instance.SkipHole(f, 0)
	}
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for end := at; at > 0; {
		n := min(at, int64(len(buf)))
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == 0 { // the hole before the kept output
				return instance.SkipHole(f, at+i+1)
			}
			if buf[i] != '\n' || at+i == end-1 {
				continue
			}
			if lines--; lines <= 0 {
				_, err = f.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	return instance.SkipHole(f, 0)
}

// copyLog copies the rest of a file. lklrun may replace its beginning by a hole in the
// meantime, which the copy omits.
func copyLog(w io.Writer, f *os.File) error {
	buf := make([]byte, 64<<10)
	for {
		at, err := f.Seek(0, io.SeekCurrent)
		if err == nil {
			err = instance.SkipHole(f, at)
		}
		if err != nil {
			return err
		}
		n, err := f.Read(buf)
		if n == 0 || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(bytes.TrimLeft(buf[:n], "\x00")); err != nil {
			return err
		}
	}
}

// followEvery is the time between two looks at a file that is followed.
const followEvery = 100 * time.Millisecond

// followLog copies a file until the run ends.
func followLog(ctx context.Context, c *verb.Call, info *instance.Info, f *os.File) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		now, err := c.Place.Open(info.Name)
		over := err != nil || now.PID != info.PID
		if err := copyLog(c.Stdout, f); err != nil || over {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
