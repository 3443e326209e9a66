// SPDX-License-Identifier: Apache-2.0

// Package instance manages the run directories of stacks, with their locations,
// files and locks, and lists the instances. ARCHITECTURE.md, "The run
// directory", describes the layout.
//
// A run directory's lock shows that the run is alive. The lock belongs to one
// open file description (F_OFD_SETLK, fcntl_locking(2)), which lklrun creates
// and lklhost inherits. It is therefore held as long as one of the two is
// alive. A directory whose lock is free is a leftover.
package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/runas"
)

// Names of the files in a run directory.
const (
	LockFile    = "lock"
	StateFile   = "state.json"
	PlanFile    = "plan.json"
	JournalFile = "journal"
	SocketFile  = "ctl.sock"
	ResolvFile  = "resolv.conf"
	HostsFile   = "hosts" // only with --add-host
	LogFile     = "log"
	OutputFile  = "output" // standard output and error of a run in the background
	TreeFile    = "tree.json"
	KeysFile    = "tls-keys" // link to the secrets that programs write, only with --tls-keys

	CountersFile = "counters.json" // last output of `lklctl counters -d`
)

// InsideFile is a file in the parent of the run directories, as a program on a
// stack sees it. It contains the name of the program's instance. That directory
// is otherwise empty (csrc/target/hide_services.c).
const InsideFile = ".inside"

// EngineVirtual is the engine of a node of a lab in virtual time. While it is an instance, its
// time stands still.
const EngineVirtual = "virtual"

// MaxName is the maximum length of an instance name.
const MaxName = 32

// Interface is an interface of the stack in state.json.
type Interface struct {
	Name string   `json:"name"`           // interface name in the stack, such as eth0
	Type string   `json:"type"`           // interface type, such as user, tap or fd
	Host string   `json:"host,omitempty"` // host side: device name or descriptor
	Addr []string `json:"addr,omitempty"` // configured addresses, ADDRESS/PREFIX

	Leases []Lease `json:"leases,omitempty"` // leases from the network
}

// Lease is an interface's lease, or the progress of its acquisition.
type Lease struct {
	Proto   string    `json:"proto"`            // dhcp, dhcp6 or slaac
	State   string    `json:"state"`            // client state: bound, renewing, selecting, ...
	Addr    string    `json:"addr,omitempty"`   // ADDRESS/PREFIX
	Expires time.Time `json:"expires,omitzero"` // expiry time without renewal
}

// State is the content of state.json.
type State struct {
	Name       string      `json:"name"`                 // instance name, as for lklctl -n
	PID        int         `json:"pid"`                  // process ID of lklrun
	HostPID    int         `json:"host_pid,omitempty"`   // process ID of lklhost
	TargetPID  int         `json:"target_pid,omitempty"` // process ID of the program
	Pod        *Pod        `json:"pod,omitempty"`        // pod that the instance serves
	Stack      string      `json:"stack"`                // stack name: mptcp, bbr, host, ...
	Engine     string      `json:"engine,omitempty"`     // supervise, preload or trace; virtual: a node of a lab in virtual time
	Kernel     string      `json:"kernel,omitempty"`     // kernel release of the stack
	Interfaces []Interface `json:"interfaces,omitempty"` // interfaces that lklrun created, without lo
	Gateway    bool        `json:"gateway,omitempty"`    // `lklrun gateway`, which has no stack
	User       *runas.User `json:"user,omitempty"`       // user of the program, if different
	Started    time.Time   `json:"started"`              // start time of lklrun
	Command    []string    `json:"command"`              // program and arguments
	Output     string      `json:"output,omitempty"`     // file with the output of a run in the background; absent: it is not in the background
}

// Info describes an instance as other processes see it: its directory and its
// last state.
type Info struct {
	State
	Device  string `json:"device,omitempty"` // device, as for --device; absent: this machine
	Dir     string `json:"dir"`              // run directory on that device
	Running bool   `json:"running"`          // false: leftovers of an ended run, or its record
	Ended   *End   `json:"ended,omitempty"`  // how the run ended; only in a record

	near string // if the instance is on another machine: the local folder that represents Dir
}

// Files returns the local folder that contains the available files of the run
// directory. The folder exists as long as the instance and is unique to it.
func (i *Info) Files() string {
	if i.near != "" {
		return i.near
	}
	return i.Dir
}

// Socket returns the path of the control socket.
func (i *Info) Socket() string { return filepath.Join(i.Files(), SocketFile) }

// EnvRoot is the environment variable for the parent of the run directories. It
// is for machines that lack the usual locations. The directory belongs to one
// user.
const EnvRoot = "LKLRUN_RUN_DIR"

// Root returns the parent of this user's run directories. It is $LKLRUN_RUN_DIR
// if set, /run/lklrun for root, $XDG_RUNTIME_DIR/lklrun if set, or else
// /tmp/lklrun-UID.
func Root() string {
	return root(os.Geteuid(), os.Getenv)
}

func root(uid int, getenv func(string) string) string {
	if dir := getenv(EnvRoot); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	if uid == 0 {
		return "/run/lklrun"
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lklrun")
	}
	return fmt.Sprintf("/tmp/lklrun-%d", uid)
}

// IsRunDir reports whether the directory at path is a run directory. It must be
// in this user's parent directory or contain the files that a run writes first.
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

// CheckName returns an error if name is not a valid instance name.
func CheckName(name string) error {
	const want = "expected letters, digits, '-', '_' and '.', a letter or digit first"
	if name == "" {
		return errors.New("an instance's name cannot be empty")
	}
	if len(name) > MaxName {
		return fmt.Errorf("instance name %q is %d characters long; the limit is %d", name, len(name), MaxName)
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

// BaseName derives an instance name from a command. It uses the valid
// characters of the last path element.
func BaseName(command string) string {
	var b strings.Builder
	for _, c := range []byte(filepath.Base(command)) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			b.Len() > 0 && (c == '-' || c == '_' || c == '.')
		if ok && b.Len() < MaxName-6 { // leave room for a suffix up to "-99999"
			b.WriteByte(c)
		}
	}
	if b.Len() == 0 {
		return "run"
	}
	return b.String()
}
