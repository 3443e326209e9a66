// SPDX-License-Identifier: Apache-2.0

// Package ondevice is the device's half of a run from another machine: the
// verbs of `lklrun device`. It needs no home directory, no /tmp, and no
// writable folder except the bundle's.
package ondevice

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
)

// Place is the location of the files on a device. BASE/HASH is the bundle. If the
// machine has no usual place for run directories and temporary files, these are in
// BASE/run and BASE/tmp.
type Place struct{ Base, Bundle string }

// Locate returns the place of this program. It returns an error if the program is
// not in a bundle.
func Locate() (Place, error) {
	exe, err := os.Executable()
	if err != nil {
		return Place{}, fmt.Errorf("looking for this program: %w", err)
	}
	dir := filepath.Dir(exe)
	return Place{Base: filepath.Dir(dir), Bundle: dir}, nil
}

// Program returns the path of the device's lklrun.
func (p Place) Program() string { return filepath.Join(p.Bundle, "lklrun") }

// SetUp prepares the environment for lklrun and its children. It directs run
// directories and temporary files to writable places. It also removes lklrun's
// settings from the device's environment, because only those of the desk apply.
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

// nodeRoot is the root of the node, if this program is in a pod with hostPID. Otherwise it
// is that of the container.
const nodeRoot = "/proc/1/root"

// OnNode directs this program and its children to the run directories of the node. A
// volume would not do: lklrun removes the parent of the run directories when it is empty,
// and the volume would then remain empty.
func OnNode() error {
	return errors.Join(
		os.Setenv(instance.EnvRoot, nodeRoot+instance.Root()),
		os.Setenv("TMPDIR", nodeRoot+"/tmp"), // the image may have none
	)
}

func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	return nil
}

// writable reports whether a folder exists and files can be created in it.
func writable(dir string) bool {
	return unix.Access(dir, unix.W_OK|unix.X_OK) == nil && isDir(dir)
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
