// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/link/ring"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// How the ends of a wire meet: each end listens on a socket in its run directory,
// whose name contains the wire's name. A new end connects to all these sockets.
// Over each connection it passes one half of a socket pair, the bell. Both
// halves already contain a message with the shared memory of the two ends. After
// that, the connection is closed. When an end ends, its half of the bell is closed,
// which the stack at the other end detects.

const (
	meetLimit = 10 * time.Second // for all other ends
	helloWait = 5 * time.Second  // for the message of an end that has connected
	lockPause = 2 * time.Millisecond
	backlog   = 128

	maxChanges = 100 // of the ancestors of an end while it is checked
)

// socketName returns the name of an end's socket.
func socketName(iface, wire string) string { return iface + ".wire." + wire }

// meeting is an end of a wire. It passes the bells of the other ends to join's
// receiver.
type meeting struct {
	wire   string
	path   string // of its socket
	listen *os.File
	log    *slog.Logger
	over   context.CancelFunc
	done   chan struct{} // closed when the accepting goroutine has ended

	mu      sync.Mutex
	waiting []*os.File // bells that arrived before join
	to      func(context.Context, *os.File) error
	ended   bool
}

// meet joins a wire: it lets later ends connect, and connects to the present
// ones.
func meet(ctx context.Context, dir, iface, wire string, log *slog.Logger) (*meeting, error) {
	ctx, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	// Two ends that appear at the same time must not connect to each other
	// twice.
	unlock, err := lock(ctx, filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer unlock()
	others, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", "*.wire."+wire))
	if err != nil {
		return nil, err
	}
	m := &meeting{wire: wire, path: filepath.Join(dir, socketName(iface, wire)), log: log, done: make(chan struct{})}
	if m.listen, err = listen(dir, socketName(iface, wire)); err != nil {
		return nil, err
	}
	for _, path := range others {
		// The pattern also matches the wire NAME.wire.WIRE.
		if _, name, _ := strings.Cut(filepath.Base(path), ".wire."); name != wire {
			continue
		}
		bell, err := greet(ctx, path)
		switch {
		case errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT):
			// It has ended, or it was killed and `lklrun cleanup` will
			// remove the socket.
		case err != nil:
			m.leave()
			return nil, fmt.Errorf("joining %s: %w", filepath.Base(filepath.Dir(path)), err)
		default:
			log.Debug("joined an end of a wire", "wire", wire, "end", path)
			m.waiting = append(m.waiting, bell)
		}
	}
	accepting, over := context.WithCancel(context.WithoutCancel(ctx))
	m.over = over
	go m.accept(accepting)
	return m, nil
}

// lock prevents other runs of this user from joining a wire until unlock.
func lock(ctx context.Context, root string) (unlock func(), err error) {
	f, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", root, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("locking %s: another run has joined a wire for more than %v", root, meetLimit)
		}
	}
}

// address returns the address of a socket in the open directory dir. The
// directory's own path may be too long for an address.
func address(dir *os.File, name string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)}
}

// listen creates the socket of this end.
func listen(dir, name string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = os.NewSyscallError("bind", unix.Bind(fd, address(d, name)))
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, backlog))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return f, nil
}

// greet connects to the end at path and returns our half of the bell.
func greet(ctx context.Context, path string) (*os.File, error) {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for {
		err := unix.Connect(fd, address(d, filepath.Base(path)))
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EAGAIN) { // its backlog is full
			return nil, os.NewSyscallError("connect", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, errors.New("it does not accept the connection")
		}
	}
	ours, theirs, err := ring.Bell()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(int(theirs.Fd())), nil, unix.MSG_NOSIGNAL); err != nil {
		ours.Close()
		return nil, os.NewSyscallError("sendmsg", err)
	}
	return ours, nil
}

// accept receives the bells of later ends.
func (m *meeting) accept(ctx context.Context) {
	defer close(m.done)
	l, err := net.FileListener(m.listen)
	if err != nil {
		m.log.Warn("a wire accepts no further ends", "wire", m.wire, "error", err)
		return
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for ctx.Err() == nil {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				m.log.Warn("a wire accepts no further ends", "wire", m.wire, "error", err)
			}
			return
		}
		f, err := receive(c.(*net.UnixConn))
		c.Close()
		if err != nil {
			m.log.Warn("an end could not join the wire", "wire", m.wire, "error", err)
			continue
		}
		m.add(ctx, f)
	}
}

// receive checks an end that has connected, and receives its bell.
func receive(c *net.UnixConn) (*os.File, error) {
	if err := c.SetDeadline(time.Now().Add(helloWait)); err != nil {
		return nil, err
	}
	accepted, err := bootTicks()
	if err == nil {
		err = allowed(c, accepted)
	}
	if err != nil {
		return nil, err
	}
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, errors.New("it sent no descriptor")
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("it sent no descriptor")
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "bell"), nil
}

// allowed returns an error unless the peer is a process of this user or of root
// that does not run on a stack: such a program reaches what its stack reaches,
// and nothing else. accepted is the time of the connection, see bootTicks.
func allowed(c *net.UnixConn, accepted uint64) error {
	cred, err := stackconn.Peer(c)
	if err != nil {
		return err
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d may not join it", cred.Uid)
	}
	if onStack(int(cred.Pid)) {
		return fmt.Errorf("process %d runs on a stack and may not join it", cred.Pid)
	}
	if !same(c, int(cred.Pid), accepted) {
		return fmt.Errorf("process %d has ended and may not join it", cred.Pid)
	}
	return nil
}

// peerPidfd is the option of a unix socket that returns a descriptor of the process that
// connected. Linux before 6.5 does not have it.
var peerPidfd = unix.SO_PEERPIDFD

// same reports whether pid is still the process that connected, not another one that has
// taken its number.
func same(c *net.UnixConn, pid int, accepted uint64) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	fd := -1
	cerr := raw.Control(func(s uintptr) { fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, peerPidfd) })
	switch {
	case cerr != nil:
		return false
	case errors.Is(err, unix.ENOPROTOOPT):
		p, err := procstat.Read(procstat.Root, pid)
		return err == nil && p.Start < accepted
	case err != nil:
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil // it has not ended
}

// bootTicks returns the current time in the unit of procstat.Process.Start.
func bootTicks() (uint64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return uint64(now.Nano()) / uint64(procstat.Tick), err
}

// onStack reports whether an lklhost is among a process and its ancestors, or
// whether this is unknown. lklhost is a child subreaper, so the processes of a
// stack stay below it when their parents end.
func onStack(pid int) bool {
	const newest = math.MaxUint64
	for at, child, changes := pid, uint64(newest), 0; at > 0; {
		p, err := procstat.Read(procstat.Root, at)
		switch {
		case err != nil || p.Start > child: // it has ended, so its child has another parent
			if changes++; changes > maxChanges {
				return true
			}
			at, child = pid, newest
		case p.Name == "lklhost":
			return true
		default:
			at, child = p.Parent, p.Start
		}
	}
	return false
}

// add passes a bell on, or keeps it until the stack has the device.
func (m *meeting) add(ctx context.Context, f *os.File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to == nil && !m.ended {
		m.waiting = append(m.waiting, f)
		return
	}
	if !m.ended {
		if err := m.to(ctx, f); err != nil && ctx.Err() == nil {
			m.log.Warn("an end could not join the wire", "wire", m.wire, "error", err)
		}
	}
	f.Close()
}

// join passes the ends that are present to the stack, and later ones as they
// appear.
func (m *meeting) join(ctx context.Context, to func(context.Context, *os.File) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.waiting) > 0 {
		err := to(ctx, m.waiting[0])
		m.waiting[0].Close()
		m.waiting = m.waiting[1:]
		if err != nil {
			return err
		}
	}
	m.to = to
	return nil
}

// drop closes the bells that the stack does not have.
func (m *meeting) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	for _, f := range m.waiting {
		f.Close()
	}
	m.waiting = nil
}

// close lets no further ends join.
func (m *meeting) close() {
	m.over()
	<-m.done
	m.leave()
}

func (m *meeting) leave() {
	m.listen.Close()
	_ = os.Remove(m.path) // else the run directory is removed with it
	m.drop()
}
