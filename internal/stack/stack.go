// SPDX-License-Identifier: Apache-2.0

// Package stack finds, reads and checks stacks. A stack is a directory with a manifest,
// stack.json, and a library with LKL's interface. A directory without manifest, or just
// the library, is a plain stack.
package stack

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/pkg/config"
)

// ManifestFile and LibraryFile are the names in a stack's directory.
const (
	ManifestFile = "stack.json"
	LibraryFile  = "liblkl.so"
)

// Default is the stack that runs by default.
const Default = config.DefaultStack

// ABIs for manifests, also the values of lklhost's --abi.
const (
	ABIAuto   = "auto"   // detected in the library
	ABINative = "native" // lklrun's own
	ABIHost   = "host"   // no library: the host's own kernel
)

var abis = []string{ABIAuto, ABINative, "new", "old", ABIHost}

// Stack is a stack as described in its manifest.
type Stack struct {
	Name    string            `json:"name"`
	Summary string            `json:"summary"`
	Kernel  string            `json:"kernel,omitempty"` // version, as far as the manifest knows it
	ABI     string            `json:"abi,omitempty"`
	Library string            `json:"library,omitempty"` // relative to the folder
	MPTCP   bool              `json:"mptcp,omitempty"`   // TCP stream sockets become MPTCP
	Sysctls map[string]string `json:"sysctls,omitempty"`
	Mem     string            `json:"mem,omitempty"` // as --mem takes it
	Offers  *Offers           `json:"offers,omitempty"`
	Built   *Built            `json:"built,omitempty"`

	Dir      string `json:"-"` // the folder
	Origin   string `json:"-"` // why it was found: one of Origin*; empty: by its path
	Shadowed bool   `json:"-"` // another stack of this name comes first
}

// Offers lists what a kernel offers to programs and settings.
type Offers struct {
	Congestion []string `json:"congestion,omitempty"`       // congestion controls
	Schedulers []string `json:"mptcp_schedulers,omitempty"` // packet schedulers of MPTCP
	Qdiscs     []string `json:"qdiscs,omitempty"`           // queueing disciplines
}

// Built describes how `lklrun stack build` made a stack.
type Built struct {
	Time    time.Time `json:"time"`
	Source  string    `json:"source"`            // package or directory of the kernel source
	Commit  string    `json:"commit,omitempty"`  // the commit that the directory has checked out
	Dirty   bool      `json:"dirty,omitempty"`   // the directory had uncommitted changes
	Patches []string  `json:"patches,omitempty"` // patches of --patch
	Config  []string  `json:"config,omitempty"`  // kernel options of --config
	Fixes   []string  `json:"fixes,omitempty"`   // lklrun's own patches for the kernel that were applied
	Missing []string  `json:"missing,omitempty"` // those that did not fit this kernel
}

// MemBytes is the memory size in the manifest; 0: the library's default.
func (s *Stack) MemBytes() uint64 {
	n, _ := config.ParseMem(s.Mem) // checked by load
	return n
}

// LibraryPath is the path of the stack's library; empty for the host's kernel.
func (s *Stack) LibraryPath() string {
	if s.ABI == ABIHost {
		return ""
	}
	if filepath.IsAbs(s.Library) {
		return s.Library
	}
	return filepath.Join(s.Dir, s.Library)
}

// SortedSysctls are the manifest's sysctls, sorted by name.
func (s *Stack) SortedSysctls() []config.Sysctl {
	var list []config.Sysctl
	for k, v := range s.Sysctls {
		list = append(list, config.Sysctl{Name: k, Value: v})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// ErrNoLibrary is wrapped by CheckLibrary for a stack without a library.
var ErrNoLibrary = errors.New("has no library")

// CheckLibrary returns an error if the library cannot be loaded here: missing, not
// readable, not a shared library, or for another machine.
func (s *Stack) CheckLibrary() error {
	path := s.LibraryPath()
	if path == "" {
		return nil
	}
	f, err := elf.Open(path)
	var format *elf.FormatError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("stack %q %w: %s does not exist; build it with `make stack`", s.Name, ErrNoLibrary, path)
	case errors.As(err, &format), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("stack %q: %s is not a shared library", s.Name, path)
	case err != nil:
		return fmt.Errorf("stack %q: %w", s.Name, err)
	}
	defer f.Close()
	if f.Type != elf.ET_DYN {
		return fmt.Errorf("stack %q: %s is not a shared library (%v)", s.Name, path, f.Type)
	}
	if want, known := program.Machine(); known && f.Machine != want {
		return fmt.Errorf("stack %q: %s is for %v, but this machine is %v", s.Name, path, f.Machine, want)
	}
	return nil
}

// load reads the manifest in dir. Unknown fields are errors: otherwise a misspelt setting
// would silently have no effect.
func load(dir string) (*Stack, error) {
	path := filepath.Join(dir, ManifestFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(data, dir)
}

func parse(data []byte, dir string) (*Stack, error) {
	path := filepath.Join(dir, ManifestFile)
	s := &Stack{Dir: dir, Library: LibraryFile, ABI: ABIAuto}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading %s: unexpected data after the manifest", path)
	}
	if s.Name == "" {
		s.Name = filepath.Base(dir)
	}
	if !slices.Contains(abis, s.ABI) {
		return nil, fmt.Errorf("reading %s: abi %q; expected %s", path, s.ABI, strings.Join(abis, ", "))
	}
	if s.Mem != "" {
		if _, err := config.ParseMem(s.Mem); err != nil {
			return nil, fmt.Errorf("reading %s: mem: %w", path, err)
		}
	}
	for k, v := range s.Sysctls {
		if _, err := config.ParseSysctl(k + "=" + v); err != nil {
			return nil, fmt.Errorf("reading %s: sysctls: %w", path, err)
		}
	}
	return s, nil
}
