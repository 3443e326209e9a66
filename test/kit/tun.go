// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTun creates a tun or tap device in a namespace and opens it.
func OpenTun(t *testing.T, n *Netns, name string, flags uint16) *os.File {
	t.Helper()
	var fd int
	n.Do(t, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		req.SetUint16(flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return fmt.Errorf("making %s: %w", name, err)
		}
		return nil
	})
	return os.NewFile(uintptr(fd), name)
}

// CarryFrames copies packets between two descriptors that preserve packet boundaries,
// until one of them ends or stop is called. Then it closes both.
func CarryFrames(a, b *os.File) (stop func()) {
	one := func(to, from *os.File, done chan<- struct{}) {
		defer close(done)
		frame := make([]byte, 1<<16)
		for {
			n, err := from.Read(frame)
			if err != nil || n == 0 {
				return
			}
			_, _ = to.Write(frame[:n]) // an error is a lost packet, as on a wire
		}
	}
	there, back := make(chan struct{}), make(chan struct{})
	go one(a, b, there)
	go one(b, a, back)
	return func() {
		a.Close()
		b.Close()
		<-there
		<-back
	}
}
