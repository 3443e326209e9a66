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
	// folderMost is the maximum length of a folder's path. It leaves room for the
	// folder of a device, the name of an instance and the socket's name: struct
	// sockaddr_un has 107 bytes for the whole path (linux/un.h).
	folderMost = 107 - len("/0123456789/") - 32 - len("/ctl.sock")
)

// Folder contains the folders of devices. Only this user can access it.
type Folder struct {
	Path string
	lock *os.File
}

// NewFolder creates a folder in $XDG_RUNTIME_DIR, or in the directory for temporary
// files. It also removes the folders of killed processes.
func NewFolder() (*Folder, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) || unix.Access(base, unix.W_OK) != nil {
		base = os.TempDir()
	}
	sweep(base)
	path, err := os.MkdirTemp(base, folderPrefix) // mode 0700
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the control sockets of other machines: %w", err)
	}
	f := &Folder{Path: path}
	if len(path) > folderMost {
		err = fmt.Errorf("%s: the paths of sockets in it would be too long; set TMPDIR to a shorter path", path)
	} else if f.lock, err = os.CreateTemp(path, folderLock); err == nil {
		// Lock the file before it gets its name, so that no sweep can lock it
		// first.
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

// Close removes the folder.
func (f *Folder) Close() {
	_ = os.RemoveAll(f.Path) // if this fails, the next sweep retries
	if f.lock != nil {
		f.lock.Close()
	}
}

// sweep removes this user's folders below base whose lock is free. A folder
// without a lock is still being created.
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
