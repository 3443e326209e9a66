// SPDX-License-Identifier: Apache-2.0

// Package exit ends this program in the same way as another one, so that the parent
// process sees the other's exit status or signal.
package exit

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// End describes how another program has ended, and how this one should.
type End struct {
	Status int            // exit status, if Signal is 0
	Signal syscall.Signal // signal that kills the process, visible to a shell
}

// FromStatus converts a wait status to an End.
func FromStatus(ws syscall.WaitStatus) End {
	switch {
	case ws.Signaled() && ws.Signal() == unix.SIGKILL:
		// After SIGKILL, other programs would conclude that somebody had killed
		// this program.
		return End{Status: 128 + int(unix.SIGKILL)}
	case ws.Signaled():
		return End{Signal: ws.Signal()}
	}
	return End{Status: ws.ExitStatus()}
}

// Possible reports whether a process can have ended in this way.
func (e End) Possible() bool {
	const signals = 64
	switch e.Signal {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGWINCH:
		return false
	}
	return e.Status >= 0 && e.Status <= 255 && e.Signal >= 0 && e.Signal <= signals
}

// Exit ends this process with e's exit status or signal.
func (e End) Exit() {
	if e.Signal != 0 {
		_ = dieBy(e.Signal) // on failure, use the status that a shell would report
		os.Exit(128 + int(e.Signal))
	}
	os.Exit(e.Status)
}

// dieBy ends this process by a signal, bypassing the handlers of the Go runtime. It
// prevents a core file, because the other program has left its own.
func dieBy(sig syscall.Signal) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("disabling core dumps: %w", err)
	}
	if err := defaultAction(sig); err != nil {
		return err
	}
	if err := unix.Kill(unix.Getpid(), sig); err != nil {
		return err
	}
	// The kernel delivers the signal by now, or when this thread next enters the
	// kernel.
	var none unix.Timespec
	for range 100 {
		none.Nsec = 1_000_000
		_ = unix.Nanosleep(&none, nil)
	}
	return errors.New("the signal did not terminate this process")
}

// sigaction is the kernel's struct sigaction on the architectures that lklrun supports
// (arch/x86/include/uapi/asm/signal.h, include/uapi/asm-generic/signal.h in the kernel's
// source). The order of the fields differs between them, but a zero struct means SIG_DFL
// on all.
type sigaction struct {
	_ [4]uint64
}

// defaultAction sets the default action of sig, even if the Go runtime has a handler.
func defaultAction(sig syscall.Signal) error {
	var act sigaction
	const sigsetSize = 8 // _NSIG / 8
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, sigsetSize, 0, 0); errno != 0 {
		return fmt.Errorf("resetting %v: %w", sig, errno)
	}
	return nil
}
