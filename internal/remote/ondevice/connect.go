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
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Connect connects in and out to the control socket of the instance called name. An
// empty name means the only instance. It returns when one side has ended, or when
// the process whose pid is with has ended. That process runs Follow, which notices
// that the desk is gone. If with is 0, there is no such process. The error wraps
// instance.ErrNone if there is no such instance.
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
		// The end of the desk's input ends the connection. lklhost then drops
		// pending requests, as it does when a local client dies.
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

// withEvery is the interval at which Connect checks whether that process still
// exists. Connect polls because older kernels cannot report the end of a process.
const withEvery = time.Second
