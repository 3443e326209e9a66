// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"io"
	"os/exec"
	"sync"
)

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
