// SPDX-License-Identifier: Apache-2.0

// Command bench measures the stack against the host's own kernel: the same
// loops (native/lklbench.c) on both, in turns within one run, medians and ratios.
// Then how long a stack's interfaces take to change, as a group and one by one.
//
// It makes network namespaces for the traffic, inside namespaces of its own
// that end with it, and needs root for that.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	rounds int
	length time.Duration // of one bulk measurement
	json   bool
	check  bool
	most   int // interfaces of a group
}

const insideEnv = "LKLRUN_BENCH_INSIDE"

func run(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each `N` is measured; the median counts")
	flag.DurationVar(&o.length, "length", 700*time.Millisecond, "how long one bulk transfer takes")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	flag.BoolVar(&o.check, "check", false, "exit with 1 when a target is missed")
	flag.IntVar(&o.most, "interfaces", groupSizes[len(groupSizes)-1], "change groups of up to `N` interfaces; 0: none")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.length < 50*time.Millisecond {
		return errors.New("wants no arguments, at least one round and 50 ms; see -help")
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bench", "native", "lklbench.c")); err != nil {
		return errors.New("wants to be started in the repository's folder, as make bench does")
	}
	if os.Geteuid() != 0 {
		return errors.New("makes network namespaces, so it wants root: sudo make bench")
	}
	if os.Getenv(insideEnv) == "" {
		return inside(ctx)
	}
	b, err := newBench(ctx, root, o)
	if err != nil {
		return err
	}
	defer b.close()
	results, err := b.measure(ctx)
	if err != nil {
		return err
	}
	guarding, err := b.guarding(ctx)
	if err != nil {
		return err
	}
	groups, err := b.groups(ctx)
	if err != nil {
		return err
	}
	if o.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]any{"stack": results, "guard": guarding, "groups": groups}); err != nil {
			return err
		}
	} else {
		table(os.Stdout, results)
		guardTable(os.Stdout, guarding)
		if len(groups) > 0 {
			groupTable(os.Stdout, groups)
		}
	}
	if o.check {
		for _, r := range results {
			if r.Verdict == missed {
				return fmt.Errorf("%s, %s: target missed", r.What, r.Where)
			}
		}
	}
	return nil
}

// inside runs this program again in namespaces that take everything with them
// when it ends, however it ends (unshare(1), --kill-child).
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
			os.Exit(max(exit.ExitCode(), 1)) // it has said why
		}
		return err
	}
	return nil
}
