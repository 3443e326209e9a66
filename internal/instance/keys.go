// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/runas"
)

// Programs append their TLS secrets to a file. They cannot see the run directory, so the file
// is in a temporary directory, and the run directory has a symbolic link to it. Remove and
// Reset follow that link.

// MakeKeys creates the file for TLS secrets. user is the user of the programs; nil: this one.
func (d *Dir) MakeKeys(user *runas.User) (*os.File, error) {
	place := filepath.Join(os.TempDir(), "lklrun-keys-"+rand.Text())
	path := filepath.Join(place, "keys")
	if err := os.Symlink(path, d.File(KeysFile)); err != nil {
		return nil, runDirError(d.Path, err)
	}
	if err := os.Mkdir(place, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil || user == nil {
		return file, err
	}
	if err = errors.Join(file.Chown(user.UID, user.GID), os.Lchown(place, user.UID, user.GID)); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// removeKeys removes the file and its directory. Their owner can have exchanged them, so it
// follows no link in them.
func (d *Dir) removeKeys() error {
	path, err := os.Readlink(d.File(KeysFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(path))
}

// KeysPath returns the path of the file for TLS secrets; "": the run has none.
func KeysPath(dir string) string {
	path, _ := os.Readlink(filepath.Join(dir, KeysFile))
	return path
}

// OpenKeys opens the file for TLS secrets for reading.
func OpenKeys(dir string) (*os.File, error) {
	path := KeysPath(dir)
	if path == "" {
		return nil, errors.New("the run was started without --tls-keys, so its programs write no secrets")
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("%s: a program of the run has replaced this file", path)
	}
	return file, nil
}
