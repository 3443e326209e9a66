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
in the directories of $` + stack.EnvPath + `, in stacks/ beside lklrun, in
~/.local/share/lklrun/stacks, and in ` + stack.SystemDir + `. Of two
stacks of the same name, the first one counts.`,
		Example: `  lklrun stack list
  lklrun stack build --kernel ~/linux --patch my.patch --name mine
  lklrun --stack mine -- curl http://example.com/`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Usagef("stack: expected build, check, list, remove or show; see lklrun stack --help")
		},
	}
	cmd.AddCommand(stackBuildCommand(), stackCheckCommand(), stackListCommand(), stackProbeCommand(), stackRemoveCommand(), stackShowCommand())
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
}

func stackListCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list stacks",
		Long:    "list lists all stacks, and whether their libraries can be loaded.",
		Example: "  lklrun stack list\n  lklrun stack list -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, listErr := stack.List(stack.SearchPath())
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
	row := stackRow{Name: s.Name, Kernel: s.Kernel, Default: s.Name == stack.Default, Summary: s.Summary, Path: s.Dir}
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
	t := cli.NewTable("STACK", "KERNEL", "LIBRARY", "SUMMARY")
	for _, r := range rows {
		name := r.Name
		if r.Default {
			name += " *"
		}
		t.Row(name, r.Kernel, r.Library, r.Summary)
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
	Path string `json:"path"`
}

func stackShowCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:               "show STACK",
		Short:             "show a stack's settings and origin",
		Long:              "show prints what a stack's manifest says: its kernel, its settings, and how it was\nbuilt. It does not load the stack; `lklrun stack check` does.",
		Example:           "  lklrun stack show mptcp\n  lklrun stack show ./mine -o json",
		Args:              exactly("show", "STACK"),
		ValidArgsFunction: completeStack,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := findStack(args[0])
			if err != nil {
				return err
			}
			if output == cli.OutputJSON {
				return cli.WriteJSON(os.Stdout, stackDetails{s, s.Dir})
			}
			return showStack(s)
		},
	}
	cli.OutputFlags(cmd.Flags(), &output, "print a table or JSON")
	return cmd
}

func showStack(s *stack.Stack) error {
	t := cli.NewTable("PROPERTY", "VALUE").Narrow()
	t.Row("name", s.Name)
	t.Row("summary", s.Summary)
	t.Row("path", s.Dir)
	row := rowOf(s)
	for _, p := range [][2]string{{"kernel", s.Kernel}, {"abi", s.ABI}, {"library", row.Library}, {"problem", row.Problem}, {"mem", s.Mem}} {
		if p[1] != "" {
			t.Row(p[0], p[1])
		}
	}
	if s.MPTCP {
		t.Row("mptcp", "TCP stream sockets become MPTCP")
	}
	for _, k := range s.SortedSysctls() {
		t.Row("sysctl", k.Name+"="+k.Value)
	}
	if b := s.Built; b != nil {
		t.Row("source", strings.TrimSpace(b.Source+" "+b.Commit))
		t.Row("built", b.Time.Local().Format("2006-01-02 15:04:05"))
		for name, list := range map[string][]string{"patch": b.Patches, "options": b.Config} {
			for _, v := range list {
				t.Row(name, v)
			}
		}
		for _, v := range b.Fixes {
			t.Row("fix", v)
		}
		for _, v := range b.Missing {
			t.Row("without fix", v)
		}
	}
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
