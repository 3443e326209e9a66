// SPDX-License-Identifier: Apache-2.0

//go:build !device

package cli

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// ManCommand is the verb that writes the manual pages of a program, one for each
// command, as `make man` calls it.
func ManCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write the manual pages into a folder",
		Long:   "man writes a manual page for the program and for each verb, section 1.",
		Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("want one DIR: see %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making the folder: %w", err)
			}
			root.DisableAutoGenTag = true
			markdown(root)
			// The date is that of SOURCE_DATE_EPOCH, where it is set.
			header := &doc.GenManHeader{Section: "1", Source: root.Name(), Manual: "User commands"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			return nil
		},
	}
}

// markdown turns the texts of a command and those below it into what the page
// writer reads: a line in capitals is a heading, an indented list stays one.
func markdown(cmd *cobra.Command) {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
		head, rest, _ := strings.Cut(paragraph, "\n")
		if isHeading(head) {
			fmt.Fprintf(&b, "# %s\n\n", head)
			paragraph = rest
		}
		for line := range strings.Lines(paragraph) {
			text := strings.TrimLeft(line, " ")
			switch {
			case text == line || strings.Contains(text, "  "):
			default: // an indented sentence
				line = text
			}
			if strings.HasPrefix(line, "  ") {
				line = "    " + line
			}
			b.WriteString(line)
		}
		b.WriteString("\n\n")
	}
	cmd.Long = strings.TrimSpace(b.String())
	for _, below := range cmd.Commands() {
		markdown(below)
	}
}

func isHeading(line string) bool {
	return line != "" && strings.IndexFunc(line, func(r rune) bool { return !unicode.IsUpper(r) && r != ' ' }) < 0
}
