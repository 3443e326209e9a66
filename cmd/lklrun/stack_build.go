// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/internal/stack/stackbuild"
)

func stackBuildCommand() *cobra.Command {
	var opts stackbuild.Options
	var dir string
	like := "vanilla"
	cmd := &cobra.Command{
		Use:   "build",
		Short: "build a stack from a kernel source",
		Long: `build makes a stack of a Debian kernel source, such as linux-source-6.1, or of
your own kernel tree, from Linux 6.1 on. It does not change the tree, and takes
over changed files in seconds, and a changed header in minutes. The result is in ~/.local/share/lklrun/stacks.`,
		Example: `  lklrun stack build --kernel 6.1
  lklrun stack build --kernel ~/linux --patch my.patch --name mine --like mptcp
  lklrun ab --if raw:eth0 --stack mptcp --stack mine -- curl -o /dev/null http://example.com/`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.Like, err = findStack(like); err != nil {
				return fmt.Errorf("--like: %w", err)
			}
			if opts.Dir, err = stacksDir(dir); err != nil {
				return fmt.Errorf("looking for the directory of your stacks: %w", err)
			}
			return buildStack(cmd, opts)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&opts.Kernel, "kernel", stackbuild.DefaultKernel, "build this `VERSION` of Debian's packages, or this directory")
	f.StringArrayVar(&opts.Patches, "patch", nil, "apply the patch in `FILE` to a copy; repeatable")
	f.BoolVar(&opts.NoFixes, "no-fixes", false, "omit lklrun's own patches, to show the bugs that they mend")
	f.StringArrayVar(&opts.Config, "config", nil, "add the kernel options in `FILE`, or those of the set debug or selftests; repeatable")
	f.StringVar(&opts.Name, "name", "", "`NAME` of the stack; by default linux-VERSION or the directory's name")
	f.StringVar(&like, "like", like, "copy the settings of this `STACK`")
	f.StringVar(&dir, "dir", "", "put the stack in `DIR`/NAME instead of ~/.local/share/lklrun/stacks")
	f.IntVarP(&opts.Jobs, "jobs", "j", 0, "run `N` compilers at once; by default one per CPU")
	cobra.CheckErr(cmd.MarkFlagDirname("dir"))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("like", completeStack))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("kernel", completeKernel))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions))
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("jobs", cobra.NoFileCompletions))
	return cmd
}

func stackCleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "delete what builds keep to be faster",
		Long: `clean deletes the kernel sources, object files and libraries that builds keep in
~/.cache/lklrun, and unfinished stacks of killed builds. Stacks remain; the next build takes as long as the first one.`,
		Example:               "  lklrun stack clean",
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			dir, freed, err := stackbuild.Clean()
			if err != nil {
				return fmt.Errorf("cleaning the cache of builds: %w", err)
			}
			fmt.Printf("deleted %d MB from %s\n", freed/1e6, dir)
			return nil
		},
	}
}

// stacksDir returns the absolute path of the directory of stacks for --dir.
func stacksDir(dir string) (string, error) {
	if dir == "" {
		return stack.UserDir()
	}
	return filepath.Abs(dir)
}

// completeKernel completes the installed packages and directories.
func completeKernel(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	files, _ := filepath.Glob("/usr/src/linux-source-*.tar.xz")
	var versions []string
	for _, f := range files {
		versions = append(versions, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "linux-source-"), ".tar.xz"))
	}
	return versions, cobra.ShellCompDirectiveFilterDirs
}

func buildStack(cmd *cobra.Command, opts stackbuild.Options) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	p := newBuildProgress()
	opts.Progress = p.line
	r, err := stackbuild.Build(ctx, opts)
	p.clear()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the next build continues where this one stopped")
	case err != nil:
		return err
	}
	fmt.Printf("built the stack %s, Linux %s, in %s: %s\n", r.Stack.Name, r.Stack.Kernel, r.Took.Round(time.Second), r.Stack.Dir)
	if r.Stack.Built.Missing != nil {
		cli.Note(os.Stderr, self, "without lklrun's fix for %s", strings.Join(r.Stack.Built.Missing, ", "))
	}
	arg := r.Stack.Name
	found := func(p stack.Place) bool { return p.Dir == filepath.Dir(r.Stack.Dir) }
	if !slices.ContainsFunc(stack.SearchPath(), found) {
		arg = r.Stack.Dir
	}
	fmt.Printf("run it: lklrun --stack %s -- COMMAND\n", arg)
	return nil
}

// firstBuild is the number of files of a first build, within a tenth for all versions.
const firstBuild = 1400

// buildProgress shows how a build gets on: on a terminal one line that changes, elsewhere a
// line for each step and each minute.
type buildProgress struct {
	to       io.Writer
	terminal bool
	start    time.Time
	files    int
	shown    time.Time
}

func newBuildProgress() *buildProgress {
	now := time.Now()
	return &buildProgress{to: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd())), start: now, shown: now}
}

func (p *buildProgress) line(line string, file bool) {
	if !file {
		p.clear()
		cli.Note(p.to, self, "%s", line)
		return
	}
	p.files++
	interval := time.Minute
	if p.terminal {
		interval = 100 * time.Millisecond
	}
	if time.Since(p.shown) < interval {
		return
	}
	p.shown = time.Now()
	if !p.terminal {
		cli.Note(p.to, self, "%s: %d files; a first build compiles about %d", time.Since(p.start).Round(time.Second), p.files, firstBuild)
		return
	}
	if len(line) > 50 {
		line = "..." + line[len(line)-47:]
	}
	fmt.Fprintf(p.to, "\r\x1b[K%s  %d files (first build: %d)  %s", time.Since(p.start).Round(time.Second), p.files, firstBuild, line)
}

// clear removes the line that changes.
func (p *buildProgress) clear() {
	if p.terminal && p.files > 0 {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
