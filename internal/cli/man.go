// SPDX-License-Identifier: Apache-2.0

//go:build !device

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
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

// section is a section of a page, with its text in roff. An empty section is left out.
type section struct{ name, text string }

// writeVerbs writes the page of a command and those of its verbs, PROGRAM-VERB(1).
func writeVerbs(dir, program string, cmd *cobra.Command) error {
	cmd.InitDefaultHelpFlag()
	var also []string
	refer := func(c *cobra.Command) { also = append(also, `\fB`+pageName(c)+`(1)\fP`) }
	if cmd.HasParent() {
		refer(cmd.Parent())
	}
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		refer(below)
		if err := writeVerbs(dir, program, below); err != nil {
			return err
		}
	}
	return writePage(dir, pageName(cmd), "1", program, "User commands", []section{
		{"NAME", roff(pageName(cmd) + " - " + cmd.Short)},
		{"SYNOPSIS", `\fB` + roff(cmd.UseLine()) + `\fP`},
		{"DESCRIPTION", prose(cmp.Or(cmd.Long, cmd.Short))},
		{"OPTIONS", options(cmd.NonInheritedFlags())},
		{"OPTIONS INHERITED FROM PARENT COMMANDS", options(cmd.InheritedFlags())},
		{"EXAMPLE", prose(cmd.Example)},
		{"SEE ALSO", strings.Join(also, ", ")},
	})
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// writeTopic writes the page of a topic, PROGRAM-TOPIC(7), which has no synopsis or options.
func writeTopic(dir, program string, t Topic) error {
	name := program + "-" + t.Name
	return writePage(dir, name, "7", program, "Help topics", []section{
		{"NAME", roff(name + " - " + t.Short)},
		{"DESCRIPTION", prose(t.text())},
	})
}

// writePage writes a page. The date is SOURCE_DATE_EPOCH, if set.
func writePage(dir, name, number, program, manual string, sections []section) error {
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH=%s: expected a number of seconds", epoch)
		}
		date = time.Unix(seconds, 0)
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".nh\n.TH %q %q %q %q %q\n", strings.ToUpper(name), number, date.Format("Jan 2006"), program, manual)
	for _, s := range sections {
		if text := strings.TrimSpace(s.text); text != "" {
			b.WriteString("\n.SH " + s.name + "\n" + text + "\n")
		}
	}
	return os.WriteFile(filepath.Join(dir, name+"."+number), []byte(b.String()), 0o644)
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

// prose converts a text to roff. Indented lines keep their form, as in the help.
func prose(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		indented, blank := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"), line == "\n"
		switch {
		case blank || indented == inside:
		case indented:
			b.WriteString(".EX\n")
			inside = true
		default:
			b.WriteString(".EE\n.PP\n")
			inside = false
		}
		if blank && !inside {
			line = ".PP\n"
		} else {
			line = roff(line)
		}
		b.WriteString(line)
	}
	if inside {
		b.WriteString("\n.EE")
	}
	return b.String()
}
