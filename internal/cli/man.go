// SPDX-License-Identifier: Apache-2.0

//go:build !device

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// ManCommand returns the verb that writes the manual pages of a program, for `make
// man`. Each command has a page in section 1, and each topic has one in section 7.
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
			if err := writeVerbs(args[0], root.Name(), root); err != nil {
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

// writeVerbs writes the page of a command and those of its verbs, PROGRAM-VERB(1).
func writeVerbs(dir, program string, cmd *cobra.Command) error {
	cmd.InitDefaultHelpFlag()
	sections := map[string]string{
		"OPTIONS":                                options(cmd.NonInheritedFlags()),
		"OPTIONS INHERITED FROM PARENT COMMANDS": options(cmd.InheritedFlags()),
	}
	header := &doc.GenManHeader{Section: "1", Source: program, Manual: "User commands"}
	if err := writePage(dir, cmd, header, sections); err != nil {
		return err
	}
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			if err := writeVerbs(dir, program, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTopic writes the page of a topic, PROGRAM-TOPIC(7), which has no synopsis or options.
func writeTopic(dir, program string, t Topic) error {
	cmd := &cobra.Command{Use: program + "-" + t.Name, Short: t.Short, Long: t.Text, DisableAutoGenTag: true}
	markdown(cmd)
	header := &doc.GenManHeader{Section: "7", Source: program, Manual: "Help topics"}
	return writePage(dir, cmd, header, map[string]string{"SYNOPSIS": "", "OPTIONS": ""})
}

// writePage writes the page of a command. sections replaces the text of some sections; an
// empty text removes the section. The date is SOURCE_DATE_EPOCH, if set.
func writePage(dir string, cmd *cobra.Command, header *doc.GenManHeader, sections map[string]string) error {
	var page bytes.Buffer
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return err
	}
	var b strings.Builder
	for i, section := range strings.Split(page.String(), "\n.SH ") {
		name, _, _ := strings.Cut(section, "\n")
		text, replaced := sections[name]
		switch {
		case i == 0:
			b.WriteString(section)
		case !replaced:
			b.WriteString("\n.SH " + section)
		case text != "":
			b.WriteString("\n.SH " + name + "\n" + text)
		}
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + "." + header.Section
	return os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644)
}

// options returns a list of flags in roff, with the texts of the help.
func options(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		one := pflag.NewFlagSet(f.Name, pflag.ContinueOnError)
		one.AddFlag(f)
		head, usage, _ := strings.Cut(strings.TrimSpace(one.FlagUsages()), "  ")
		if head == "" { // the flag is hidden
			return
		}
		b.WriteString(".TP\n")
		for i, word := range strings.Fields(head) {
			font := `\fI` // format of a value
			if strings.HasPrefix(word, "-") {
				font = `\fB`
			}
			if i > 0 {
				b.WriteString(" ")
			}
			bare := strings.TrimSuffix(word, ",")
			b.WriteString(font + strings.ReplaceAll(roff(bare), "-", `\-`) + `\fP` + word[len(bare):])
		}
		for line := range strings.Lines(strings.TrimSpace(usage)) {
			b.WriteString("\n" + roff(strings.TrimSpace(line)))
		}
		b.WriteString("\n")
	})
	return b.String()
}

// roff quotes a text that is a line of its own.
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// markdown converts the texts of a command and its subcommands for the page writer.
// Indented lines become a preformatted block; otherwise the writer would join a list
// into one paragraph.
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
