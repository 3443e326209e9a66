// SPDX-License-Identifier: Apache-2.0

//go:build !device

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
)

func TestMan(t *testing.T) {
	root := &cobra.Command{Use: "prog", Short: "does it", Long: "It does.\n\n  0      well\n  125    not"}
	verb := &cobra.Command{Use: "verb", Short: "one", Long: "verb is one.", Run: func(*cobra.Command, []string) {}}
	verb.Flags().IntP("count", "c", 3, `end after `+"`N`"+` "\"s`+"\n.B lines")
	verb.Flags().Bool("hidden", false, "")
	_ = verb.Flags().MarkHidden("hidden")
	root.AddCommand(verb, ManCommand(root, Topic{Name: "lists", Short: "two rows", Text: "Rows:\n\n  one    1\n  two    2\n"}))
	dir := filepath.Join(t.TempDir(), "man")
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "prog.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  0      well\n  125    not\n", "prog-verb(1)"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	verbs, err := os.ReadFile(filepath.Join(dir, "prog-verb.1"))
	want := `.SH OPTIONS
.TP
\fB\-c\fP, \fB\-\-count\fP \fIN\fP
end after N "\e"s
\&.B lines (default 3)
.TP
\fB\-h\fP, \fB\-\-help\fP
help for verb

.SH`
	if err != nil || !strings.Contains(string(verbs), want) {
		t.Errorf("%v, want\n%s\nin\n%s", err, want, verbs)
	}
	topic, err := os.ReadFile(filepath.Join(dir, "prog-lists.7"))
	if err != nil || !strings.Contains(string(topic), "  one    1\n  two    2\n") || strings.Contains(string(topic), "SYNOPSIS") || strings.Contains(string(topic), "OPTIONS") {
		t.Errorf("%v, in\n%s", err, topic)
	}
	root.SetArgs([]string{"man"})
	root.SilenceErrors, root.SilenceUsage = true, true
	if err := root.Execute(); exit.Status(err) != exit.Usage {
		t.Errorf("without a folder: %v", err)
	}
}
