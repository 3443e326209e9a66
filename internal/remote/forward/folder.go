// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	folderPrefix = "lklctl-"
	folderLock   = "lock"
	// folderMost leaves room behind it for a device's folder, an instance's name and
	// its socket: struct sockaddr_un has 107 bytes for all (linux/un.h).
	folderMost = 107 - len("/0123456789/") - 32 - len("/ctl.sock")
)

// Folder is where the folders of devices are made, this user's alone.
type Folder struct {
	Path string
	lock *os.File
}

// NewFolder makes one where this user's files that end with a login belong, and takes
// away those that were left by callers who were killed.
func NewFolder() (*Folder, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) || unix.Access(base, unix.W_OK) != nil {
		base = os.TempDir()
	}
	sweep(base)
	path, err := os.MkdirTemp(base, folderPrefix) // mode 0700
	if err != nil {
		return nil, fmt.Errorf("a folder for the control sockets of other machines: %w", err)
	}
	f := &Folder{Path: path}
	if len(path) > folderMost {
		err = fmt.Errorf("%s: the paths of sockets in it would be too long: set TMPDIR to a shorter one", path)
	} else if f.lock, err = os.CreateTemp(path, folderLock); err == nil {
		// It has its name when it is taken: nobody's sweep is faster.
		if err = unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			err = os.Rename(f.lock.Name(), filepath.Join(path, folderLock))
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close takes the folder away.
func (f *Folder) Close() {
	_ = os.RemoveAll(f.Path) // the next call's sweep tries again
	if f.lock != nil {
		f.lock.Close()
	}
}

// sweep takes away the folders of this user below base whose lock is free. One
// without a lock is just being made.
func sweep(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(base, e.Name())
		var st unix.Stat_t
		if !strings.HasPrefix(e.Name(), folderPrefix) || !e.IsDir() || unix.Lstat(path, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		f, err := os.Open(filepath.Join(path, folderLock))
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		f.Close()
	}
}
