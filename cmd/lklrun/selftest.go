// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/selftest"
	"github.com/lklrun/lklrun/internal/run/virtual"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stack/stackbuild"
)

const testHelp = `test runs tests of the Linux kernel on stacks, each test on a stack of its own, and
prints a line for each. It needs neither root nor a virtual machine. Tests cannot
change files, processes or networks of the host. A SUITE is one of:

  packetdrill        the scripts in tools/testing/selftests/net/packetdrill
  FILE.pkt, FOLDER   other scripts for packetdrill
  net/mptcp          the tests that the Makefile in this folder of selftests lists
  net:fib_tests.sh   one of them, or a prefix of their names

The tests are those of each kernel: of the tree, or of Debian's source package.
With --baseline, a test fails only if one of its checks passes on the baseline.
The exit status is 1 if a test failed.

--bisect searches the commit that made tests fail. It builds in a worktree of its own.`

const testExamples = `  lklrun test --kernel ~/linux packetdrill
  lklrun test --kernel 6.1 --kernel 6.12 net/mptcp --junit results.xml
  lklrun test --kernel ~/linux --baseline 6.12 net:fib_tests.sh net/mptcp
  lklrun test --kernel ~/linux --bisect v6.11..HEAD packetdrill:tcp_inq`

// tester contains the flags of the verb test.
type tester struct {
	kernels, stacks []string
	drill           string
	junit           string
	baseline        string
	bisect          string
	results         string
	tap             bool
	jobs            int
	limit           time.Duration
}

func testCommand() *cobra.Command {
	t := &tester{}
	cmd := &cobra.Command{
		Use:     "test [FLAG]... SUITE...",
		Short:   "run the kernel's own tests on stacks",
		Long:    testHelp,
		Example: testExamples,

		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
			defer stop()
			err := t.run(ctx, args)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&t.kernels, "kernel", nil, "build and test this `VERSION` of Debian's packages, or this directory; repeatable")
	f.StringArrayVar(&t.stacks, "stack", nil, "test this `STACK`, with the tests of its source (default vanilla); repeatable")
	f.StringVar(&t.drill, "packetdrill", "", "use this `FILE` instead of the packetdrill in $PATH")
	f.IntVarP(&t.jobs, "jobs", "j", runtime.NumCPU(), "run `N` tests at once")
	f.DurationVar(&t.limit, "timeout", 0, "end each test after this `DURATION` (default: that of its folder, at least 5m)")
	f.StringVar(&t.baseline, "baseline", "", "compare with a `KERNEL`, or with the JUnit file of an earlier run")
	f.StringVar(&t.bisect, "bisect", "", "search `GOOD..BAD` of the kernel tree for the commit that made tests fail")
	f.StringVar(&t.junit, "junit", "", "write the results to this `FILE`, in JUnit's format")
	f.BoolVar(&t.tap, "tap", false, "print the results in the Test Anything Protocol")
	f.StringVar(&t.results, "results", "", "write the output of each test that fails to this `FOLDER`")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("kernel", completeKernel))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("stack", completeStack))
	cobra.CheckErr(cmd.MarkFlagDirname("results"))
	cmd.AddCommand(testBoxCommand())
	return cmd
}

// testBox is the name of the verb that isolates a test.
const testBox = "box"

func testBoxCommand() *cobra.Command {
	return &cobra.Command{
		Use: testBox, Short: "isolate a test", Hidden: true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return cli.Usagef("test box: expected a folder, a folder and a command")
			}
			return selftest.Enter(args[0], args[1], args[2:])
		},
	}
}

func (t *tester) run(ctx context.Context, suites []string) error {
	switch {
	case len(suites) == 0:
		return cli.Usagef("test: no suite; name one, such as packetdrill or net/mptcp")
	case t.jobs < 1:
		return cli.Usagef("--jobs %d: expected a positive number", t.jobs)
	case t.limit < 0:
		return cli.Usagef("--timeout %s: expected a positive duration", t.limit)
	}
	if t.bisect != "" {
		return t.runBisect(ctx, suites)
	}
	all := append(slices.Clone(t.kernels), t.stacks...)
	if slices.Sort(all); len(slices.Compact(slices.Clone(all))) < len(all) {
		return cli.Usagef("--kernel or --stack: one is given twice; remove it")
	}
	base, baseKernel, err := t.readBaseline()
	if err != nil {
		return err
	}
	var kernels []selftest.Kernel
	add := func(k selftest.Kernel, err error) error {
		kernels = append(kernels, k)
		return err
	}
	if baseKernel != "" {
		if err := add(t.kernel(ctx, baseKernel, suites)); err != nil {
			return err
		}
	}
	for _, k := range t.kernels {
		if err := add(t.kernel(ctx, k, suites)); err != nil {
			return err
		}
	}
	if len(t.kernels)+len(t.stacks) == 0 {
		t.stacks = []string{"vanilla"}
	}
	for _, name := range t.stacks {
		s, err := findStack(name)
		if err == nil {
			err = add(t.tests(ctx, name, s, suites))
		}
		if err != nil {
			return err
		}
	}
	if baseKernel != "" {
		results, err := t.execute(ctx, kernels[:1], func(r *selftest.Result) error {
			return selftest.WriteLine(os.Stderr, r, true)
		})
		if err != nil {
			return err
		}
		base, kernels = selftest.NewBaseline(results), kernels[1:]
	}
	number, total := 0, 0
	for i := range kernels {
		total += len(kernels[i].Tests)
	}
	if t.tap {
		fmt.Printf("TAP version 13\n1..%d\n", total)
	}
	start := time.Now()
	results, err := t.execute(ctx, kernels, func(r *selftest.Result) error {
		number++
		if base != nil {
			base.Judge(r)
		}
		if t.tap {
			return errors.Join(t.keep(r), selftest.WriteTAP(os.Stdout, number, r))
		}
		return errors.Join(t.keep(r), selftest.WriteLine(os.Stdout, r, len(kernels) > 1))
	})
	if err != nil {
		return err
	}
	return t.finish(kernels, results, time.Since(start))
}

// readBaseline reads the file with the baseline, or returns the kernel.
func (t *tester) readBaseline() (selftest.Baseline, string, error) {
	if st, err := os.Stat(t.baseline); t.baseline == "" || err != nil || st.IsDir() {
		return nil, t.baseline, nil
	}
	f, err := os.Open(t.baseline)
	if err != nil {
		return nil, "", cli.Usagef("--baseline %w", err)
	}
	defer f.Close()
	b, err := selftest.ReadJUnit(t.baseline, f)
	return b, "", err
}

// kernel builds the stack of a version or a tree. The stack of a version that lklrun brings is
// not built again.
func (t *tester) kernel(ctx context.Context, kernel string, suites []string) (selftest.Kernel, error) {
	like, err := findStack("vanilla")
	if err != nil {
		return selftest.Kernel{}, err
	}
	if strings.HasPrefix(like.Kernel+".", kernel+".") {
		return t.tests(ctx, kernel, like, suites)
	}
	s, err := t.build(ctx, kernel)
	if err != nil {
		return selftest.Kernel{}, err
	}
	return t.tests(ctx, kernel, s, suites)
}

// build builds a stack in the cache.
func (t *tester) build(ctx context.Context, kernel string) (*stack.Stack, error) {
	like, err := findStack("vanilla")
	if err != nil {
		return nil, err
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	tree, err := filepath.Abs(kernel)
	if err != nil {
		return nil, err
	}
	p := newBuildProgress()
	r, err := stackbuild.Build(ctx, stackbuild.Options{
		Kernel: kernel, Like: like, Progress: p.line,
		Dir: filepath.Join(dir, "lklrun", "work-test-stacks", fmt.Sprintf("%x", crc32.ChecksumIEEE([]byte(tree)))),
	})
	p.clear()
	if err != nil {
		return nil, err
	}
	if t.bisect == "" {
		cli.Note(os.Stderr, self, "built Linux %s in %s", r.Stack.Kernel, r.Took.Round(time.Second))
	}
	return r.Stack, r.Stack.CheckLibrary()
}

// tests finds the tests of a stack's source.
func (t *tester) tests(ctx context.Context, name string, s *stack.Stack, suites []string) (selftest.Kernel, error) {
	k := selftest.Kernel{Name: name + " (Linux " + s.Kernel + ")", Stack: s}
	if err := s.CheckLibrary(); err != nil {
		return k, &cli.UsageError{Err: err}
	}
	tree := ""
	if s.Built != nil && filepath.IsAbs(s.Built.Source) {
		tree = s.Built.Source
	} else if collections := selftest.Collections(suites); len(collections) > 0 {
		number := strings.SplitN(s.Kernel+"..", ".", 3)
		var err error
		if tree, err = selftest.Unpack(ctx, number[0]+"."+number[1], collections); err != nil {
			return k, err
		}
	}
	var err error
	k.Tests, err = t.find(tree, suites)
	return k, err
}

// find returns the tests of suites, those of collections from a kernel tree.
func (t *tester) find(tree string, suites []string) (tests []selftest.Test, err error) {
	var drill, selftests string
	if slices.ContainsFunc(suites, selftest.NeedsDrill) {
		if drill, err = selftest.FindDrill(t.drill); err != nil {
			return nil, err
		}
	}
	if len(selftest.Collections(suites)) > 0 {
		if selftests, err = selftest.Folder(tree); err != nil {
			return nil, err
		}
	}
	for _, suite := range suites {
		found, err := selftest.Find(suite, selftests, drill)
		if err != nil {
			return nil, err
		}
		tests = append(tests, found...)
	}
	return tests, nil
}

// execute runs the tests of these kernels.
func (t *tester) execute(ctx context.Context, kernels []selftest.Kernel, report func(*selftest.Result) error) ([]selftest.Result, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var drill string
	for i := range kernels {
		if slices.ContainsFunc(kernels[i].Tests, func(t selftest.Test) bool { return t.Drill }) {
			if drill, err = virtual.Find(""); err != nil {
				return nil, &cli.UsageError{Err: err}
			}
		}
	}
	r := selftest.Runner{Lklrun: exe, Virtual: drill, Self: []string{"test", testBox}, Jobs: t.jobs, Limit: t.limit, Report: report}
	return r.Run(ctx, kernels)
}

// keep writes the output of a test that failed.
func (t *tester) keep(r *selftest.Result) error {
	if t.results == "" || r.Outcome == selftest.Pass || r.Outcome == selftest.Skip {
		return nil
	}
	kernel, _, _ := strings.Cut(r.Kernel, " (")
	file := filepath.Join(t.results, filepath.Join("/", kernel), r.Test+".log")
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, r.Output, 0o644))
}

// finish prints the sums, and writes the file for CI systems.
func (t *tester) finish(kernels []selftest.Kernel, results []selftest.Result, took time.Duration) error {
	var names []string
	to := io.Writer(os.Stdout)
	if t.tap {
		to = os.Stderr
	}
	for i := range kernels {
		names = append(names, kernels[i].Name)
		fmt.Fprintf(to, "%s: %s\n", kernels[i].Name, selftest.Summarize(results, kernels[i].Name))
	}
	fmt.Fprintf(to, "%s in %.1f s\n", text.Plural(len(results), "test"), took.Seconds())
	if t.junit != "" {
		f, err := os.Create(t.junit)
		if err == nil {
			err = errors.Join(selftest.WriteJUnit(f, names, results), f.Close())
		}
		if err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if n := selftest.Failed(results); n > 0 {
		return fmt.Errorf("%s failed", text.Plural(n, "test"))
	}
	return nil
}
