// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// RunningError reports that the requested name is in use.
type RunningError struct {
	Name string
	PID  int // PID of its lklrun; 0: not known yet
}

// ExitStatus is Usage: another name helps.
func (e *RunningError) ExitStatus() int { return exit.Usage }

func (e *RunningError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("instance %q is running; choose another --name", e.Name)
	}
	return fmt.Sprintf("instance %q is running (pid %d); choose another --name", e.Name, e.PID)
}

// PlaceError reports why a run directory cannot be created in its place, and
// names the remedy.
type PlaceError struct{ Err error }

// Error names the directory and the remedy.
func (e *PlaceError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *PlaceError) Unwrap() error { return e.Err }

// ExitStatus is Usage: the message names the remedy.
func (e *PlaceError) ExitStatus() int { return exit.Usage }

// Dir is a run directory whose lock this process holds.
type Dir struct {
	Path string
	Name string
	lock *os.File
	// Leftover is set if the directory remained from an earlier run. Its
	// journal must be replayed before the directory is used or removed.
	Leftover bool
}

// Create creates and locks the run directory of the instance called name. If
// that directory remains from an earlier run, Create takes it over and sets
// Leftover. Create returns a *RunningError if the name is in use.
func Create(name string) (*Dir, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return create(Root(), name)
}

// CreateAny is like Create but uses the first free name of base, base-2,
// base-3, ...
func CreateAny(base string) (*Dir, error) {
	const tries = 10000
	for n := 1; n <= tries; n++ {
		name := base
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		if _, err := os.Lstat(filepath.Join(Root(), name)); err == nil {
			continue
		}
		d, err := Create(name)
		var running *RunningError
		if errors.As(err, &running) {
			continue // another process was faster
		}
		return d, err
	}
	return nil, fmt.Errorf("%d instances named %s are running; choose a --name", tries, base)
}

// makeRoot creates the parent directory of the run directories. The last run
// removes it.
func makeRoot(path string, uid int) error {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return runDirError(path, err)
	}
	err = checkRoot(path, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another run removed it again; the caller detects that
	}
	return err
}

// runDirError adds the remedy to a file system error.
func runDirError(path string, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return fmt.Errorf("run directory %s: %w", path, err)
	}
	var remedy, or = "", " or"
	switch errno {
	case unix.ENOTDIR:
		remedy, or = ";", ""
	case unix.ENOSPC, unix.EDQUOT:
		remedy = "; free some space on its file system"
	case unix.ENOENT:
		remedy = "; make " + filepath.Dir(path)
	case unix.EACCES, unix.EROFS, unix.EPERM:
		remedy = "; make it writable"
	}
	switch {
	case remedy != "" && os.Geteuid() != 0:
		remedy += or + " set XDG_RUNTIME_DIR to another directory"
	case errno == unix.ENOTDIR:
		remedy = "" // only root can change /run
	}
	return fmt.Errorf("run directory %s: %w%s", path, errno, remedy)
}

func create(base, name string) (*Dir, error) {
	path := filepath.Join(base, name)
	// struct sockaddr_un in linux/un.h has 108 bytes for the path,
	// including the terminator.
	if n := len(filepath.Join(path, SocketFile)); n > 107 {
		return nil, &PlaceError{fmt.Errorf("run directory %s: the path of its control socket would have %d characters, and the limit is 107; set XDG_RUNTIME_DIR to a shorter path", path, n)}
	}
	for range 100 {
		if err := makeRoot(base, os.Geteuid()); err != nil {
			return nil, &PlaceError{err}
		}
		_, err := os.Lstat(path)
		old := err == nil
		var f *os.File
		if old {
			f, err = lockDir(path)
		} else {
			f, err = placeLocked(base, name)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist), !old && errors.Is(err, fs.ErrExist):
			continue // another process created or removed it between the two checks
		case errors.Is(err, unix.EAGAIN):
			info, ierr := inspect(path)
			if ierr != nil {
				continue
			}
			return nil, &RunningError{Name: name, PID: info.PID}
		case err != nil:
			_ = os.Remove(base) // fails unless we have just created base
			return nil, &PlaceError{runDirError(path, err)}
		}
		return &Dir{Path: path, Name: name, lock: f, Leftover: old}, nil
	}
	return nil, fmt.Errorf("run directory %s is repeatedly created and removed by another process; choose another --name", path)
}

// placeLocked creates a run directory and locks it before the directory gets
// its final name. It returns fs.ErrExist if the name is in use.
func placeLocked(base, name string) (*os.File, error) {
	tmp, err := os.MkdirTemp(base, "."+name+".*") // mode 0700
	if err != nil {
		return nil, err
	}
	f, err := lockDir(tmp)
	if err == nil {
		// rename(2) replaces only an empty directory. A directory with
		// a final name is never empty, because it contains its lock.
		if err = unix.Rename(tmp, filepath.Join(base, name)); err == nil {
			return f, nil
		}
		f.Close()
	}
	_ = os.RemoveAll(tmp) // if this fails, `lklrun cleanup` removes the directory
	if errors.Is(err, unix.ENOTEMPTY) {
		err = fs.ErrExist
	}
	return nil, err
}

// lockDir opens and locks the lock file of the run directory at path. It
// returns fs.ErrNotExist if the file was removed before it could be locked.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := takeLock(f.Fd()); err != nil {
		f.Close()
		return nil, err
	}
	if !sameFile(f, filepath.Join(path, LockFile)) {
		f.Close()
		return nil, fs.ErrNotExist
	}
	return f, nil
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// Take locks an existing run directory for its cleanup. This process may have
// inherited the lock with an open descriptor, because lklhost executes `lklrun
// cleanup` when lklrun has died. Take returns a *RunningError if the directory
// is in use.
func Take(path string) (*Dir, error) {
	path = filepath.Clean(path)
	name := filepath.Base(path)
	if _, err := os.Lstat(filepath.Join(path, LockFile)); err != nil {
		return nil, err
	}
	if f := inheritedLock(path); f != nil {
		return &Dir{Path: path, Name: name, lock: f, Leftover: true}, nil
	}
	f, err := lockDir(path)
	if errors.Is(err, unix.EAGAIN) {
		running := &RunningError{Name: name}
		if info, err := inspect(path); err == nil {
			running.PID = info.PID
		}
		return nil, running
	}
	if err != nil {
		return nil, err
	}
	return &Dir{Path: path, Name: name, lock: f, Leftover: true}, nil
}

// inheritedLock searches this process's descriptors for an open lock file that
// holds the lock. Such a descriptor can take the lock again at once, because
// the lock belongs to the open file description.
func inheritedLock(path string) *os.File {
	lock := filepath.Join(path, LockFile)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range fds {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n < 3 {
			continue
		}
		var a, b unix.Stat_t
		if unix.Fstat(n, &a) != nil || unix.Lstat(lock, &b) != nil ||
			a.Dev != b.Dev || a.Ino != b.Ino {
			continue
		}
		if takeLock(uintptr(n)) == nil {
			dup, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return nil
			}
			return os.NewFile(uintptr(dup), lock)
		}
	}
	return nil
}

// LockFD returns the descriptor that holds the lock. lklhost inherits it.
func (d *Dir) LockFD() *os.File { return d.lock }

// File returns the path of a file in the directory.
func (d *Dir) File(name string) string { return filepath.Join(d.Path, name) }

// WriteState replaces state.json atomically.
func (d *Dir) WriteState(s *State) error { return d.WriteJSON(StateFile, s) }

// WriteJSON writes a value as JSON to a file of the directory, atomically.
func (d *Dir) WriteJSON(name string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // commands often contain the characters that HTML escapes
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	return d.WriteFile(name, b.Bytes())
}

// WriteFile replaces a file of the directory atomically: readers see either the
// old or the new content.
func (d *Dir) WriteFile(name string, data []byte) error {
	tmp := d.File(name + ".new")
	err := os.WriteFile(tmp, data, 0o600)
	if err == nil && (name == ResolvFile || name == HostsFile) {
		err = os.Chmod(tmp, 0o644) // the target may run as another user
	}
	if err != nil {
		_ = os.Remove(tmp)
		return runDirError(d.Path, err)
	}
	if err := os.Rename(tmp, d.File(name)); err != nil {
		_ = os.Remove(tmp)
		return runDirError(d.Path, err)
	}
	return nil
}

// Rewrite changes the content of a file that is bind-mounted elsewhere and must
// therefore remain the same file. A concurrent reader sees the whole new text.
// If the old text was longer, empty lines follow the new one.
func (d *Dir) Rewrite(name string, data []byte) error {
	f, err := os.OpenFile(d.File(name), os.O_RDWR, 0)
	if err != nil {
		return runDirError(d.Path, err)
	}
	defer f.Close()
	old, err := io.ReadAll(f)
	if err != nil || bytes.Equal(old, data) {
		return err
	}
	long := append(bytes.Clone(data), bytes.Repeat([]byte("\n"), max(len(old)-len(data), 0))...)
	if _, err := f.WriteAt(long, 0); err != nil {
		return runDirError(d.Path, err)
	}
	return f.Truncate(int64(len(data)))
}

// Reset empties a leftover directory whose journal has been replayed.
func (d *Dir) Reset() error {
	if err := d.removeKeys(); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != LockFile {
			if err := os.RemoveAll(d.File(e.Name())); err != nil {
				return err
			}
		}
	}
	d.Leftover = false
	return nil
}

// Remove deletes the directory and releases the lock. It first renames the
// directory to a name that no instance can have, so that the old name is free
// immediately.
func (d *Dir) Remove() error {
	defer d.Release()
	if err := d.removeKeys(); err != nil {
		return fmt.Errorf("removing the TLS secrets: %w", err)
	}
	root := filepath.Dir(d.Path)
	away, err := os.MkdirTemp(root, "."+d.Name+".*")
	if err != nil { // keep the name, for example if the disk is full
		away = d.Path
	} else if err = unix.Rename(d.Path, away); err != nil {
		_ = os.Remove(away)
		return fmt.Errorf("removing run directory: %w", err)
	}
	err = os.RemoveAll(away)
	if err != nil {
		return fmt.Errorf("removing run directory: %w", err)
	}
	_ = os.Remove(root) // fails while other runs are in it
	return nil
}

// Sweep deletes directories of runs that died inside Create or Remove.
func Sweep() error { return sweep(Root()) }

func sweep(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // there are no runs
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if !strings.HasPrefix(e.Name(), ".") || !e.IsDir() || e.Name() == endedDir {
			continue
		}
		if held, _ := lockHeld(filepath.Join(path, LockFile)); !held {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	_ = os.Remove(root) // fails while runs are in it
	return errors.Join(errs...)
}

// Release releases the lock but keeps the directory.
func (d *Dir) Release() {
	if d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
}
