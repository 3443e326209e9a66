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
	root.AddCommand(&cobra.Command{Use: "verb", Short: "one", Long: "verb is one.", Run: func(*cobra.Command, []string) {}}, ManCommand(root, Topic{Name: "lists", Short: "two rows", Text: "Rows:\n\n  one    1\n  two    2\n"}))
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
	if _, err := os.Stat(filepath.Join(dir, "prog-verb.1")); err != nil {
		t.Error(err)
	}
	topic, err := os.ReadFile(filepath.Join(dir, "prog-lists.7"))
	if err != nil || !strings.Contains(string(topic), "  one    1\n  two    2\n") || strings.Contains(string(topic), "SYNOPSIS") {
		t.Errorf("%v, in\n%s", err, topic)
	}
	root.SetArgs([]string{"man"})
	root.SilenceErrors, root.SilenceUsage = true, true
	if err := root.Execute(); exit.Status(err) != exit.Usage {
		t.Errorf("without a folder: %v", err)
	}
}
