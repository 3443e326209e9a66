// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// elsewhereFile replaces the lock and state files in the folder of an instance
// on another machine. It contains an Info.
const elsewhereFile = "elsewhere.json"

// Publish creates or updates the folder of an instance on another machine and
// returns it. The folder is below root. Readers see either the complete folder
// or none.
func Publish(root string, info Info) (dir string, err error) {
	if err := CheckName(info.Name); err != nil {
		return "", err
	}
	dir = filepath.Join(root, info.Name)
	data, err := json.Marshal(info)
	if err != nil {
		return "", err
	}
	d := Dir{Path: dir, Name: info.Name}
	if _, err := os.Lstat(dir); err == nil {
		return dir, d.WriteFile(elsewhereFile, data)
	}
	tmp, err := os.MkdirTemp(root, "."+info.Name+".*")
	if err != nil {
		return "", err
	}
	d.Path = tmp
	if err = d.WriteFile(elsewhereFile, data); err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return dir, nil
}

// Unpublish removes a folder created by Publish.
func Unpublish(root, name string) error {
	away, err := os.MkdirTemp(root, "."+name+".*")
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(root, name), filepath.Join(away, name))
	return errors.Join(err, os.RemoveAll(away))
}

// elsewhere reads the Info that Publish wrote. It returns nil if the folder is a
// run directory of this machine.
func elsewhere(dir string) (*Info, error) {
	data, err := os.ReadFile(filepath.Join(dir, elsewhereFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the folder is not from Publish, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("inspecting instance %q: %w", filepath.Base(dir), err)
	}
	info := &Info{}
	if err := json.Unmarshal(data, info); err != nil {
		return nil, fmt.Errorf("inspecting instance %q: %w", filepath.Base(dir), err)
	}
	info.near = dir
	return info, nil
}
