// SPDX-License-Identifier: Apache-2.0

// Package remote runs lklrun on another machine: an Android device behind adb, or
// any Linux machine behind ssh. lklctl also uses it for the nodes of Kubernetes, which
// have lklrun already. It is the desk's half. It connects to a device,
// checks it before any change, uploads the bundle once, and serves the desk's end
// of a session. The device's half is internal/remote/ondevice.
// internal/remote/session defines the frames between the two.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"sync"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// Error is a message for the user: the device, the problem, and the remedy.
type Error struct {
	Device string // name of the device, in the form of Target.String
	Err    error
	// UserError is set if the user can fix the problem and nothing was changed. The
	// exit status is then 2. Otherwise the connection to the device failed, and the
	// exit status is 125.
	UserError bool
}

// Error returns the device's name and the problem.
func (e *Error) Error() string { return e.Device + ": " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// ExitStatus returns the exit status for the error.
func (e *Error) ExitStatus() int {
	if e.UserError {
		return exit.Usage
	}
	return 125
}

// userError returns an error that the user can fix. It is for problems that are
// found before any change.
func userError(device, format string, args ...any) *Error {
	return &Error{Device: device, Err: fmt.Errorf(format, args...), UserError: true}
}

// broken returns an error for a failed connection to the device.
func broken(device, format string, args ...any) *Error {
	return &Error{Device: device, Err: fmt.Errorf(format, args...)}
}

// Command is a shell command for a device. With a nil reader, standard input is
// empty. With a nil writer, the output is discarded.
type Command struct {
	Line   string // command line for sh on the device
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Stream is a command that runs on a device. Write writes to its standard
// input, and Read reads from its standard output.
type Stream interface {
	io.ReadWriteCloser // Close also ends the command, if the connection still works
	// CloseWrite closes the command's standard input.
	CloseWrite() error
	// Wait waits for the command's end after all its output was read, and returns
	// its exit status. A non-nil error means that the connection failed.
	Wait() (status int, err error)
}

// File is a file to put on a device.
type File struct {
	Name string      // path below the folder, with slashes
	Mode fs.FileMode // permissions
	Size int64       // size in bytes
	Link string      // target of a symbolic link, which has no content
	Open func() (io.ReadCloser, error)
}

// Device is a connection to a device. All methods end when their context does.
// Their errors are of type *Error.
type Device interface {
	// Name returns the target's name.
	Name() string
	// Run runs a shell command and returns its exit status. A non-nil error means
	// that the connection failed.
	Run(ctx context.Context, cmd Command) (status int, err error)
	// Start is like Run, but does not wait for the command. The command's standard
	// error goes to stderr.
	Start(ctx context.Context, line string, stderr io.Writer) (Stream, error)
	// Push writes files below an existing folder, and creates missing folders below
	// it. It calls progress, which may be nil, with the number of bytes transferred
	// so far.
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
	return nil, userError(t.String(), "expected a single device")
}

// cmdStream is a command on a device, as a process of this machine that is connected to
// it.
type cmdStream struct {
	io.WriteCloser
	io.Reader
	cmd   *exec.Cmd
	ended func() (int, error) // waits for the command; can be called repeatedly
}

// startStream starts the process. ended interprets how it has ended.
func startStream(device string, cmd *exec.Cmd, stderr io.Writer, ended func(error) (int, error)) (Stream, error) {
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, broken(device, "%w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, broken(device, "%w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, broken(device, "starting the connection: %w", err)
	}
	return &cmdStream{in, out, cmd, sync.OnceValues(func() (int, error) { return ended(cmd.Wait()) })}, nil
}

func (s *cmdStream) CloseWrite() error { return s.WriteCloser.Close() }

func (s *cmdStream) Wait() (int, error) { return s.ended() }

func (s *cmdStream) Close() error {
	_ = s.WriteCloser.Close()
	_ = s.cmd.Process.Kill() // if this fails, it has already ended
	_, err := s.Wait()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		err = nil
	}
	return err
}
