// SPDX-License-Identifier: Apache-2.0

// Package heredevice is a remote.Device on this machine: sh runs its commands here. Tests
// with it cover everything except the connection to a device.
package heredevice

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/lklrun/lklrun/internal/remote"
)

// Device runs commands here. Cut ends all of them and prevents new ones, as if the cable
// were unplugged.
type Device struct {
	name string

	mu      sync.Mutex
	cut     bool
	streams map[*stream]struct{}
	started int
}

// New makes a device of that name.
func New(name string) *Device {
	return &Device{name: name, streams: map[*stream]struct{}{}}
}

// Ready returns the device as if it had been prepared, with the programs in bin.
func (d *Device) Ready(bin string) *remote.Ready {
	return &remote.Ready{Device: d, Dir: bin, Facts: remote.Facts{UID: os.Geteuid()}}
}

// Name returns the device's name.
func (d *Device) Name() string { return d.name }

// Started returns the number of commands that have been started.
func (d *Device) Started() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started
}

func (d *Device) gone() error {
	return &remote.Error{Device: d.name, Err: errors.New("the connection to the device was lost")}
}

// Run runs a command.
func (d *Device) Run(ctx context.Context, c remote.Command) (int, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Line)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	return status(cmd.Run())
}

func status(err error) (int, error) {
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed) && failed.ExitCode() < 0:
		return 128 + int(failed.Sys().(syscall.WaitStatus).Signal()), nil
	case errors.As(err, &failed):
		return failed.ExitCode(), nil
	}
	return 0, err
}

// Start starts a command.
func (d *Device) Start(_ context.Context, line string, stderr io.Writer) (remote.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		return nil, d.gone()
	}
	s := &stream{d: d, cmd: exec.Command("sh", "-c", line)}
	s.cmd.Stderr = stderr
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.wait = sync.OnceValues(func() (int, error) { return status(s.cmd.Wait()) })
	d.started++
	d.streams[s] = struct{}{}
	return s, nil
}

// Push copies files.
func (d *Device) Push(_ context.Context, files []remote.File, dir string, _ func(int64)) error {
	for _, f := range files {
		in, err := f.Open()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(in)
		in.Close()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name), data, f.Mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Cut unplugs the cable.
func (d *Device) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = true
	for s := range d.streams {
		_ = s.cmd.Process.Kill()
	}
}

// Hang stops all commands without notice, like a cut connection.
func (d *Device) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.streams {
		_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	}
}

// Close ends all commands.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.streams {
		_ = s.cmd.Process.Kill()
	}
	return nil
}

type stream struct {
	d    *Device
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	wait func() (int, error)
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	if err != nil && s.isCut() {
		err = s.d.gone()
	}
	return n, err
}

func (s *stream) Write(p []byte) (int, error) { return s.in.Write(p) }

func (s *stream) CloseWrite() error { return s.in.Close() }

func (s *stream) Close() error {
	_ = s.cmd.Process.Kill()
	_, err := s.wait()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	delete(s.d.streams, s)
	return err
}

func (s *stream) Wait() (int, error) {
	n, err := s.wait()
	if s.isCut() {
		return 0, s.d.gone()
	}
	return n, err
}

func (s *stream) isCut() bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.d.cut
}
