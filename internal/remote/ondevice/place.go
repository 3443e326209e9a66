// SPDX-License-Identifier: Apache-2.0

// Package ondevice is the device's half of a run from another machine: what
// `lklrun device` does there. It needs no home, no /tmp and no folder that can be
// written but the one that the bundle lies in.
package ondevice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
)

// Place is where things lie on a device: BASE/HASH is the bundle, BASE/run has the
// run directories and BASE/tmp temporary files, where the machine has no place of
// its own for them.
type Place struct{ Base, Bundle string }

// Here is the place of this program; the error says that it is not in a bundle.
func Here() (Place, error) {
	exe, err := os.Executable()
	if err != nil {
		return Place{}, fmt.Errorf("looking for this program: %w", err)
	}
	dir := filepath.Dir(exe)
	return Place{Base: filepath.Dir(dir), Bundle: dir}, nil
}

// Program is the path of the device's lklrun.
func (p Place) Program() string { return filepath.Join(p.Bundle, "lklrun") }

// SetUp makes the environment fit for lklrun and what it starts: run directories and
// temporary files where they can be written, and none of the settings that somebody
// left in variables here, for the desk says what holds.
func (p Place) SetUp() error {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "LKL_") || strings.HasPrefix(name, "LKLRUN_") && name != instance.EnvRoot {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	if !writable(os.TempDir()) {
		dir := filepath.Join(p.Base, "tmp")
		if err := makeDir(dir); err != nil {
			return err
		}
		if err := os.Setenv("TMPDIR", dir); err != nil {
			return err
		}
	}
	root := instance.Root()
	if os.Getenv(instance.EnvRoot) == "" && !writable(root) && !writable(filepath.Dir(root)) {
		return os.Setenv(instance.EnvRoot, filepath.Join(p.Base, "run"))
	}
	return nil
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	return nil
}

// writable tells whether a folder is there and files can be made in it.
func writable(dir string) bool {
	return unix.Access(dir, unix.W_OK|unix.X_OK) == nil && isDir(dir)
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
