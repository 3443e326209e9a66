// SPDX-License-Identifier: Apache-2.0

// Command bench measures programs on stacks beside what a user would pick instead: the host's
// kernel, its MPTCP, pasta and slirp4netns. It writes docs/reference/benchmarks.md, all of whose
// figures are of the commit that the page names.
//
//	bench [-turns N] [-only REGEXP] [-o FILE]
//	bench -check N
//
// It requires root, because it makes network namespaces. It makes them inside namespaces of its
// own, which end together with it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const page = "docs/reference/benchmarks.md"

// insideEnv is set in the process that runs inside the namespaces.
const insideEnv = "BENCH_INSIDE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	turns := flag.Int("turns", 5, "measure each value `N` times; the median counts")
	only := flag.String("only", "", "measure only the tables whose title matches `REGEXP`")
	out := flag.String("o", "", "write to `FILE` (default: the page, or standard output with -turns or -only)")
	limit := flag.Int("check", -1, "measure nothing; fail if the page is more than `N` commits to the data path old")
	flag.Parse()
	tables, err := regexp.Compile(*only)
	switch full := *turns == 5 && *only == ""; {
	case err != nil || flag.NArg() > 0 || *turns < 1:
		fmt.Fprintln(os.Stderr, "bench: expected [-turns N] [-only REGEXP] [-o FILE], or -check N")
		os.Exit(2)
	case *limit >= 0:
		err = check(page, *limit)
	case os.Getenv(insideEnv) == "":
		err = inside(ctx)
	default:
		if full {
			*out = cmp.Or(*out, page)
		}
		err = run(ctx, *turns, tables, *out)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && os.Getenv(insideEnv) == "" {
		os.Exit(max(exit.ExitCode(), 1)) // the process inside has printed the error
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// inside runs this program again in new namespaces.
func inside(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("it makes network namespaces: run it as root")
	}
	line := append([]string{"--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", os.Args[0]}, os.Args[1:]...)
	cmd := exec.CommandContext(ctx, "unshare", line...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd.Run()
}

func run(ctx context.Context, turns int, only *regexp.Regexp, out string) error {
	began := time.Now()
	commit, err := builtFrom(out == page)
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	var results []result
	for _, t := range l.tables() {
		if !only.MatchString(t.title) {
			continue
		}
		r, err := l.measure(t, turns)
		if err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
		results = append(results, r)
	}
	var text bytes.Buffer
	write(&text, header{commit, strings.Fields(string(load))[0], turns, time.Since(began)}, results)
	if out == "" {
		_, err = os.Stdout.Write(text.Bytes())
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// builtFrom returns the commit from which bin/ was built. The page requires that it is HEAD, and
// that nothing has changed since.
func builtFrom(strict bool) (string, error) {
	version, err := command("bin/lklrun", "version")
	if err != nil {
		return "", fmt.Errorf("%w; run make build", err)
	}
	head, err := command("git", "describe", "--tags", "--match", "v[0-9]*", "--always", "--dirty")
	if err != nil {
		return "", err
	}
	if strict && (strings.HasSuffix(head, "-dirty") || !strings.Contains(version, head)) {
		return "", fmt.Errorf("bin/ is %q, HEAD is %q: commit your changes and run make bench", version, head)
	}
	return command("git", "rev-parse", "--short=12", "HEAD")
}

// command returns the output of a command.
func command(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(out)), err
}
