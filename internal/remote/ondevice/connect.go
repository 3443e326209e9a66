// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/lklrun/lklrun/internal/instance"
)

// Connect joins in and out to the control socket of the instance called name, or of
// the only one when name is empty, until one of the two sides has nothing more to
// say. The error wraps instance.ErrNone when there is none.
func Connect(name string, in io.Reader, out io.Writer) error {
	info, err := instance.Place{}.Open(name)
	if err != nil {
		return err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: info.Socket(), Net: "unix"})
	if err != nil {
		return fmt.Errorf("instance %q: %w", info.Name, err)
	}
	defer c.Close()
	go func() {
		// The end of what the desk says is the end of the connection: lklhost forgets
		// what was asked, as it does when a client here is gone.
		_, _ = io.Copy(c, in)
		c.Close()
	}()
	_, err = io.Copy(out, c)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("instance %q: %w", info.Name, err)
	}
	return nil
}
