// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/record"
	"github.com/lklrun/lklrun/pkg/lab"
)

// recordLab runs a lab in virtual time, and records it. It runs a copy of the lab's folder, as a
// replay does, so that programs do not see the folder of the record in it.
func recordLab(ctx context.Context, folder, file string, vars lab.Vars, t *lab.Topology, report *labReport, run labRun) (err error) {
	r, err := record.Begin(folder, file, t)
	if err != nil {
		return cli.Usagef("--record: %w", err)
	}
	defer func() {
		if !report.ended {
			err = errors.Join(err, r.Remove())
		}
	}()
	r.Lklrun, r.Seed, r.Vars, r.Until, r.Capture = cli.Release, *run.seed, vars, run.until, run.capture
	if run.stopAt != nil {
		r.StopAt = run.stopAt.String()
	}
	if _, err := r.Unpack(folder); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.Dir) }() // only copies
	if t, err = readTopology(filepath.Join(r.Dir, r.Lab), vars); err != nil {
		return err
	}
	run.env, run.dir, report.Folder = r.Env, filepath.Join(r.Dir, r.Work), r.Folder
	if err = runLab(ctx, t, report, run); report.ended {
		err = errors.Join(err, r.Finish(t, report.programs))
	}
	return err
}

func labReplayCommand() *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:   "replay DIR",
		Short: "repeat a recorded lab, and say where it differs",
		Long: `replay repeats a lab that "lklrun lab run --time virtual --record DIR" has
recorded, and compares packets, outputs and results. First, it names the stacks,
programs and files that are not as recorded. Then it prints the first frame and
the first line of output that differ. The exit status is 0 if all is equal, 1 if
something differs, and 2 if DIR is not a record.

The programs of the record run with your rights, as with "lab run": only replay
records of people whom you trust.`,
		Example: "  lklrun lab run --time virtual --seed 17 --record fault test.json\n  lklrun lab replay fault",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("%d arguments; expected the folder of a record; see %s --help", len(args), cmd.CommandPath())
			}
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			return replay(cmd.Context(), args[0], folder)
		},
	}
	cmd.Flags().StringVar(&folder, "results", "", "write the results to this `FOLDER` (default: NAME.replay)")
	return cmd
}

// replay repeats the run in the folder of a record.
func replay(ctx context.Context, from, folder string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r, err := record.Open(from)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	recorded := r.Dir
	differences, err := r.Unpack(from)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	defer func() { _ = os.RemoveAll(r.Dir) }() // only copies
	t, err := readTopology(filepath.Join(r.Dir, r.Lab), r.Vars)
	if err != nil {
		return err
	}
	run := labRun{capture: r.Capture, seed: &r.Seed, until: r.Until, env: r.Env, dir: filepath.Join(r.Dir, r.Work)}
	if r.StopAt != "" {
		if run.stopAt, err = lab.ParseCondition(r.StopAt); err != nil {
			return cli.Usagef("%s: stop_at: %w", filepath.Join(from, record.File), err)
		}
	}
	more, err := r.Differences(t, cli.Release)
	if err != nil {
		return err
	}
	for _, d := range append(more, differences...) {
		cli.Note(os.Stderr, self, "%s", d)
	}
	if folder == "" {
		folder = t.Name + ".replay"
	}
	if folder, err = filepath.Abs(folder); err == nil {
		err = record.Clear(folder, t)
	}
	if err != nil {
		return err
	}
	report := &labReport{Lab: t.Name, Folder: folder, Steps: []lab.Result{}}
	err = runLab(ctx, t, report, run)
	if ctx.Err() != nil || !report.ended {
		return err
	}
	if err != nil && !errors.As(err, new(*lab.StepError)) { // the recorded run may have failed, too
		cli.Note(os.Stderr, self, "%v", err)
	}
	return compared(r, from, folder, recorded, t)
}

// compared prints the result of a replay.
func compared(r *record.Record, from, folder, recorded string, t *lab.Topology) error {
	o, err := r.Compare(from, folder, recorded, t)
	switch {
	case err != nil:
		return &cli.UsageError{Err: err}
	case o.Frame != "" && o.Output != "":
		cli.Note(os.Stderr, self, "the replay differs in %s", o.Frame)
		return fmt.Errorf("the replay differs in %s", o.Output)
	case o.Frame != "" || o.Output != "":
		return fmt.Errorf("the replay differs in %s", o.Frame+o.Output)
	}
	fmt.Printf("identical: %s, %s\n", text.Plural(o.Frames, "frame"), text.Plural(o.Outputs, "file"))
	return nil
}
