// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	_ "github.com/lklrun/lklrun/internal/link/all" // registers the interface types
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// An app may not open interfaces. Lend runs as root, opens them for an app's lklrun, and
// passes the descriptors over a unix socket. Take runs as the app, before lklrun: it
// receives the descriptors, and lklrun uses them as interfaces of type fd.
const (
	// FirstLent is the number of the first descriptor that Take passes on.
	FirstLent = 100

	askTake, askEnd = 't', 'e' // requests
	lendLimit       = 10 * time.Second
	lentMost        = 16
)

// LendTypes are the interface types that Lend opens.
var LendTypes = []string{"tap", "raw", "rawip"}

// ServeFDs opens interfaces for each run of the user uid that connects to the socket at path,
// until it is told to end.
func ServeFDs(ctx context.Context, path string, uid int, specs []string) error {
	var interfaces []config.Interface
	for _, spec := range specs {
		i, err := config.ParseInterface(spec)
		if err != nil {
			return exit.Usagef("lend: %w", err)
		}
		if !slices.Contains(LendTypes, i.Type) || i.On("nat") {
			return exit.Usagef("lend: %q: only tap (without nat), raw and rawip can be opened for another user", spec)
		}
		if i.Type == "raw" && i.MAC.IsZero() {
			return exit.Usagef("lend: %q: mac is required, so that both sides use the same Ethernet address", spec)
		}
		interfaces = append(interfaces, i)
	}
	if n := len(interfaces); n == 0 || n > lentMost {
		return exit.Usagef("lend: %d interfaces; expected 1 to %d", n, lentMost)
	}
	old := syscall.Umask(0o177) // until chown, only root may connect
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return fmt.Errorf("listening for the app: %w", err)
	}
	defer l.Close() // this also removes the file
	if err := os.Chown(path, uid, -1); err != nil {
		return fmt.Errorf("giving the socket to the app: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for the app: %w", err)
		}
		all.Go(func() {
			defer c.Close()
			serveLent(ctx, c, uid, interfaces, stop)
		})
	}
}

// serveLent serves one connection. The interfaces exist until the process that received
// them ends.
func serveLent(ctx context.Context, c *net.UnixConn, uid int, interfaces []config.Interface, stop func()) {
	cred, err := stackconn.Peer(c)
	ours := err == nil && int(cred.Uid) == os.Geteuid()
	if err != nil || !ours && int(cred.Uid) != uid || c.SetDeadline(time.Now().Add(lendLimit)) != nil {
		return
	}
	ask := make([]byte, 1)
	if n, err := c.Read(ask); err != nil || n != 1 {
		return
	}
	switch {
	case ask[0] == askEnd && ours:
		stop()
	case ask[0] == askTake:
		// The process waits for the answer, so its number is still valid here.
		pidfd, err := unix.PidfdOpen(int(cred.Pid), 0)
		if err != nil {
			_, _ = c.Write([]byte("watching the app's process: " + err.Error()))
			return
		}
		defer unix.Close(pidfd)
		undos, err := passLent(ctx, c, interfaces)
		if err == nil {
			awaitEnd(ctx, pidfd)
		} else {
			_, _ = c.Write([]byte(err.Error())) // the process may be gone
		}
		for _, u := range slices.Backward(undos) {
			_ = u.Apply(context.WithoutCancel(ctx)) // the device is usually gone together with the process
		}
	}
}

// awaitEnd waits until a process ends.
func awaitEnd(ctx context.Context, pidfd int) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if n, err := unix.Ppoll(fds, &unix.Timespec{Sec: 1}, nil); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// passLent opens the interfaces and passes their descriptors in one message.
func passLent(ctx context.Context, c *net.UnixConn, interfaces []config.Interface) (undos []netdev.Undo, err error) {
	env := link.Env{Journal: func(u netdev.Undo) error {
		undos = append(undos, u)
		return nil
	}}
	var fds []int
	for n := range interfaces {
		end, err := openLent(ctx, n, &interfaces[n], env)
		if err != nil {
			return undos, link.Explain(&interfaces[n], err)
		}
		defer end.Release()
		raw, err := end.File.SyscallConn() // unlike Fd, it leaves the descriptor non-blocking
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return undos, link.Explain(&interfaces[n], err)
		}
	}
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err != nil {
		return undos, fmt.Errorf("passing the interfaces: %w", err)
	}
	return undos, nil
}

func openLent(ctx context.Context, n int, i *config.Interface, env link.Env) (end link.End, err error) {
	found, err := link.Look(ctx, &link.Query{Interface: i})
	if err != nil {
		return end, err
	}
	l := link.New(n, i)
	if err := link.Plan(&link.Request{Interface: i, Link: &l}, found); err != nil {
		return end, err
	}
	if len(l.Shared) > 0 {
		return end, fmt.Errorf("%s is the host's address, which an app cannot share; add ip= with another address", l.Shared[0])
	}
	if l.MTU == 0 {
		l.MTU = 1500
	}
	return link.Open(ctx, &l, env)
}

// StopFDs ends the ServeFDs at path.
func StopFDs(path string) error {
	c, err := ask(path, askEnd)
	if err != nil {
		return err
	}
	return c.Close()
}

// ask connects to a Lend and sends a request.
func ask(path string, request byte) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("connecting to the helper that opens the interfaces: %w; run `lklctl app run` again", err)
	}
	if err = c.SetDeadline(time.Now().Add(lendLimit)); err == nil {
		_, err = c.Write([]byte{request})
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("asking for interfaces at %s: %w", path, err)
	}
	return c, nil
}

// Take receives the interfaces that the Lend at path opens, and replaces this process by
// the command. The descriptors have the numbers from FirstLent.
func Take(path string, command []string) error {
	c, err := ask(path, askTake)
	if err != nil {
		return err
	}
	defer c.Close()
	if cred, err := stackconn.Peer(c); err != nil || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to a process of another user than root", path)
	}
	text, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4*lentMost))
	n, oobn, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return fmt.Errorf("receiving interfaces at %s: %w", path, err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		return exit.Usagef("the helper cannot open the interfaces: %s", text[:n])
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return fmt.Errorf("receiving interfaces at %s: %w", path, err)
	}
	for n, fd := range fds {
		if err := unix.Dup3(fd, FirstLent+n, 0); err != nil {
			return fmt.Errorf("passing on an interface: %w", err)
		}
		unix.Close(fd)
	}
	err = unix.Exec(command[0], command, os.Environ())
	return fmt.Errorf("executing %s: %w", command[0], err)
}
