// SPDX-License-Identifier: Apache-2.0

// Package desk is the local side of a command that runs on a device.
package desk

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/session"
)

// passedOn lists the signals that are forwarded to the command on the device.
var passedOn = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}

// CatchSignals starts to catch signals for the command. A signal that was already ignored
// stays ignored. CatchSignals ignores the stop signals of a terminal, because the device
// would assume that a stopped desk is dead.
func CatchSignals() chan os.Signal {
	in := make(chan os.Signal, 64)
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			signal.Notify(in, s)
		}
	}
	signal.Ignore(unix.SIGTSTP, unix.SIGTTOU, unix.SIGTTIN)
	// With a handler for SIGPIPE, a write to a closed output returns an error,
	// which is passed to the command.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return in
}

// Run runs a command on a device as if it ran here: with this process's standard
// descriptors, its terminal and its signals. The error is a *remote.Error, or an
// error of the terminal.
func Run(ctx context.Context, r *remote.Ready, start session.StartMessage) (exit.End, error) {
	desk := remote.Desk{Start: start, Signals: CatchSignals()}
	std := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	for n, f := range std {
		_, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		desk.Start.None[n] = err != nil
		if !desk.Start.Stay && err == nil && term.IsTerminal(int(f.Fd())) {
			desk.Start.TTY, desk.Start.OnTTY[n] = true, true
		}
	}
	if !desk.Start.OnTTY[0] && !desk.Start.None[0] {
		desk.Stdin = os.Stdin
	}
	desk.Stdout, desk.Stderr = os.Stdout, os.Stderr
	if desk.Start.TTY {
		restore, err := terminal(&desk, std)
		if err != nil {
			return exit.End{}, err
		}
		defer restore()
	}
	return r.Serve(ctx, desk)
}

// terminal connects our terminal to the device: its size, its input and its
// output.
func terminal(desk *remote.Desk, std [3]*os.File) (restore func(), err error) {
	n := slices.Index(desk.Start.OnTTY[:], true)
	tty := std[n]
	size := func() remote.Size {
		cols, rows, err := term.GetSize(int(tty.Fd()))
		if err != nil {
			return remote.Size{} // not known
		}
		return remote.Size{Rows: uint16(rows), Cols: uint16(cols)}
	}
	s := size()
	desk.Start.Rows, desk.Start.Cols = s.Rows, s.Cols
	desk.Start.Env = append(desk.Start.Env, "TERM="+os.Getenv("TERM"))
	desk.Screen = tty // the descriptor of a terminal can be read and written
	for _, n := range []int{2, 1} {
		if desk.Start.OnTTY[n] {
			desk.Screen = std[n]
		}
	}
	resized, changes := make(chan os.Signal, 1), make(chan remote.Size, 1)
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		for range resized {
			changes <- size()
		}
	}()
	desk.Resized = changes
	// If this process is in the background, another process owns the terminal and
	// its input.
	if !desk.Start.OnTTY[0] || !foreground(int(os.Stdin.Fd())) {
		return func() {}, nil
	}
	desk.Keys = os.Stdin
	old, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	return func() { _ = term.Restore(int(os.Stdin.Fd()), old) }, nil
}

// foreground reports whether this process may read from a terminal: its process
// group is in the foreground, or the terminal has no process groups.
func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
