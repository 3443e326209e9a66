// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/lazyregexp"
)

// A Kernel is a stack under test.
type Kernel struct {
	Name  string
	Stack string // folder
	Tests []Test
}

// Runner runs tests.
type Runner struct {
	Lklrun string        // program
	Self   []string      // arguments of Lklrun that call Enter
	Jobs   int           // tests at once
	Limit  time.Duration // of one test; 0: that of its folder, or DefaultLimit
	// Report is called for each result, for one at a time.
	Report func(*Result) error
}

// DefaultLimit is the time that a test has unless its folder has another limit.
const DefaultLimit = 5 * time.Minute

// maxTries is the number of attempts at a script that fails by its timing. The scripts allow some
// milliseconds, which a busy machine takes.
const maxTries = 3

var timing = lazyregexp.New(`(?m)^\S+\.pkt:[0-9]+: .*timing error`)

// Run runs the tests of all kernels, Jobs at once, and returns the results in their order. Tests
// that have failed by their timing run again at the end, one at a time.
func (r *Runner) Run(ctx context.Context, kernels []Kernel) ([]Result, error) {
	type job struct {
		k *Kernel
		t *Test
	}
	var jobs []job
	for i := range kernels {
		for j := range kernels[i].Tests {
			jobs = append(jobs, job{&kernels[i], &kernels[i].Tests[j]})
		}
	}
	probe := Box(ctx, append([]string{r.Lklrun}, r.Self...), os.TempDir(), "/", []string{r.Lklrun, "version"})
	if out, err := probe.CombinedOutput(); err != nil {
		return nil, exit.Usagef("tests cannot be isolated here: %w; %s", err, bytes.TrimSpace(out))
	}
	results := make([]Result, len(jobs))
	reports := make(chan int)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Jobs)
	go func() {
		for i, j := range jobs {
			g.Go(func() (err error) {
				results[i], err = r.one(gctx, j.k, j.t)
				if err == nil {
					reports <- i
				}
				return err
			})
		}
		_ = g.Wait() // again below
		close(reports)
	}()
	var again []int
	var reported error
	for i := range reports {
		if timing().Match(results[i].Output) && results[i].Outcome == Fail {
			again = append(again, i)
			continue
		}
		reported = errors.Join(reported, r.Report(&results[i]))
	}
	if err := errors.Join(g.Wait(), reported); err != nil {
		return nil, err
	}
	for _, i := range again {
		for tries := 2; tries <= maxTries && results[i].Outcome == Fail; tries++ {
			var err error
			if results[i], err = r.one(ctx, jobs[i].k, jobs[i].t); err != nil {
				return nil, err
			}
			results[i].Tries = tries
		}
		if err := r.Report(&results[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// one runs one test.
func (r *Runner) one(ctx context.Context, k *Kernel, t *Test) (Result, error) {
	if t.Skip != "" {
		return Result{Test: t.Name, Kernel: k.Name, Outcome: Skip, Why: t.Skip}, nil
	}
	limit := r.Limit
	if limit == 0 {
		limit = max(t.Limit, DefaultLimit)
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{r.Lklrun, "--quiet", "--engine", "supervise", "--stack", k.Stack, "--"}
	cmd := Box(timed, append([]string{r.Lklrun}, r.Self...), t.Root, t.Dir, append(args, t.Args...))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	res := Result{Test: t.Name, Kernel: k.Name, Took: time.Since(start), Tries: 1, Output: out.Bytes()}
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return res, context.Cause(ctx)
	case timed.Err() != nil:
		res.Outcome, res.Why = Timeout, fmt.Sprintf("after %s", limit)
	case err == nil || errors.As(err, &status) || errors.Is(err, exec.ErrWaitDelay):
		res.Outcome = outcome(cmd.ProcessState.ExitCode())
	default:
		return res, fmt.Errorf("starting %s in namespaces of its own: %w", t.Name, err)
	}
	res.Cases = cases(res.Output)
	if res.Why == "" && res.Outcome != Pass {
		res.Why = reason(res.Output, cmd.ProcessState.ExitCode())
	}
	return res, nil
}

// reason returns the line that explains a failure: packetdrill's own, the first check that
// failed, or the last line.
func reason(output []byte, status int) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	for _, line := range lines {
		if strings.Contains(line, ".pkt:") || strings.HasPrefix(line, "not ok") && !strings.Contains(line, "# SKIP") {
			return strings.TrimSpace(line)
		}
	}
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last
	}
	return fmt.Sprintf("exit status %d", status)
}
