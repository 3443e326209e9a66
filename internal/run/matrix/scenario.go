// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// scenarios are topology files with the program that they run.
//
//go:embed scenarios
var scenarios embed.FS

const topologySuffix = ".json"

// BuiltIn returns the names of the built-in scenarios.
func BuiltIn() []string {
	var names []string
	for _, f := range files() {
		if name, ok := strings.CutSuffix(f, topologySuffix); ok {
			names = append(names, name)
		}
	}
	return names
}

// IsBuiltIn reports whether a name is that of a built-in scenario. A file of this name
// needs a path, such as ./mptcp.
func IsBuiltIn(name string) bool { return slices.Contains(BuiltIn(), name) }

func files() []string {
	entries, err := fs.ReadDir(scenarios, "scenarios")
	if err != nil {
		panic(err) // cannot happen: the folder is part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Read returns the topology file of a built-in scenario.
func Read(name string) ([]byte, error) {
	return scenarios.ReadFile(path.Join("scenarios", name+topologySuffix))
}

// Copy writes a built-in scenario and the programs that it runs to a folder, and returns
// the name of its topology file. Unless overwrite is set, it does not change files.
func Copy(name, folder string, overwrite bool) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	for _, f := range files() {
		if f != name+topologySuffix && strings.HasSuffix(f, topologySuffix) {
			continue
		}
		text, err := scenarios.ReadFile(path.Join("scenarios", f))
		if err != nil {
			return "", err
		}
		if err := write(filepath.Join(folder, f), text, overwrite); err != nil {
			return "", err
		}
	}
	return filepath.Join(folder, name+topologySuffix), nil
}

func write(file string, text []byte, overwrite bool) error {
	if overwrite {
		return os.WriteFile(file, text, 0o644)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if old, readErr := os.ReadFile(file); readErr == nil && slices.Equal(old, text) {
			return nil // another scenario uses the same program
		}
		return fmt.Errorf("%s already exists; remove it, or choose another folder", file)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
