// SPDX-License-Identifier: Apache-2.0

// Package exit ends a program as another one ended, so that whoever started it
// sees the other's exit status or signal.
package exit

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// End is how a program shall end that stands for another: as that did.
type End struct {
	Status int            // exit status, when Signal is 0
	Signal syscall.Signal // end by this signal, so that a shell sees it
}

// Of turns a wait status into an end.
func Of(ws syscall.WaitStatus) End {
	switch {
	case ws.Signaled() && ws.Signal() == unix.SIGKILL:
		// A program killed by SIGKILL would read as if somebody had killed it.
		return End{Status: 128 + int(unix.SIGKILL)}
	case ws.Signaled():
		return End{Signal: ws.Signal()}
	}
	return End{Status: ws.ExitStatus()}
}

// Exit ends the process so.
func (e End) Exit() {
	if e.Signal != 0 {
		_ = dieBy(e.Signal) // else as a shell would put it
		os.Exit(128 + int(e.Signal))
	}
	os.Exit(e.Status)
}

// dieBy ends this process by a signal, past the handlers of the Go runtime, and
// without a core file: the other program has left its own.
func dieBy(sig syscall.Signal) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding a core file: %w", err)
	}
	if err := defaultAction(sig); err != nil {
		return err
	}
	if err := unix.Kill(unix.Getpid(), sig); err != nil {
		return err
	}
	// Delivered by now, or at the latest when this thread next enters the kernel.
	var none unix.Timespec
	for range 100 {
		none.Nsec = 1_000_000
		_ = unix.Nanosleep(&none, nil)
	}
	return errors.New("the signal did not end this process")
}
