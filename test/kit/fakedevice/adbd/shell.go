// SPDX-License-Identifier: Apache-2.0

package adbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Shell configures how commands are run.
type Shell struct {
	Path string   // the shell
	Env  []string // complete, except TERM
	Dir  string   // where commands start
}

// Packet types of the shell protocol, shell_protocol.h: a byte, then the length, a
// little-endian word.
const (
	packetStdin      = 0
	packetStdout     = 1
	packetStderr     = 2
	packetExit       = 3
	packetCloseStdin = 4
	packetWindow     = 5
)

// serve runs a command, or a shell if it is empty. The options are between "shell," and
// the colon: v2, TERM=..., raw or pty.
func (sh Shell) serve(s *stream, options []string, command string, log func(string, ...any)) {
	if err := sh.run(s, options, command); err != nil {
		log("adbd: shell %q: %v", command, err)
	}
}

func (sh Shell) run(s *stream, options []string, command string) error {
	term := "TERM=dumb"
	pty := command == ""
	for _, o := range options {
		switch {
		case strings.HasPrefix(o, "TERM="):
			term = o
		case o == "raw", o == "pty":
			pty = o == "pty"
		}
	}
	c := &child{s: s, protocol: slices.Contains(options, "v2"), pty: pty}
	c.cmd = exec.Command(sh.Path, "-c", command)
	if command == "" {
		c.cmd.Args = []string{"-" + sh.Path}
	}
	c.cmd.Env = append(slices.Clone(sh.Env), term)
	c.cmd.Dir = sh.Dir
	if err := c.start(); err != nil {
		return err
	}
	return c.carry()
}

// child is a command with its channels, as in adbd: a pseudo terminal, or a socket for
// standard input and output. With the protocol, there is also a socket for standard
// error.
type child struct {
	s             *stream
	cmd           *exec.Cmd
	protocol, pty bool
	io, stderr    *os.File

	mu sync.Mutex // for the stream: one packet at a time
}

func (c *child) start() error {
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	if c.pty {
		master, slave, err := openPTY()
		if err != nil {
			return err
		}
		c.io = master
		theirs = append(theirs, slave)
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
		c.cmd.SysProcAttr.Setctty = true
	} else {
		for _, ours := range []**os.File{&c.io, &c.stderr} {
			mine, its, err := socketpair()
			if err != nil {
				return err
			}
			*ours = mine
			theirs = append(theirs, its)
		}
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[0], theirs[1]
		if !c.protocol {
			c.cmd.Stderr = theirs[0]
		}
	}
	return c.cmd.Start()
}

// carry copies data until the command's outputs or the stream are closed, then reports
// the end. If the stream is closed, the shell gets SIGHUP, but its children do not.
func (c *child) carry() error {
	var outputs sync.WaitGroup
	outputs.Go(func() { c.output(packetStdout, c.io) })
	if c.stderr != nil {
		outputs.Go(func() { c.output(packetStderr, c.stderr) })
	}
	go c.input()
	ended := make(chan struct{})
	go func() {
		outputs.Wait()
		close(ended)
	}()
	gone := c.s.done
	if !c.protocol { // without the protocol, the command uses the connection itself and sees its end
		gone = nil
	}
	select {
	case <-ended:
	case <-gone:
		_ = c.cmd.Process.Signal(unix.SIGHUP) // it may have ended already
	}
	c.io.Close()
	if c.stderr != nil {
		c.stderr.Close()
	}
	err := c.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	ws := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	status := ws.ExitStatus()
	if ws.Signaled() {
		status = 0x80 | int(ws.Signal())
	}
	if c.protocol {
		_ = c.packet(packetExit, []byte{byte(status)}) // the peer may have disconnected
	}
	return nil
}

func (c *child) packet(kind byte, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.protocol {
		head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(data)))
		data = append(head, data...)
	}
	_, err := c.s.Write(data)
	return err
}

// output sends the command's output. The end of a terminal is EIO.
func (c *child) output(kind byte, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && c.packet(kind, buf[:n]) != nil || err != nil {
			return
		}
	}
}

// input forwards the computer's input until it ends.
func (c *child) input() {
	if !c.protocol {
		_, _ = io.Copy(c.io, c.s) // until either side ends
		c.io.Close()
		return
	}
	for {
		var head [5]byte
		if _, err := io.ReadFull(c.s, head[:]); err != nil {
			return
		}
		data := make([]byte, min(binary.LittleEndian.Uint32(head[1:]), maxPayload))
		if _, err := io.ReadFull(c.s, data); err != nil {
			return
		}
		switch head[0] {
		case packetStdin:
			if _, err := c.io.Write(data); err != nil {
				continue // the command no longer reads, but its output still counts
			}
		case packetCloseStdin:
			if !c.pty { // a terminal cannot close one direction
				_ = control(c.io, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }) // it may have ended already
			}
		case packetWindow:
			var size unix.Winsize
			if _, err := fmt.Sscanf(string(data), "%dx%d,%dx%d", &size.Row, &size.Col, &size.Xpixel, &size.Ypixel); err == nil && c.pty {
				_ = control(c.io, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) }) // it may have ended already
			}
		}
	}
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return err
	}
	return result
}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// Only our end: O_NONBLOCK would also apply to processes that inherit the other.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

func openPTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("/dev/ptmx: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}
