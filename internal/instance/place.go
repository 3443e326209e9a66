// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is where instances are. The zero Place is this machine, and this user.
type Place struct {
	Device string // another machine, as --device takes it
	Root   string // the folder in which its instances appear here: see Appear
}

// List returns the instances of a place, sorted by name; also leftovers. A folder
// that does not exist holds none, and one that others can change is a *PlaceError.
func (p Place) List() ([]Info, error) { return list(p.root()) }

// Open finds a running instance: the one of that name, or with an empty name the
// only one there is.
func (p Place) Open(name string) (*Info, error) { return open(p.root(), p.where(), name) }

func (p Place) root() string {
	if p.Root != "" {
		return p.Root
	}
	return Root()
}

// where says where instances were looked for.
func (p Place) where() string {
	if p.Device != "" {
		return "on " + p.Device
	}
	return "in " + p.root()
}

func list(root string) ([]Info, error) {
	if name, err := os.ReadFile(filepath.Join(root, InsideFile)); err == nil {
		return nil, fmt.Errorf("this program runs on the stack of %q and may not control it; run lklctl outside", name)
	}
	switch err := checkRoot(root, os.Geteuid()); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &PlaceError{err}
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	var all []Info
	for _, e := range entries {
		if !e.IsDir() || CheckName(e.Name()) != nil {
			continue
		}
		info, err := inspect(filepath.Join(root, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended between the two looks
		}
		if err != nil {
			return nil, err
		}
		all = append(all, *info)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all, nil
}

// inspect reads one run directory. A state file that is missing or cut short
// (lklrun died while starting) leaves only the name known.
func inspect(dir string) (*Info, error) {
	if info, err := elsewhere(dir); info != nil || err != nil {
		return info, err
	}
	held, err := lockHeld(filepath.Join(dir, LockFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking at instance %q: %w", filepath.Base(dir), err)
	}
	info := &Info{Dir: dir, Running: held}
	data, err := os.ReadFile(filepath.Join(dir, StateFile))
	if err == nil {
		_ = json.Unmarshal(data, &info.State)
	} else if _, serr := os.Stat(dir); serr != nil {
		return nil, serr
	}
	info.Name = filepath.Base(dir)
	return info, nil
}

// lockHeld tells whether somebody holds the lock at path, without touching it.
func lockHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lk); err != nil {
		return false, err
	}
	return lk.Type != unix.F_UNLCK, nil
}

// takeLock takes the lock that f is open on; unix.EAGAIN: somebody else has it.
// It does nothing when f's open file description holds it already.
func takeLock(fd uintptr) error {
	return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// ErrNone is wrapped by Open's error when no instance runs, or none of the name.
var ErrNone = errors.New("no such instance")

// noneError is ErrNone in words that name what was looked for.
type noneError struct{ error }

func (noneError) Is(target error) bool { return target == ErrNone }

func open(root, where, name string) (*Info, error) {
	all, err := list(root)
	if err != nil {
		return nil, err
	}
	var running []Info
	for _, i := range all {
		if i.Running {
			running = append(running, i)
		}
	}
	if name == "" {
		switch len(running) {
		case 0:
			return nil, noneError{fmt.Errorf("no instance is running (looked %s)", where)}
		case 1:
			return &running[0], nil
		}
		return nil, fmt.Errorf("%d instances are running: %s; choose one with -n NAME", len(running), names(running))
	}
	for i := range running {
		if running[i].Name == name {
			return &running[i], nil
		}
	}
	switch {
	case len(running) > 0:
		return nil, noneError{fmt.Errorf("no instance %q is running; there is %s", name, names(running))}
	default:
		return nil, noneError{fmt.Errorf("no instance %q is running, nor any other (looked %s)", name, where)}
	}
}

func names(all []Info) string {
	s := make([]string, len(all))
	for i := range all {
		s[i] = all[i].Name
	}
	return strings.Join(s, ", ")
}
