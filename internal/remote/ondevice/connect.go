// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
)

// Connect joins in and out to the control socket of the instance called name, or of
// the only one when name is empty, until one of the two sides has nothing more to
// say, or the process with is gone: that of Follow, which notices that the desk is;
// 0: there is none. The error wraps instance.ErrNone when there is no such instance.
func Connect(name string, with int, in io.Reader, out io.Writer) error {
	info, err := instance.Place{}.Open(name)
	if err != nil {
		return err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: info.Socket(), Net: "unix"})
	if err != nil {
		return fmt.Errorf("instance %q: %w", info.Name, err)
	}
	defer c.Close()
	if err := stackconn.CheckPeer(c); err != nil {
		return fmt.Errorf("instance %q: %w", info.Name, err)
	}
	go func() {
		// The end of what the desk says is the end of the connection: lklhost forgets
		// what was asked, as it does when a client here is gone.
		_, _ = io.Copy(c, in)
		c.Close()
	}()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, c)
		done <- err
	}()
	tick := time.NewTicker(withEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("instance %q: %w", info.Name, err)
			}
			return nil
		case <-tick.C:
			if with != 0 && errors.Is(unix.Kill(with, 0), unix.ESRCH) {
				return nil
			}
		}
	}
}

// withEvery is how often Connect looks whether the process it goes with is there:
// older kernels cannot tell of a process's end.
const withEvery = time.Second
