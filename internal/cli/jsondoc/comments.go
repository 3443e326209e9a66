// SPDX-License-Identifier: Apache-2.0

package jsondoc

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
)

// comments contains the comments of struct fields, which it parses from the source of
// their packages.
type comments struct {
	root, module string
	packages     map[string]map[string]string // for each folder, maps "Type.Field" to the comment
}

func newComments(root, module string) *comments {
	return &comments{root, module, map[string]map[string]string{}}
}

// of returns the comment of a field of a type.
func (c *comments) of(t reflect.Type, name string) (string, error) {
	path := t.PkgPath()
	rest, ours := strings.CutPrefix(path, c.module)
	if !ours {
		return "", nil // the type is from another module
	}
	dir := filepath.Join(c.root, rest)
	if c.packages[dir] == nil {
		all, err := read(dir)
		if err != nil {
			return "", err
		}
		c.packages[dir] = all
	}
	return c.packages[dir][t.Name()+"."+name], nil
}

// read parses a directory's Go files.
func read(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	set := token.NewFileSet()
	for _, name := range files {
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, id := range field.Names {
						all[spec.Name.Name+"."+id.Name] = told(field)
					}
				}
			}
			return true
		})
	}
	return all, nil
}

// told joins the comments above a field and at the end of its line.
func told(f *ast.Field) string {
	text := f.Doc.Text() + " " + f.Comment.Text()
	return strings.Join(strings.Fields(text), " ")
}
