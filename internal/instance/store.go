// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is a set of instances. The zero Place contains this user's instances on
// this machine.
type Place struct {
	Device string // another machine, as in --device; empty: this machine
	Root   string // local folder with its instances; see Publish
}

// List returns the instances of a place, including leftovers, sorted by name. A
// folder that does not exist contains no instances. If other users can change
// the folder, List returns a *PlaceError.
func (p Place) List() ([]Info, error) { return list(p.root()) }

// All is like List, and includes gateways, which have no stack.
func (p Place) All() ([]Info, error) { return all(p.root()) }

// Open finds a running instance by name, or by the name of its pod (NAMESPACE/POD). An
// empty name selects the only running instance.
func (p Place) Open(name string) (*Info, error) { return open(p.root(), p.where(), name) }

func (p Place) root() string {
	if p.Root != "" {
		return p.Root
	}
	return Root()
}

// where describes the searched place in messages.
func (p Place) where() string {
	if p.Device != "" {
		return "on " + p.Device
	}
	return "in " + p.root()
}

func list(root string) ([]Info, error) {
	found, err := all(root)
	return slices.DeleteFunc(found, func(i Info) bool { return i.Gateway }), err
}

func all(root string) ([]Info, error) {
	if name, err := os.ReadFile(filepath.Join(root, InsideFile)); err == nil {
		return nil, fmt.Errorf("this program runs on the stack of instance %q and may not control it; run lklctl outside the instance", name)
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
	var found []Info
	for _, e := range entries {
		if !e.IsDir() || CheckName(e.Name()) != nil {
			continue
		}
		info, err := inspect(filepath.Join(root, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the instance ended between the two checks
		}
		if err != nil {
			return nil, err
		}
		found = append(found, *info)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found, nil
}

// inspect reads one run directory. If lklrun died while it was starting, the
// state file may be missing or incomplete. In that case, only the name is
// known.
func inspect(dir string) (*Info, error) {
	if info, err := elsewhere(dir); info != nil || err != nil {
		return info, err
	}
	held, err := lockHeld(filepath.Join(dir, LockFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("inspecting instance %q: %w", filepath.Base(dir), err)
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

// lockHeld reports whether any process holds the lock at path. It does not take
// the lock.
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

// takeLock locks the open file fd. It returns unix.EAGAIN if another process
// holds the lock. If the open file description already holds the lock, takeLock
// does nothing.
func takeLock(fd uintptr) error {
	return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// ErrNone means that no instance runs, or none with the given name. Open wraps
// it.
var ErrNone = errors.New("no such instance")

// noneError is an ErrNone with its own message.
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
	if found := newest(running, name); found != nil {
		return found, nil
	}
	if NamesPod(name) {
		return nil, noneError{noPod(name, where, running)}
	}
	records, _ := ended(root) // they only improve the message
	if r := newest(records, name); r != nil {
		return nil, noneError{fmt.Errorf("instance %q has ended (%v); see lklctl logs %[1]s", name, r.Ended)}
	}
	switch {
	case len(running) > 0:
		return nil, noneError{fmt.Errorf("no instance %q is running; running instances: %s", name, names(running))}
	default:
		return nil, noneError{fmt.Errorf("no instance %q is running (looked %s)", name, where)}
	}
}

func names(all []Info) string {
	s := make([]string, len(all))
	for i := range all {
		s[i] = all[i].Name
	}
	return strings.Join(s, ", ")
}
