// SPDX-License-Identifier: Apache-2.0

//go:build !device

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// ManCommand is the verb that writes the manual pages of a program, for `make man`:
// section 1 has one for each command, section 7 one for each topic.
func ManCommand(root *cobra.Command, topics ...Topic) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "write the manual pages into a folder",
		Long:   "man writes a manual page for the program, each verb and each help topic.",
		Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef("expected one DIR; see %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making the folder: %w", err)
			}
			root.DisableAutoGenTag = true
			markdown(root)
			// The date is SOURCE_DATE_EPOCH, if set.
			header := &doc.GenManHeader{Section: "1", Source: root.Name(), Manual: "User commands"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			for _, t := range topics {
				if err := writeTopic(args[0], root.Name(), t); err != nil {
					return fmt.Errorf("writing manual pages: %w", err)
				}
			}
			return nil
		},
	}
}

// writeTopic writes the page of a topic, PROGRAM-TOPIC(7).
func writeTopic(dir, program string, t Topic) error {
	cmd := &cobra.Command{Use: program + "-" + t.Name, Short: t.Short, Long: t.Text, DisableAutoGenTag: true}
	markdown(cmd)
	f, err := os.Create(filepath.Join(dir, cmd.Name()+".7"))
	if err != nil {
		return err
	}
	defer f.Close()
	var page bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Section: "7", Source: program, Manual: "Help topics"}, &page); err != nil {
		return err
	}
	if _, err := f.Write(withoutSynopsis(page.Bytes())); err != nil {
		return err
	}
	return f.Close()
}

// withoutSynopsis removes the synopsis section, which a topic does not need.
func withoutSynopsis(page []byte) []byte {
	before, rest, found := bytes.Cut(page, []byte(".SH SYNOPSIS\n"))
	_, after, found2 := bytes.Cut(rest, []byte(".SH DESCRIPTION\n"))
	if !found || !found2 {
		return page
	}
	return slices.Concat(before, []byte(".SH DESCRIPTION\n"), after)
}

// markdown converts the texts of a command and its subcommands for the page writer.
// Indented lines become a block that keeps its lines; otherwise a list would be refilled
// into a paragraph.
func markdown(cmd *cobra.Command) {
	cmd.Long = fenced(cmd.Long)
	for _, below := range cmd.Commands() {
		markdown(below)
	}
}

func fenced(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		indented := strings.HasPrefix(line, " ")
		if indented != inside && line != "\n" {
			b.WriteString("```\n")
			inside = indented
		}
		b.WriteString(line)
	}
	if inside {
		b.WriteString("```\n")
	}
	return strings.TrimSpace(b.String())
}
