// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/verbtest"
	"github.com/lklrun/lklrun/internal/cli/jsondoc"
)

// docs/reference/json.md describes every field of the JSON output. -update rewrites it.
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
	const path = "../../docs/reference/json.md"
	if *verbtest.Update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(text) {
		t.Errorf("%s is not what the types say (%v): go test ./cmd/lklctl -run TestDocuments -update", path, err)
	}
}
