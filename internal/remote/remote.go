// SPDX-License-Identifier: Apache-2.0

// Package remote runs lklrun on another machine: an Android device behind adb, or
// any Linux machine behind ssh. It is the desk's half: the ways to a device, what is
// looked at there before anything is done, the bundle that is put there once, and
// the desk's end of a session. The device's half is internal/remote/ondevice, the
// frames between the two internal/remote/session.
package remote

import (
	"context"
	"fmt"
	"io"
	"io/fs"
)

// Error is a line for the user: which device, what is wrong there, and what to do.
type Error struct {
	Device string // as Target.String has it
	Err    error
	// Mendable: found out before anything was done, so that the exit status is 2;
	// else the way to the device failed, which is 125.
	Mendable bool
}

// Error names the device, then what is wrong.
func (e *Error) Error() string { return e.Device + ": " + e.Err.Error() }

// Unwrap returns the error inside.
func (e *Error) Unwrap() error { return e.Err }

// Status is the exit status that the error stands for.
func (e *Error) Status() int {
	if e.Mendable {
		return 2
	}
	return 125
}

// mendable makes an error that the user can mend before anything is done.
func mendable(device, format string, args ...any) *Error {
	return &Error{Device: device, Err: fmt.Errorf(format, args...), Mendable: true}
}

// broken makes an error of the way to the device.
func broken(device, format string, args ...any) *Error {
	return &Error{Device: device, Err: fmt.Errorf(format, args...)}
}

// Command is a shell command for a device. Nil readers and writers are none:
// end-of-file at once, and nowhere.
type Command struct {
	Line   string // for the device's sh
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Stream is a command that runs on a device: what is written goes to its standard
// input, what is read comes from its standard output.
type Stream interface {
	io.ReadWriteCloser // Close ends the command too, as far as the way allows
	// CloseWrite is the end of its standard input.
	CloseWrite() error
	// Wait waits for its end, when all that it wrote was read, and returns its exit
	// status; the error is about the way there.
	Wait() (status int, err error)
}

// File is a file to put on a device.
type File struct {
	Name string      // its path below the folder, with slashes
	Mode fs.FileMode // permissions
	Size int64       // in bytes
	Link string      // a symbolic link to this, without content
	Open func() (io.ReadCloser, error)
}

// Device is a way to a device. All methods end when their context does. Their
// errors are *Error.
type Device interface {
	// Name is the target's.
	Name() string
	// Run runs a shell command; the error is about the way there, the status is the
	// command's.
	Run(ctx context.Context, cmd Command) (status int, err error)
	// Start is Run without waiting; what the command says on its standard error goes
	// to stderr.
	Start(ctx context.Context, line string, stderr io.Writer) (Stream, error)
	// Push writes files below a folder that exists, and makes the folders between.
	// progress hears how many bytes are there by now; it may be nil.
	Push(ctx context.Context, files []File, dir string, progress func(done int64)) error
	// Close gives back what the way holds.
	Close() error
}

// Open opens the way to a device.
func Open(ctx context.Context, t Target) (Device, error) {
	switch t.Kind {
	case KindSSH:
		return openSSH(ctx, t)
	case KindADB:
		return openADB(ctx, t)
	}
	return nil, mendable(t.String(), "is not one device")
}
