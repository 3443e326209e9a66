// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Result is the result of a step.
type Result struct {
	Step    int     `json:"step"` // 1 for the first one
	What    string  `json:"what"`
	OK      bool    `json:"ok"`
	Status  int     `json:"status"` // exit status of the program; -1: none
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
	Output  string  `json:"output,omitempty"` // file with the output of the program

	Values map[string]string `json:"values,omitempty"` // results that the step reports, by name
}

// StepError is the error for a step that failed.
type StepError struct{ Result }

// Error names the step.
func (e *StepError) Error() string {
	text := fmt.Sprintf("step %d (%s): %s", e.Step, e.What, e.Result.Error)
	if e.Output != "" {
		text += "; its output is in " + e.Output
	}
	return text
}

// RunOptions are the options of Run.
type RunOptions struct {
	Folder string       // folder for the output of each step, step-N.log
	Done   func(Result) // called at the end of each step; may be nil
}

// retryPause is the time between two attempts of a step with Retry.
const retryPause = 100 * time.Millisecond

// Run performs the steps of the topology in order, and then waits for those in
// the background. The first step that fails ends it with a *StepError.
func (l *Lab) Run(ctx context.Context, o RunOptions) ([]Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var results []Result
	var later []<-chan Result
	finish := func(r Result) error {
		if results = append(results, r); o.Done != nil {
			o.Done(r)
		}
		if !r.OK {
			return &StepError{r}
		}
		return nil
	}
	for k, s := range l.Plan.Steps {
		if s.Background {
			done := make(chan Result, 1)
			go func() { done <- l.step(ctx, k, s, o.Folder) }()
			later = append(later, done)
			continue
		}
		if err := finish(l.step(ctx, k, s, o.Folder)); err != nil {
			cancel()
			for _, done := range later {
				<-done
			}
			return results, err
		}
	}
	var failed error
	for _, done := range later {
		if err := finish(<-done); err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	return results, failed
}

// step performs a step.
func (l *Lab) step(ctx context.Context, k int, s Step, folder string) Result {
	r := Result{Step: k + 1, What: s.String(), Status: -1}
	began := time.Now()
	limit := parseTime(cmp.Or(s.Timeout, defaultTimeout.String()))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	err := l.perform(ctx, k, s, folder, &r)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if r.OK = err == nil; err != nil {
		r.Error = err.Error()
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

func (l *Lab) perform(ctx context.Context, k int, s Step, folder string, r *Result) error {
	switch {
	case s.Wait != "":
		return pause(ctx, parseTime(s.Wait))
	case s.Wire != "":
		return l.Set(ctx, s.Wire, s.Set)
	}
	out, err := stepLog(k, folder)
	if err != nil {
		return err
	}
	defer out.Close()
	if folder != "" {
		r.Output = out.Name()
	}
	for {
		cmd := l.Command(ctx, s.On, s.Run...)
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		if r.Status = cmd.ProcessState.ExitCode(); r.Status == s.Expect {
			r.Values, err = reported(tail(out), s.Report)
			return err
		}
		err = fmt.Errorf("exit status %d, expected %d", r.Status, s.Expect)
		if r.Status < 0 {
			err = fmt.Errorf("%s, expected exit status %d", cmd.ProcessState, s.Expect)
		}
		if !s.Retry || pause(ctx, retryPause) != nil {
			return err
		}
	}
}

// stepLog opens the file for the output of a step. Without a folder, it is a file
// without a name.
func stepLog(k int, folder string) (*os.File, error) {
	if folder != "" {
		return os.Create(filepath.Join(folder, fmt.Sprintf("step-%d.log", k+1)))
	}
	return unnamed()
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// parseTime parses a time that Plan has checked.
func parseTime(s string) time.Duration {
	d, _ := time.ParseDuration(s) // cannot fail
	return d
}
