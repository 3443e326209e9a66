// SPDX-License-Identifier: Apache-2.0

// Package program examines the program of a command as execve(2) does: the file, its
// interpreter, the machine that it was built for, and any reason why it cannot be
// executed on this host.
package program

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Exit statuses of a command that cannot be executed, as in env(1).
const (
	StatusNotExecutable = 126
	StatusNotFound      = 127
)

// Error reports that a command cannot be executed.
type Error struct {
	Command string
	Status  int // StatusNotExecutable or StatusNotFound
	Err     error
}

// Error describes the problem with the command.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Command, e.Err) }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// ExitStatus returns the status that a shell would return.
func (e *Error) ExitStatus() int { return e.Status }

// Formats of a program.
const (
	FormatELF    = "ELF"
	FormatScript = "script"  // starts with #!
	FormatPlain  = "text"    // the kernel does not know the format: execvp(3) runs sh on it
	FormatOther  = "other"   // a handler of binfmt_misc runs it
	FormatHidden = "unknown" // executable, but not readable
)

// Program is the program of a command.
type Program struct {
	Path   string `json:"path"`
	Format string `json:"format"`

	// Only ELF files have these fields.
	Bits    int    `json:"bits,omitempty"`
	Machine string `json:"machine,omitempty"`
	Linkage string `json:"linkage,omitempty"` // static or dynamic
	Loader  string `json:"loader,omitempty"`  // only if Linkage is dynamic

	// Interpreter executes the program if it is not an ELF file or is for another
	// machine.
	Interpreter *Program `json:"interpreter,omitempty"`
	argument    string   // argument for the interpreter in a script's first line

	SetUID       bool `json:"set_uid,omitempty"`
	SetGID       bool `json:"set_gid,omitempty"`
	UID          int  `json:"uid"` // the file's owner
	GID          int  `json:"gid"`
	Capabilities bool `json:"capabilities,omitempty"` // the file has capabilities, capabilities(7)
	NoSUID       bool `json:"nosuid,omitempty"`       // its file system ignores set_uid, set_gid and capabilities
}

// maxInterpreters is the maximum number of interpreters in a chain that the kernel
// accepts (exec_binprm(), fs/exec.c).
const maxInterpreters = 5

// Look finds and examines the program that execvp(3) would execute for command. If the
// program cannot be executed, Look returns an *Error together with the known properties
// of the program.
func Look(command string) (*Program, error) {
	path, err := find(command)
	if err != nil {
		return nil, err
	}
	p, err := look(path, maxInterpreters)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			err = e.Err
		} else {
			e = &Error{Status: StatusNotExecutable}
		}
		return p, &Error{command, e.Status, err}
	}
	return p, nil
}

// find searches for a command like execvp(3).
func find(command string) (string, error) {
	if command == "" {
		return "", &Error{`""`, StatusNotFound, errors.New("the command is an empty string")}
	}
	path, err := exec.LookPath(command)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		abs, err := filepath.Abs(path)
		if err != nil {
			return path, nil
		}
		return abs, nil
	case errors.Is(err, fs.ErrPermission):
		return "", &Error{command, StatusNotExecutable, unix.EACCES}
	case errors.Is(err, exec.ErrNotFound):
		if !strings.Contains(command, "/") {
			err = errors.New("command not found in PATH")
		} else {
			err = unix.ENOENT
		}
		return "", &Error{command, StatusNotFound, err}
	}
	var no unix.Errno
	if errors.As(err, &no) {
		err = no
	}
	return "", &Error{command, statusOf(err), err}
}

func statusOf(err error) int {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return StatusNotFound
	}
	return StatusNotExecutable
}

// look examines the file at path. deeper is the number of further interpreters allowed.
func look(path string, deeper int) (*Program, error) {
	p := &Program{Path: path}
	if err := p.stat(); err != nil {
		return p, err
	}
	f, err := os.Open(path)
	if err != nil {
		p.Format = FormatHidden
		return p, nil
	}
	defer f.Close()
	head := make([]byte, 256) // BINPRM_BUF_SIZE, linux/binfmts.h
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return p, fmt.Errorf("reading %s: %w", path, err)
	}
	head = head[:n]
	next := func(interpreter, what string) error {
		if deeper == 0 {
			return unix.ELOOP
		}
		var err error
		p.Interpreter, err = look(interpreter, deeper-1)
		if err != nil {
			var no unix.Errno
			if errors.As(err, &no) {
				return &Error{path, statusOf(no), fmt.Errorf("%s %s: %w", what, interpreter, no)}
			}
		}
		return err
	}
	switch {
	case strings.HasPrefix(string(head), "#!"):
		p.Format = FormatScript
		line, _, _ := strings.Cut(string(head[2:]), "\n")
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == 0 })
		if len(words) == 0 {
			return p, unix.ENOEXEC
		}
		_, rest, _ := strings.Cut(line, words[0])
		p.argument = strings.Trim(rest, " \t\x00")
		return p, next(words[0], "interpreter")
	case strings.HasPrefix(string(head), "\x7fELF"):
		p.Format = FormatELF
		err := p.readELF(f)
		if err == nil {
			return p, nil
		}
		if h := handler(binfmtMisc, head); h != "" {
			return p, next(h, "binfmt_misc handler")
		}
		return p, err
	}
	if h := handler(binfmtMisc, head); h != "" {
		p.Format = FormatOther
		return p, next(h, "binfmt_misc handler")
	}
	p.Format = FormatPlain
	return p, next("/bin/sh", "interpreter")
}

// stat reads the file's metadata. It also checks whether the file may be executed,
// because find does not check interpreters.
func (p *Program) stat() error {
	var st unix.Stat_t
	if err := unix.Stat(p.Path, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG, st.Mode&0o111 == 0:
		return unix.EACCES
	}
	if err := unix.Access(p.Path, unix.X_OK); err != nil {
		return err
	}
	p.UID, p.GID = int(st.Uid), int(st.Gid)
	p.SetUID = st.Mode&unix.S_ISUID != 0
	// On a file without the group's execute bit, the set-GID bit once meant mandatory
	// locking.
	p.SetGID = st.Mode&unix.S_ISGID != 0 && st.Mode&unix.S_IXGRP != 0
	n, err := unix.Getxattr(p.Path, "security.capability", nil)
	p.Capabilities = err == nil && n > 0
	var vfs unix.Statfs_t
	if unix.Statfs(p.Path, &vfs) == nil {
		p.NoSUID = vfs.Flags&unix.ST_NOSUID != 0
	}
	return nil
}

// Privileged reports whether executing the file changes the user, group or capabilities.
// The kernel ignores all of these on a script.
func (p *Program) Privileged() bool {
	return p.Format != FormatScript && p.Format != FormatPlain && !p.NoSUID && (p.SetUID || p.SetGID || p.Capabilities)
}
