// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// openDir opens a directory, or a name inside an open directory, without
// following symbolic links.
func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// checkRoot returns an error if the directory at path is not safe as a parent
// of this user's run directories. In /tmp, another user may have created it.
// checkRoot returns fs.ErrNotExist if the directory does not exist.
func checkRoot(path string, uid int) error {
	fd, err := openDir(unix.AT_FDCWD, path)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		if _, lerr := os.Lstat(path); lerr != nil {
			return runDirError(path, err)
		}
		return fmt.Errorf("run directory %s: not a directory; remove it or set XDG_RUNTIME_DIR", path)
	case errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		return runDirError(path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return runDirError(path, err)
	}
	switch {
	case int(st.Uid) != uid:
		return fmt.Errorf("run directory %s belongs to uid %d; set XDG_RUNTIME_DIR to a directory of your own", path, st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("run directory %s is writable by other users; run `chmod 700 %s`", path, path)
	}
	return nil
}

// CheckOwn returns an error if the journal of the run directory at path cannot
// be trusted, because it or a directory above it belongs to another user. If
// this process has inherited the directory's lock, the directory is the one
// that its lklrun created.
func CheckOwn(path string) error {
	if f := inheritedLock(path); f != nil {
		return f.Close()
	}
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return err
	}
	at, err := openDir(unix.AT_FDCWD, "/")
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	down := "/"
	for name := range strings.SplitSeq(strings.Trim(abs, "/"), "/") {
		if err := checkAbove(at, down); err != nil {
			return err
		}
		next, err := openDir(at, name)
		if err != nil {
			return fmt.Errorf("opening %s: %w", filepath.Join(down, name), err)
		}
		unix.Close(at)
		at, down = next, filepath.Join(down, name)
	}
	if err := checkMine(at, "", down); err != nil {
		return err
	}
	return checkMine(at, JournalFile, filepath.Join(down, JournalFile))
}

// checkAbove returns an error if another user could replace files in a
// directory.
func checkAbove(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch {
	case int(st.Uid) != os.Geteuid() && st.Uid != 0 && !isUnmapped(st.Uid):
		return fmt.Errorf("%s belongs to uid %d, who could replace its files; run `lklrun cleanup` as that user", path, st.Uid)
	case st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
		return fmt.Errorf("%s is writable by other users, who could replace its files", path)
	}
	return nil
}

// checkMine returns an error if a file of a directory belongs to another user.
// An empty name means the directory itself. If the file does not exist,
// checkMine returns nil.
func checkMine(at int, name, path string) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, flags)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("inspecting %s: %w", path, err)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to uid %d; run `lklrun cleanup` as that user", path, st.Uid)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("%s is a symbolic link", path)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s is writable by other users", path)
	}
	return nil
}

// isUnmapped reports whether uid stands for users that a user namespace does
// not map, which then include root. In such a namespace, this process has no
// rights over the host's network that another user could misuse.
func isUnmapped(uid uint32) bool {
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil || strings.TrimSpace(string(overflow)) != fmt.Sprint(uid) {
		return false
	}
	uids, err := os.ReadFile("/proc/self/uid_map") // the initial user namespace maps all users
	return err == nil && strings.Join(strings.Fields(string(uids)), " ") != "0 0 4294967295"
}
