// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// aroundReport is the JSON output of --around.
type aroundReport struct {
	Command []string                   `json:"command"`          // the command
	Status  int                        `json:"status"`           // exit status of the command; 0 if a signal ended it
	Signal  string                     `json:"signal,omitempty"` // name of the signal that ended the command; absent if it exited
	Seconds float64                    `json:"seconds"`          // duration of the command
	Changes map[string]counters.Change `json:"changes"`          // counters that changed while the command ran
}

// runAround runs a command between two readings, and returns the command's exit
// status.
func (n *counting) runAround(cmd *cobra.Command, patterns, command []string) error {
	// A signal to the command does not end lklctl, so that lklctl still reports the
	// changes.
	ctx := context.WithoutCancel(cmd.Context())
	limited, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	info, conn, err := n.Attach(limited)
	if err != nil {
		cancel()
		return err
	}
	defer conn.Close()
	before, err := reading(limited, conn)
	cancel()
	if err != nil {
		return verb.NoAnswer(ctx, info, conn, err)
	}
	files := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	report := n.Stderr
	if n.Output != cli.OutputTable { // a program reads the output
		files[1], report = os.Stderr, n.Stdout
	}
	end, err := runHere(command, files)
	if err != nil {
		return err
	}
	limited, cancel = context.WithTimeout(ctx, verb.QueryLimit)
	defer cancel()
	if err := n.reportAround(limited, report, info, conn, before, patterns, command, end); err != nil {
		cli.Note(n.Stderr, verb.Program, "%v", verb.NoAnswer(limited, info, conn, err))
	}
	return &verb.EndError{End: end}
}

// reportAround prints the changes.
func (n *counting) reportAround(ctx context.Context, w io.Writer, info *instance.Info, conn *stackconn.Conn, before counters.Reading, patterns, command []string, end exit.End) error {
	now, at, err := readNow(ctx, conn)
	if err != nil {
		return err
	}
	object, rows, table := n.changes(before.Since(now.Select(patterns), at))
	switch {
	case n.Output == cli.OutputJSON:
		r := aroundReport{Command: command, Status: end.Status, Seconds: at.Sub(before.Time).Round(time.Millisecond).Seconds(), Changes: object}
		if end.Signal != 0 {
			r.Signal = unix.SignalName(end.Signal)
		}
		return cli.WriteJSON(w, r)
	case rows == 0:
		cli.Note(w, verb.Program, "instance %q: no matching counter has changed", info.Name)
		return nil
	}
	return table.Write(w)
}

// runHere runs a command on the host. A terminal's signals reach the command
// directly. Signals to lklctl alone are passed on.
func runHere(command []string, files [3]*os.File) (exit.End, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	if err := cmd.Start(); err != nil {
		return exit.End{}, exit.Usagef("--around: %v", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != unix.SIGINT && s != unix.SIGQUIT {
					_ = cmd.Process.Signal(s) // fails only if the command has ended
				}
			case <-done:
				return
			}
		}
	}()
	err := cmd.Wait()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		return exit.End{}, fmt.Errorf("waiting for %s: %w", command[0], err)
	}
	return exit.FromStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}
