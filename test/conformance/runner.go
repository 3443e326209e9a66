// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A suite is a test suite of another project.
type suite interface {
	name() string
	// prepare makes the suite's files and programs, once.
	prepare(ctx context.Context, o options) error
	// tests lists the tests whose names are known before a run, or returns nil.
	tests(ctx context.Context) ([]string, error)
	// cannot returns the reason why the suite cannot run with an engine, or "" if it can.
	cannot(engine string) string
	// run runs all tests except those in done. It returns the results, and whether they
	// are complete: a test that hangs or crashes ends the run.
	run(ctx context.Context, m mode, done []string) (results, bool, error)
}

// without returns the names that are not among the others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// A fetcher is a suite that downloads its source, once, before the namespaces without a
// network are created.
type fetcher interface {
	fetch(ctx context.Context, o options) error
}

// A mode is a way to run programs: natively, or on a stack with an engine.
type mode struct {
	place
	bin   string // directory of lklrun
	log   string // output of the run
	test  time.Duration
	suite time.Duration
}

// wrap returns the command line of args in this mode.
func (m mode) wrap(args ...string) []string {
	if m.stack == native {
		return args
	}
	return append(append(m.lklrun(), "--"), args...)
}

// lklrun returns the command line that starts a program on the stack.
func (m mode) lklrun() []string {
	return []string{filepath.Join(m.bin, "lklrun"), "-q", "--engine", m.engine, "--stack", m.stack}
}

// setUp mounts /proc and /run for a run, and sets up its loopback interface. The shell
// remains the first process of the process namespace, because signals have other effects
// on the first process.
const setUp = `mount -t proc proc /proc && mount -t tmpfs tmpfs /run && ip link set lo up || exit 125; "$@"; exit $?`

// start runs args in new namespaces, in dir, until the command ends or the limit is
// over. All output goes to m.log. It returns the exit status, or errLimit.
func (m mode) start(ctx context.Context, limit time.Duration, dir string, stdout io.Writer, env []string, args ...string) (int, error) {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	if stdout == nil {
		stdout = log
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fmt.Fprintf(log, "\n$ %q\n", args)
	// If the first process is killed, all others in the namespace end with it.
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", setUp, "run"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = stdout, log
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
	}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if ctx.Err() != nil {
			return -1, errLimit
		}
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if ctx.Err() != nil {
		return -1, errLimit
	}
	return 0, err
}

var errLimit = errors.New("the time limit is over")

// runner runs the suites in all modes.
type runner struct {
	o        options
	excluded []exclusion
}

// A row is a suite's line in the table.
type row struct {
	suite  string
	native results
	stacks []column
	left   int // tests excluded everywhere
}

// A column is a suite on a stack.
type column struct {
	place
	results
	cannot   string   // why it did not run at all
	excluded int      // tests that did not run there
	bad      []string // tests that pass natively but not there
}

// maxStarts is the maximum number of restarts of a suite after hangs or crashes.
const maxStarts = 20

// row runs a suite natively and on every stack.
func (r *runner) row(ctx context.Context, s suite) (row, error) {
	out := row{suite: s.name()}
	if err := s.prepare(ctx, r.o); err != nil {
		return out, err
	}
	names, err := s.tests(ctx)
	if err != nil {
		return out, err
	}
	out.native, out.left, err = r.mode(ctx, s, place{stack: native}, names)
	if err != nil {
		return out, err
	}
	for _, stack := range r.o.stacks {
		if why := s.cannot(stack.engine); why != "" {
			out.stacks = append(out.stacks, column{place: stack, cannot: why})
			continue
		}
		got, left, err := r.mode(ctx, s, stack, names)
		if err != nil {
			return out, err
		}
		c := column{place: stack, results: got, excluded: left - out.left}
		for _, name := range sortedKeys(out.native) {
			if out.native[name] != pass || isExcluded(r.excluded, s.name(), stack.String(), name) {
				continue
			}
			switch what := c.outcome(name); what {
			case pass, starts:
			case "":
				c.bad = append(c.bad, name+" (not run)")
			default:
				c.bad = append(c.bad, fmt.Sprintf("%s (%s)", name, what))
			}
		}
		out.stacks = append(out.stacks, c)
	}
	return out, nil
}

// mode runs a suite in one mode. It restarts the suite without the finished tests until
// no test hangs or crashes.
func (r *runner) mode(ctx context.Context, s suite, where place, names []string) (results, int, error) {
	stack := where.String()
	m := mode{
		place: where, bin: r.o.bin,
		log:  filepath.Join(r.o.cache, fmt.Sprintf("%s.%s.log", s.name(), stack)),
		test: r.o.test, suite: r.o.suite,
	}
	if err := os.RemoveAll(m.log); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.suite)
	defer cancel()
	var done []string
	for _, name := range names {
		if isExcluded(r.excluded, s.name(), stack, name) {
			done = append(done, name)
		}
	}
	left, all := len(done), results{}
	for range maxStarts {
		got, complete, err := s.run(ctx, m, done)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w; see %s", stack, err, m.log)
		}
		for name, what := range got {
			if isExcluded(r.excluded, s.name(), stack, name) {
				left++ // its name was unknown before the run
				done = append(done, name)
				continue
			}
			all[name] = what
			done = append(done, name)
		}
		if complete || len(got) == 0 || ctx.Err() != nil {
			break
		}
	}
	fmt.Fprintf(os.Stderr, "%s %s: %d passed, %d failed, %d skipped, %d hung, %d crashed\n", s.name(), stack,
		all.count(pass), all.count(fail), all.count(skip), all.count(hang), all.count(crash))
	return all, left, nil
}

// output runs a preparatory command and returns its output.
func output(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%q: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
