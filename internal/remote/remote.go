// SPDX-License-Identifier: Apache-2.0

// Package remote runs lklrun on another machine: an Android device behind adb,
// or any Linux machine behind ssh. It is the desk's half: the connections to a
// device, the checks before anything is changed, the one-time upload of the
// bundle, and the desk's end of a session. The device's half is
// internal/remote/ondevice. internal/remote/session defines the frames between
// the two.
package remote

import (
	"context"
	"fmt"
	"io"
	"io/fs"
)

// Error is a message for the user: the device, the problem, and the remedy.
type Error struct {
	Device string // in the form of Target.String
	Err    error
	// Mendable is set if the problem was found before anything was changed,
	// so that the exit status is 2. Otherwise the connection to the device
	// failed, and the exit status is 125.
	Mendable bool
}

// Error names the device, then the problem.
func (e *Error) Error() string { return e.Device + ": " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// Status returns the exit status for the error.
func (e *Error) Status() int {
	if e.Mendable {
		return 2
	}
	return 125
}

// mendable returns an error that the user can fix, before anything was changed.
func mendable(device, format string, args ...any) *Error {
	return &Error{Device: device, Err: fmt.Errorf(format, args...), Mendable: true}
}

// broken returns an error of the connection to the device.
func broken(device, format string, args ...any) *Error {
	return &Error{Device: device, Err: fmt.Errorf(format, args...)}
}

// Command is a shell command for a device. A nil reader gives end of file at
// once; output to a nil writer is discarded.
type Command struct {
	Line   string // for the device's sh
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Stream is a command that runs on a device. Write writes to its standard
// input, and Read reads from its standard output.
type Stream interface {
	io.ReadWriteCloser // Close also ends the command, as far as the connection allows
	// CloseWrite closes the command's standard input.
	CloseWrite() error
	// Wait waits for the command's end after all its output was read, and
	// returns its exit status. The error is about the connection.
	Wait() (status int, err error)
}

// File is a file to put on a device.
type File struct {
	Name string      // its path below the folder, with slashes
	Mode fs.FileMode // permissions
	Size int64       // in bytes
	Link string      // target of a symbolic link, which has no content
	Open func() (io.ReadCloser, error)
}

// Device is a connection to a device. All methods end when their context does.
// Their errors are of type *Error.
type Device interface {
	// Name returns the target's name.
	Name() string
	// Run runs a shell command and returns its exit status. The error is
	// about the connection.
	Run(ctx context.Context, cmd Command) (status int, err error)
	// Start is like Run without waiting. The command's standard error goes
	// to stderr.
	Start(ctx context.Context, line string, stderr io.Writer) (Stream, error)
	// Push writes files below an existing folder, and creates the folders
	// between. progress receives the number of bytes transferred so far; it
	// may be nil.
	Push(ctx context.Context, files []File, dir string, progress func(done int64)) error
	// Close releases the connection.
	Close() error
}

// Open connects to a device.
func Open(ctx context.Context, t Target) (Device, error) {
	switch t.Kind {
	case KindSSH:
		return openSSH(ctx, t)
	case KindADB:
		return openADB(ctx, t)
	}
	return nil, mendable(t.String(), "expected a single device")
}
