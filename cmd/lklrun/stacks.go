// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack"
)

// stackRow is one line of `lklrun stacks`.
type stackRow struct {
	Name    string `json:"name"`
	Kernel  string `json:"kernel,omitempty"`
	Library string `json:"library"`           // present, missing, unusable; empty: the stack needs none
	Problem string `json:"problem,omitempty"` // the reason why it is not present
	Default bool   `json:"default"`
	Summary string `json:"summary"`
	Path    string `json:"path"`
}

func stacksCommand() *cobra.Command {
	output := cli.OutputTable
	cmd := &cobra.Command{
		Use:   "stacks",
		Short: "list stacks",
		Long: `stacks lists the stacks in the folders of $` + stack.EnvPath + `, then in stacks/ beside
lklrun, and whether their libraries can be loaded.`,
		Example: "  lklrun stacks\n  lklrun stacks -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, listErr := stack.List(stack.SearchPath())
			var rows []stackRow
			for _, s := range all {
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
				rows = append(rows, row)
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
