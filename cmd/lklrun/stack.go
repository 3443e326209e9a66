// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack"
)

func stackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stack NAME",
		Short: "build, list and check stacks",
		Long: `stack manages stacks: kernels built as a library, with their settings. They are
in a project's directories ($` + stack.EnvPath + `), in ~/.local/share/lklrun/stacks, in
` + stack.SystemDir + `, and in stacks/ beside lklrun. Of two stacks of
the same name, the first one counts.`,
		Example: `  lklrun stack list
  lklrun stack build --kernel ~/linux --patch my.patch --name mine
  lklrun --stack mine -- curl http://example.com/`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usagef("stack: expected build, check, clean, list, remove or show; see lklrun stack --help")
		},
	}
	cmd.AddCommand(stackBuildCommand(), stackCheckCommand(), stackCleanCommand(), stackListCommand(), stackProbeCommand(), stackRemoveCommand(), stackShowCommand())
	return cmd
}

// stacksCommand is the former name of `lklrun stack list`.
func stacksCommand() *cobra.Command {
	cmd := stackListCommand()
	cmd.Use, cmd.Hidden = "stacks", true
	return cmd
}

// stackRow is one line of `lklrun stack list`.
type stackRow struct {
	Name    string `json:"name"`
	Kernel  string `json:"kernel,omitempty"`
	Library string `json:"library"`           // present, missing, unusable; empty: the stack needs none
	Problem string `json:"problem,omitempty"` // the reason why it is not present
	Default bool   `json:"default"`
	Summary string `json:"summary"`
	Path    string `json:"path"`
	Origin  string `json:"origin"` // project, user, sudo, system or lklrun
	// Another stack of this name comes first, so --stack NAME does not find this one.
	Shadowed bool `json:"shadowed"`
}

func stackListCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list stacks",
		Long: `list lists all stacks, where they come from, and whether their libraries can be
loaded. ORIGIN is "project" ($` + stack.EnvPath + `), "user", "sudo" (the user who
called sudo), "system", or "lklrun" (beside lklrun). "shadowed" means that a
stack of the same name comes first; --stack PATH runs the shadowed one.`,
		Example: "  lklrun stack list\n  lklrun stack list -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, listErr := stack.ListAll(stack.SearchPath())
			var rows []stackRow
			for _, s := range all {
				rows = append(rows, rowOf(s))
			}
			if err := writeStacks(rows, output); err != nil {
				return err
			}
			return listErr
		},
	}
	cli.OutputFlags(cmd.Flags(), &output, "print a table or JSON")
	return cmd
}

func rowOf(s *stack.Stack) stackRow {
	row := stackRow{
		Name: s.Name, Kernel: s.Kernel, Default: s.Name == stack.Default && !s.Shadowed,
		Summary: s.Summary, Path: s.Dir, Origin: s.Origin, Shadowed: s.Shadowed,
	}
	if s.LibraryPath() != "" {
		row.Library = "present"
	}
	if err := s.CheckLibrary(); err != nil {
		row.Problem, row.Library = err.Error(), "unusable"
		if errors.Is(err, stack.ErrNoLibrary) {
			row.Library = "missing"
		}
	}
	return row
}

func writeStacks(rows []stackRow, output cli.Output) error {
	if output == cli.OutputJSON {
		return cli.WriteJSON(os.Stdout, rows)
	}
	if len(rows) == 0 {
		cli.Note(os.Stderr, self, "no stacks found; `make stack` builds them")
		return nil
	}
	t := cli.NewTable("STACK", "KERNEL", "LIBRARY", "ORIGIN", "SUMMARY")
	for _, r := range rows {
		name, origin := r.Name, r.Origin
		if r.Default {
			name += " *"
		}
		if r.Shadowed {
			origin += ", shadowed"
		}
		t.Row(name, r.Kernel, r.Library, origin, r.Summary)
	}
	return t.Write(os.Stdout)
}

// findStack finds a stack by the argument of a verb.
func findStack(arg string) (*stack.Stack, error) {
	s, err := stack.Find(arg, stack.SearchPath())
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return s, nil
}

// stackDetails is a stack with everything that its manifest says.
type stackDetails struct {
	*stack.Stack
	Path    string   `json:"path"`
	Origin  string   `json:"origin,omitempty"`
	Fixes   []string `json:"fixes,omitempty"`   // lklrun's own patches for the kernel
	Missing []string `json:"missing,omitempty"` // those that did not fit this kernel
}

// describe returns lklrun's own patches in a stack, and those that did not fit. It adds what
// the stack offers, which only the manifest of a stack of `lklrun stack build` says.
func describe(s *stack.Stack) (fixes, missing []string) {
	info, err := s.ReadInfo()
	if err != nil {
		info = &stack.Info{} // the row about the library says why
	}
	if s.Offers == nil && info.Kernel != "" {
		s.Offers = &info.Offers
	}
	if s.Built != nil {
		return s.Built.Fixes, s.Built.Missing
	}
	return info.Fixes, info.Missing
}

func stackShowCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:               "show STACK",
		Short:             "show a stack's settings and origin",
		Long:              "show prints what a stack's manifest and library say: its kernel, its settings, what\nit offers, and how it was built. It does not load the stack; `lklrun stack check`\ndoes.",
		Example:           "  lklrun stack show mptcp\n  lklrun stack show ./mine -o json",
		Args:              exactly("show", "STACK"),
		ValidArgsFunction: completeStack,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := findStack(args[0])
			if err != nil {
				return err
			}
			fixes, missing := describe(s)
			if output == cli.OutputJSON {
				return cli.WriteJSON(os.Stdout, stackDetails{s, s.Dir, s.Origin, fixes, missing})
			}
			return showStack(s, fixes, missing)
		},
	}
	cli.OutputFlags(cmd.Flags(), &output, "print a table or JSON")
	return cmd
}

func showStack(s *stack.Stack, fixes, missing []string) error {
	t := cli.NewTable("PROPERTY", "VALUE").Narrow()
	row := rowOf(s)
	optional := func(name, value string) {
		if value != "" {
			t.Row(name, value)
		}
	}
	rows := func(name string, values []string) {
		for _, v := range values {
			t.Row(name, v)
		}
	}
	t.Row("name", s.Name)
	t.Row("summary", s.Summary)
	t.Row("path", s.Dir)
	optional("origin", s.Origin)
	optional("kernel", s.Kernel)
	optional("abi", s.ABI)
	optional("library", row.Library)
	optional("problem", row.Problem)
	optional("mem", s.Mem)
	if s.MPTCP {
		t.Row("mptcp", "TCP stream sockets become MPTCP")
	}
	for _, k := range s.SortedSysctls() {
		t.Row("sysctl", k.Name+"="+k.Value)
	}
	if o := s.Offers; o != nil {
		optional("congestion", strings.Join(o.Congestion, " "))
		optional("mptcp scheduler", strings.Join(o.Schedulers, " "))
		optional("qdisc", strings.Join(o.Qdiscs, " "))
	}
	if b := s.Built; b != nil {
		t.Row("source", b.Source)
		if b.Dirty {
			b.Commit += ", with uncommitted changes"
		}
		optional("commit", b.Commit)
		t.Row("built", b.Time.Local().Format("2006-01-02 15:04:05"))
		rows("patch", b.Patches)
		rows("options", b.Config)
	}
	rows("fix", fixes)
	rows("without fix", missing)
	return t.Write(os.Stdout)
}

func stackRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove STACK...",
		Short:             "remove stacks that `lklrun stack build` made",
		Long:              "remove removes stacks of `lklrun stack build`. Running programs keep their stack until\nthey end.",
		Example:           "  lklrun stack remove mine",
		ValidArgsFunction: completeOwnStack,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("remove: expected the name of a stack")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var own []*stack.Stack
			for _, arg := range args {
				s, err := findStack(arg)
				if err != nil {
					return err
				}
				if s.Built == nil {
					return cli.Usagef("%s: `lklrun stack build` did not make %s; remove its directory or its package instead", arg, s.Dir)
				}
				own = append(own, s)
			}
			for _, s := range own {
				if err := os.RemoveAll(s.Dir); err != nil {
					return fmt.Errorf("removing the stack %s: %w", filepath.Base(s.Dir), err)
				}
			}
			return nil
		},
	}
}

func completeOwnStack(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, _ := stack.List(stack.SearchPath()) // offer nothing after an error
	var names []string
	for _, s := range all {
		if s.Built != nil {
			names = append(names, s.Name+"\t"+s.Summary)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
