// SPDX-License-Identifier: Apache-2.0

// Package internal_test checks the structure of the folders in internal.
package internal_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wings are the folders of internal, in the order of the arrows: a wing imports only those
// in earlier lines. Wings in one line do not import each other.
var wings = [][]string{
	{"base"},
	{"stack"},
	{"instance"},
	{"host"},
	{"diag"},
	{"link"},
	{"run"},
	{"remote", "ui"},
	{"cli"},
}

const prefix = "github.com/lklrun/lklrun/"

func line(wing string) int {
	return slices.IndexFunc(wings, func(l []string) bool { return slices.Contains(l, wing) })
}

func TestEachFolderIsAWing(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	folders := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if folders++; line(e.Name()) < 0 {
			t.Errorf("internal/%s: not a wing; put the package into the wing it belongs to", e.Name())
		}
	}
	if folders > 10 {
		t.Errorf("internal has %d folders, expected at most 10", folders)
	}
}

func TestWingsImportOnlyEarlierOnes(t *testing.T) {
	for path, imports := range sources(t, ".") {
		wing, _, ok := strings.Cut(path, "/")
		if !ok {
			continue // this file
		}
		for _, i := range imports {
			rest, ok := strings.CutPrefix(i, prefix)
			if !ok {
				continue
			}
			top, rest, _ := strings.Cut(rest, "/")
			to, _, _ := strings.Cut(rest, "/")
			test := strings.HasSuffix(path, "_test.go")
			switch {
			case top == "internal" && to != wing && line(to) >= line(wing):
				t.Errorf("internal/%s imports %s, which comes later in the order of the wings", path, i)
			case top != "internal" && top != "pkg" && !test:
				t.Errorf("internal/%s imports %s", path, i)
			}
		}
	}
}

// sources returns the imports of each Go file below a folder, for every platform.
func sources(t *testing.T, folder string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	set := token.NewFileSet()
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		f, err := parser.ParseFile(set, filepath.Join(folder, path), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			all[path] = append(all[path], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no Go files below %s", folder)
	}
	return all
}
