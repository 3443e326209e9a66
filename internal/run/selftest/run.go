// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/lazyregexp"
	"github.com/lklrun/lklrun/internal/run/virtual"
	"github.com/lklrun/lklrun/internal/stack"
)

// A Kernel is a stack under test.
type Kernel struct {
	Name  string
	Stack *stack.Stack
	Tests []Test
}

// Runner runs tests.
type Runner struct {
	Lklrun  string        // program
	Self    []string      // arguments of Lklrun that call Enter
	Virtual string        // lklvirtual, for tests in virtual time
	Jobs    int           // tests at once
	Limit   time.Duration // of one test; 0: that of its folder, or DefaultLimit
	// Report is called for each result, for one at a time.
	Report func(*Result) error
}

// DefaultLimit is the time that a test has unless its folder has another limit.
const DefaultLimit = 5 * time.Minute

// Run runs the tests of all kernels, Jobs at once, and returns the results in their order.
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
	var reported error
	for i := range reports {
		reported = errors.Join(reported, r.Report(&results[i]))
	}
	if err := errors.Join(g.Wait(), reported); err != nil {
		return nil, err
	}
	return results, nil
}

// one runs one test.
func (r *Runner) one(ctx context.Context, k *Kernel, t *Test) (Result, error) {
	limit := r.Limit
	if limit == 0 {
		limit = max(t.Limit, DefaultLimit)
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := Box(timed, append([]string{r.Lklrun}, r.Self...), t.Root, t.Dir, r.command(k, t, limit))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	res := Result{Test: t.Name, Kernel: k.Name, Took: time.Since(start), Output: out.Bytes()}
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
	if line := kernelReport(res.Output); line != "" && !res.Outcome.bad() {
		res.Outcome, res.Why = Fail, line
	}
	return res, nil
}

var (
	kernelLine = lazyregexp.New(`^\[ *[0-9]+\.[0-9]+\] `)
	kernelBad  = lazyregexp.New(`^(WARNING: |BUG: |UBSAN: |INFO: (possible|suspicious|rcu|task|trying)|ODEBUG: |refcount_t: |list_(add|del) corruption|ref_tracker: |Kernel panic)`)
)

// kernelReport returns the first line of the kernel's log in the output that reports a fault of the
// kernel, or "".
func kernelReport(output []byte) string {
	for line := range strings.Lines(string(output)) {
		message := kernelLine().ReplaceAllString(line, "")
		if message != line && kernelBad().MatchString(message) {
			return "kernel: " + strings.TrimSpace(message)
		}
	}
	return ""
}

// withLog runs a command, and then prints the kernel's log from warnings up.
const withLog = `"$@"; status=$?; dmesg -l emerg,alert,crit,err,warn >&2; exit $status`

// command returns the command that runs a test on a kernel. packetdrill compares times, and also has
// to see how much of a connection's data is unread, so its sockets, devices and clocks are the
// kernel's own. lklvirtual ends a test that would use others.
func (r *Runner) command(k *Kernel, t *Test, limit time.Duration) []string {
	if !t.Drill {
		return append([]string{r.Lklrun, "--quiet", "--engine", "supervise", "--stack", k.Stack.Dir, "--", "sh", "-c", withLog, "sh"}, t.Args...)
	}
	var sysctls []string
	for _, name := range slices.Sorted(maps.Keys(k.Stack.Sysctls)) {
		sysctls = append(sysctls, name+"="+k.Stack.Sysctls[name])
	}
	library := filepath.Join(k.Stack.Dir, k.Stack.Library)
	return append([]string{r.Virtual}, virtual.Alone(library, cmp.Or(k.Stack.Mem, "64M"), sysctls, limit, t.Args)...)
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
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" && !kernelLine().MatchString(line) {
			return line
		}
	}
	return fmt.Sprintf("exit status %d", status)
}
