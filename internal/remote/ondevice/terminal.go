// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal (pts(4)). The master is non-blocking, so
// that a read can be aborted.
func openTerminal(rows, cols uint16) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: /dev/ptmx: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("getting the terminal's number: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlocking the terminal: %w", err)
	}
	setSize(master, rows, cols)
	name := "/dev/pts/" + strconv.Itoa(n)
	slave, err = os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the terminal: %w", err)
	}
	return master, slave, nil
}

// setSize sets the size of a terminal. A size of 0 remains unknown.
func setSize(f *os.File, rows, cols uint16) {
	control(f, func(fd int) { _ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}) })
}

// control calls do with a file's descriptor without changing its mode. Fd would
// make it blocking.
func control(f *os.File, do func(fd int)) {
	raw, err := f.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) }) // fails only if the file is closed
	}
}

// last reads from a file with a deadline. After the deadline, it still reads the
// available data, and then returns io.EOF.
type last struct{ f *os.File }

func (l last) Read(p []byte) (int, error) {
	for {
		n, err := l.f.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		ready := false
		control(l.f, func(fd int) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			ready = err == nil && n > 0
		})
		if !ready {
			return 0, io.EOF
		}
		_ = l.f.SetReadDeadline(time.Now().Add(restTime))
	}
}
