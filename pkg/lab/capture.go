// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Capture is a capture of the packets on all wires, in one pcapng file.
type Capture struct {
	cmd    *exec.Cmd
	done   chan error
	stderr bytes.Buffer
}

// captureBuffer is the size of the buffer of each interface in KiB. It uses the
// memory of the node.
const captureBuffer = 2048

// Capture writes the packets on all wires to a file until Stop, or until the lab
// ends. Each packet appears once on each wire, at the interface of its sender: before
// the delay, and also if the wire loses it.
func (l *Lab) Capture(ctx context.Context, file string) (*Capture, error) {
	args := []string{"capture", "-q", "-U", "-Q", "out", "-B", strconv.Itoa(captureBuffer), "--format", "pcapng", "-w", file}
	var names []string
	for _, n := range l.Plan.Nodes {
		args = append(args, "-n", n.Instance)
		for _, i := range n.Interfaces {
			if !slices.Contains(names, i.Name) {
				names = append(names, i.Name)
				args = append(args, "-i", i.Name)
			}
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &Capture{done: make(chan error, 1)}
	c.cmd = exec.Command(l.programs.lklctl, args...)
	c.cmd.Env, c.cmd.Stderr = environ(), &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as for the nodes
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { c.done <- c.cmd.Wait() }()
	limit, cancel := context.WithTimeoutCause(ctx, queryLimit, fmt.Errorf("capture: it did not start within %v", queryLimit))
	defer cancel()
	for {
		// lklctl writes the description of the interfaces after it has opened
		// all of them.
		if st, err := os.Stat(file); err == nil && st.Size() > 0 {
			return c, nil
		}
		select {
		case err := <-c.done:
			return nil, c.failure(err)
		case <-limit.Done():
			_ = c.cmd.Process.Kill() // fails if it has ended
			_ = c.wait()             // it was killed
			return nil, context.Cause(limit)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the capture after it has written the packets so far.
func (c *Capture) Stop() error {
	_ = c.cmd.Process.Signal(os.Interrupt) // fails if the capture has ended
	select {
	case err := <-c.done:
		return c.failure(err)
	case <-time.After(queryLimit):
		_ = c.cmd.Process.Kill() // fails if it has ended meanwhile
		_ = c.wait()             // it was killed
		return fmt.Errorf("capture: killed, because it did not end within %v", queryLimit)
	}
}

func (c *Capture) failure(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &ExitError{Args: []string{"lklctl", "capture"}, Status: exit.ExitCode(), Stderr: c.stderr.String()}
	}
	return err
}

// wait returns how the capture's process ended.
func (c *Capture) wait() error { return <-c.done }
