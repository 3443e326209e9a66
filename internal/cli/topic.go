// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/suggest"
)

// Topic is a page of a program's help that is not about a verb.
type Topic struct {
	Name  string // lower case, with dashes
	Short string // description for lists and for the NAME section of the page
	Text  string // at most 80 columns wide

	// Make returns the text if it takes time to make. Text is then empty.
	Make func() string
}

func (t *Topic) text() string {
	if t.Make != nil {
		return t.Make()
	}
	return t.Text
}

// HelpCommand returns the command `PROGRAM help [TOPIC|VERB]`.
func HelpCommand(root *cobra.Command, topics []Topic) *cobra.Command {
	return &cobra.Command{
		Use:                   "help [TOPIC|VERB]",
		Short:                 "explain a topic or a verb",
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return append(topicNames(topics), verbNames(root)...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return root.Help()
			case len(args) > 1:
				return exit.Usagef("help: expected one topic or verb, not %q", strings.Join(args, " "))
			}
			return explain(cmd.OutOrStdout(), root, topics, args[0])
		},
	}
}

// explain prints the page of a topic, or the help of a verb.
func explain(w io.Writer, root *cobra.Command, topics []Topic, name string) error {
	if n := slices.IndexFunc(topics, func(t Topic) bool { return t.Name == name }); n >= 0 {
		fmt.Fprint(w, topics[n].text())
		return nil
	}
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c.Help()
		}
	}
	return exit.Usagef("help: no topic or verb %q; %s", name, suggest.Suggest(name, append(topicNames(topics), verbNames(root)...), "expected "+strings.Join(topicNames(topics), ", ")))
}

func topicNames(topics []Topic) []string {
	var names []string
	for _, t := range topics {
		names = append(names, t.Name)
	}
	return names
}

func verbNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// TopicList lists the topics by name, in lines of at most 80 columns.
func TopicList(topics []Topic) string {
	var b strings.Builder
	line := " "
	for _, name := range topicNames(topics) {
		if len(line)+1+len(name) > 80 {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + name
	}
	return b.String() + line
}
