// SPDX-License-Identifier: Apache-2.0

// Package instance knows the run directory of a stack: where it lies, what is
// in it, who holds it and which ones there are. ARCHITECTURE.md, "The run
// directory", is its description.
//
// The directory's lock says everything about its life: it belongs to one open
// file description (F_OFD_SETLK, fcntl_locking(2)) that lklrun makes and
// lklhost inherits, so it is held for as long as either of the two lives, and
// a directory whose lock is free is a leftover.
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
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/runas"
)

// Names of the files in a run directory.
const (
	LockFile    = "lock"
	StateFile   = "state.json"
	PlanFile    = "plan.json"
	JournalFile = "journal"
	SocketFile  = "ctl.sock"
	ResolvFile  = "resolv.conf"
	LogFile     = "log"
	OutputFile  = "output" // of a run in the background
)

// MaxName is the longest name of an instance.
const MaxName = 32

// Interface is one interface of the stack, as state.json shows it.
type Interface struct {
	Name string   `json:"name"`           // in the stack: eth0
	Type string   `json:"type"`           // user, tap, fd
	Host string   `json:"host,omitempty"` // what it hangs on: the tap's name, the descriptor
	Addr []string `json:"addr,omitempty"` // ADDRESS/PREFIX, as lklrun was told

	Leases []Lease `json:"leases,omitempty"` // of its network
}

// Lease is what an interface has of its network, or how far it is with that.
type Lease struct {
	Proto   string    `json:"proto"`            // dhcp, dhcp6, slaac
	State   string    `json:"state"`            // how far its client is: bound, renewing, selecting, ...
	Addr    string    `json:"addr,omitempty"`   // ADDRESS/PREFIX
	Expires time.Time `json:"expires,omitzero"` // when it ends unless it is renewed
}

// State is the content of state.json.
type State struct {
	Name       string      `json:"name"`                 // as lklctl -n takes it
	PID        int         `json:"pid"`                  // of lklrun
	HostPID    int         `json:"host_pid,omitempty"`   // of lklhost, once started
	TargetPID  int         `json:"target_pid,omitempty"` // once released
	Stack      string      `json:"stack"`                // name of the stack: mptcp, bbr, host, ...
	Engine     string      `json:"engine,omitempty"`     // how sockets reach it: supervise, preload
	Kernel     string      `json:"kernel,omitempty"`     // release the stack reported
	Interfaces []Interface `json:"interfaces,omitempty"` // those that lklrun made, without lo
	User       *runas.User `json:"user,omitempty"`       // the target's, when it is another
	Started    time.Time   `json:"started"`              // when lklrun was
	Command    []string    `json:"command"`              // the program and its arguments
}

// Info is an instance seen from outside: its directory and its last state.
type Info struct {
	State
	Dir     string `json:"dir"`     // its run directory
	Running bool   `json:"running"` // the lock is held; false: a leftover
}

// Socket is the path of the control socket.
func (i *Info) Socket() string { return filepath.Join(i.Dir, SocketFile) }

// Root is the directory that holds the run directories of this user: for root
// /run/lklrun, else $XDG_RUNTIME_DIR/lklrun, else /tmp/lklrun-UID.
func Root() string {
	return root(os.Geteuid(), os.Getenv)
}

func root(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/run/lklrun"
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lklrun")
	}
	return fmt.Sprintf("/tmp/lklrun-%d", uid)
}

// IsRunDir tells whether the directory at path is one of a run: in this user's
// place for them, or, in another's, with what a run writes first.
func IsRunDir(path string) bool {
	abs, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if filepath.Dir(abs) == Root() {
		return true
	}
	for _, name := range []string{LockFile, JournalFile} {
		if st, err := os.Lstat(filepath.Join(abs, name)); err != nil || !st.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// CheckName says what is wrong with name as an instance's name.
func CheckName(name string) error {
	const want = "expected letters, digits, '-', '_' and '.', a letter or digit first"
	if name == "" {
		return errors.New("an instance's name cannot be empty")
	}
	if len(name) > MaxName {
		return fmt.Errorf("instance name %q is %d characters long; expected at most %d", name, len(name), MaxName)
	}
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '-' || c == '_' || c == '.'):
		default:
			return fmt.Errorf("instance name %q; %s", name, want)
		}
	}
	return nil
}

// BaseName makes an instance's name out of a command: the last element of its
// path, reduced to the characters a name may have.
func BaseName(command string) string {
	var b strings.Builder
	for _, c := range []byte(filepath.Base(command)) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			b.Len() > 0 && (c == '-' || c == '_' || c == '.')
		if ok && b.Len() < MaxName-6 { // room for "-99999"
			b.WriteByte(c)
		}
	}
	if b.Len() == 0 {
		return "run"
	}
	return b.String()
}

// List returns the instances of this user, sorted by name; also leftovers.
// A root directory that does not exist holds none.
func List() ([]Info, error) { return list(Root()) }

func list(root string) ([]Info, error) {
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

// Open finds a running instance: the one of that name, or with an empty name
// the only one there is.
func Open(name string) (*Info, error) { return open(Root(), name) }

func open(root, name string) (*Info, error) {
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
			return nil, noneError{fmt.Errorf("no instance is running (looked in %s)", root)}
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
		return nil, noneError{fmt.Errorf("no instance %q is running, nor any other (looked in %s)", name, root)}
	}
}

func names(all []Info) string {
	s := make([]string, len(all))
	for i := range all {
		s[i] = all[i].Name
	}
	return strings.Join(s, ", ")
}
