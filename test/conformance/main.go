// SPDX-License-Identifier: Apache-2.0

// Command conformance runs test suites of other projects natively and on the stacks,
// and compares the results. The suites are CPython's, Go's, libuv's, curl's and the
// kernel's own, and in a second group those of language runtimes and servers.
//
// The command works in namespaces of its own, which end with it; this requires root. It
// writes its table to docs/reference/conformance.md (-out).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// enough is the required percentage by engine: of the tests that pass natively, so many
// must pass on a stack.
var enough = map[string]float64{supervise: 95, trace: 95, preload: 90}

// options are the options of the command line.
type options struct {
	root   string // the repository
	commit string
	suites []string
	stacks []place
	out    string // file for the table, "" for none
	bin    string // directory of lklrun
	cache  string // for sources and built tests
	test   time.Duration
	suite  time.Duration
}

const insideEnv = "LKLRUN_CONFORMANCE_INSIDE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o, err := parse()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("makes network namespaces, so it wants root: sudo make conformance")
	}
	suites, err := choose(o)
	if err != nil {
		return err
	}
	if os.Getenv(insideEnv) == "" {
		for _, s := range suites {
			if f, ok := s.(fetcher); ok {
				if err := f.fetch(ctx, o); err != nil {
					return fmt.Errorf("suite %s: %w", s.name(), err)
				}
			}
		}
		return inside(ctx)
	}
	excluded, err := readExclusions(filepath.Join(o.root, "test", "conformance", "exclusions.txt"))
	if err != nil {
		return err
	}
	known, err := readExclusions(filepath.Join(o.root, "test", "conformance", "differences.txt"))
	if err != nil {
		return err
	}
	r := &runner{o: o, excluded: excluded}
	var rows []row
	for _, s := range suites {
		row, err := r.row(ctx, s)
		if err != nil {
			return fmt.Errorf("suite %s: %w", s.name(), err)
		}
		row.print(os.Stdout)
		rows = append(rows, row)
		if o.out != "" { // after each suite, because all together take hours
			if err := writeTable(o, rows, excluded, known); err != nil {
				return err
			}
		}
	}
	for _, row := range rows {
		if msg := row.verdict(); msg != "" {
			err = errors.Join(err, errors.New(msg))
		}
	}
	return err
}

func parse() (options, error) {
	var o options
	var suites, stacks string
	flag.StringVar(&suites, "suites", "", "comma-separated `NAMES` of suites, or "+runtimes+" for those of language runtimes and servers; default all others: "+strings.Join(suiteNames(), ","))
	flag.StringVar(&stacks, "stacks", "vanilla,mptcp,vanilla+trace,mptcp+trace,vanilla+preload,mptcp+preload", "comma-separated `NAMES` of stacks, each with +trace or +preload for that engine instead of supervise")
	flag.StringVar(&o.bin, "bin", "bin", "`DIR` of lklrun")
	flag.StringVar(&o.out, "out", "", "`FILE` to write the table to")
	flag.DurationVar(&o.test, "test-limit", 60*time.Second, "how long one test may take")
	flag.DurationVar(&o.suite, "limit", 15*time.Minute, "how long one suite may take in one mode")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("%s: unknown argument; see -help", flag.Arg(0))
	}
	root, err := os.Getwd()
	if err != nil {
		return o, err
	}
	if _, err := os.Stat(filepath.Join(root, "test", "conformance", "exclusions.txt")); err != nil {
		return o, errors.New("wants to be started in the repository's folder, as make conformance does")
	}
	o.root = root
	commit, err := output(context.Background(), root, nil, "git", "-c", "safe.directory=*", "describe", "--always", "--exclude=*")
	if err != nil {
		return o, err
	}
	o.commit = strings.TrimSpace(string(commit))
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return o, err
	}
	if _, err := os.Stat(filepath.Join(o.bin, "lklrun")); err != nil {
		return o, errors.New("no lklrun to test; make build makes it")
	}
	o.cache = filepath.Join(root, "build", "conformance")
	o.suites = words(suites)
	if o.stacks, err = places(stacks); err != nil {
		return o, err
	}
	return o, os.MkdirAll(o.cache, 0o755)
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// inside runs this program again in new namespaces. When it ends, for any reason, all
// processes in them end, too (unshare(1), --kill-child).
func inside(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", exe}
	cmd := exec.CommandContext(ctx, "unshare", append(args, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			os.Exit(max(exit.ExitCode(), 1)) // it has printed the reason
		}
		return err
	}
	return nil
}
