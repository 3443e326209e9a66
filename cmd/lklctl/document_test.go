// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli/jsondoc"
)

// Each field of the JSON output has a comment, which json.md shows. If REFERENCE names a
// directory, the test writes json.md to it.
func TestDocuments(t *testing.T) {
	root := rootCommand(verb.New(io.Discard, io.Discard))
	var all []jsondoc.Document
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, d := range verb.Documents[cmd] {
			all = append(all, jsondoc.Document{Name: strings.TrimSpace(cmd.CommandPath() + " " + d.Flag), What: cmd.Short, Type: d.Type})
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
	text, err := jsondoc.Generate("../..", "github.com/lklrun/lklrun", all)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^.*\|\s*\|$`).FindAllString(string(text), -1) {
		t.Errorf("a field has no comment: %s", row)
	}
	if dir := os.Getenv("REFERENCE"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "json.md"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
