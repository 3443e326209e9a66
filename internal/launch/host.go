// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/plan"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

const (
	hostProgram    = "lklhost"
	preloadLibrary = "liblklpreload.so"
)

// FindHost returns the path of lklhost, which lies beside this program.
func FindHost() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", hostProgram, err)
	}
	path := filepath.Join(filepath.Dir(exe), hostProgram)
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", fmt.Errorf("%s, which lies beside lklrun: %w; build it with `make build`", path, err)
	}
	return path, nil
}

// FindPreload returns the path of the library that the engine preload loads into
// the program, which lies beside lklhost; "" for another engine.
func FindPreload(hostPath, engine string) (string, error) {
	if engine != config.EnginePreload {
		return "", nil
	}
	path := filepath.Join(filepath.Dir(hostPath), preloadLibrary)
	if err := unix.Access(path, unix.R_OK); err != nil {
		return "", fmt.Errorf("--engine %s: %s: %w; build it with `make build`", engine, path, err)
	}
	return path, nil
}

// host is the running lklhost.
type host struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended and cmd.ProcessState is set

	connected chan struct{} // closed when conn or err is set
	conn      *stackconn.Conn
	err       error
}

// startHost starts lklhost, which forks the target at once; the greeting goes on
// beside whatever the caller does next.
func startHost(ctx context.Context, opts Options, p *plan.Plan, dir *instance.Dir, log *slog.Logger) (*host, error) {
	// Whoever loses its parent below us becomes our child: nobody escapes.
	// EINVAL: there is no such thing (qemu-user). Orphans of a killed lklhost then end by
	// PR_SET_PDEATHSIG and the end of their control sockets, where they do.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("becoming the reaper of orphans: %w", err)
	}
	sock, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		sock.Close()
		return nil, fmt.Errorf("opening this program: %w", err)
	}
	selfFile := os.NewFile(uintptr(self), "lklrun")
	defer selfFile.Close()

	ours := []*os.File{theirs, selfFile, dir.LockFD()}
	h := &host{exited: make(chan struct{}), connected: make(chan struct{})}
	h.cmd = &exec.Cmd{
		Path: opts.HostPath,
		Args: hostArgs(p, dir, ours, opts),
		// The target's own, untouched.
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if p.User != nil {
		h.cmd.Env = p.User.Environ(os.Environ())
	}
	keepFromTarget(p.Links, log)
	outOfReach()
	err = HandingOver(ours, h.cmd.Start)
	if err != nil {
		sock.Close()
		return nil, fmt.Errorf("starting %s: %w", opts.HostPath, cause(err))
	}
	go func() {
		defer close(h.exited)
		_ = h.cmd.Wait() // the state tells all
	}()
	go func() {
		defer close(h.connected)
		h.conn, h.err = stackconn.New(ctx, sock)
	}()
	return h, nil
}

// hostArgs is lklhost's command line. Of its three descriptors the first is the
// control connection, the second what undoes our work if we die, the third the
// run directory's lock, held for as long as lklhost lives.
func hostArgs(p *plan.Plan, dir *instance.Dir, fds []*os.File, opts Options) []string {
	args := []string{hostProgram, "--run", dir.Path, "--name", dir.Name, "--abi", p.Stack.ABI}
	for i, option := range []string{"--ctl-fd", "--cleanup-fd", "--lock-fd"} {
		args = append(args, option, strconv.Itoa(int(fds[i].Fd())))
	}
	if p.Stack.Library != "" {
		args = append(args, "--stack", p.Stack.Library)
	}
	for _, h := range p.HostNets {
		spec := h.Prefix.String()
		if h.Port != 0 {
			spec += fmt.Sprintf(",%d", h.Port)
		}
		args = append(args, "--host-net", spec)
	}
	if p.User != nil {
		args = append(args, "--user", p.User.Spec())
	}
	if opts.PreloadPath != "" {
		args = append(args, "--preload", opts.PreloadPath)
	}
	return append(append(args, "--"), p.Command...)
}

// HandingOver calls start with files open over execve(2) under the numbers they
// have here. os/exec would put them at 3, 4 and 5, which may be descriptors that
// the user has for the target, as `cat <(command)` has.
func HandingOver(files []*os.File, start func() error) error {
	for _, f := range files {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
		defer unix.CloseOnExec(int(f.Fd()))
	}
	return start()
}

// keepFromTarget closes, for the programs that lklrun starts, the descriptors of --if
// fd:N, and sockets of the host's network that lklrun inherited: with these the target
// could send past its stack. Standard input, output and error are handed over on
// purpose.
func keepFromTarget(links []plan.Link, log *slog.Logger) {
	for i := range links {
		if links[i].Type == config.TypeFD {
			unix.CloseOnExec(links[i].FD)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil || family == unix.AF_UNIX {
			continue
		}
		unix.CloseOnExec(fd)
		log.Debug("a socket of the host's is kept from the command", "descriptor", fd)
	}
}

// controlPair makes the control connection: ours, and the descriptor for lklhost.
func controlPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making the control connection: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("making the control connection: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// ready waits for the greeting's outcome.
func (h *host) ready(ctx context.Context) error {
	select {
	case <-h.connected:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var refused *stackconn.RefusedError
	switch {
	case h.err == nil:
		return nil
	case errors.As(h.err, &refused):
		return h.err
	case errors.Is(h.err, stackconn.ErrClosed):
		select {
		case <-h.exited:
			return fmt.Errorf("%s %s before it answered", hostProgram, h.end())
		case <-ctx.Done():
		}
	}
	return h.err
}

// outOfReach keeps lklrun's memory and descriptors, among them sockets of the host's
// network, from the command: where there is no user namespace both have the same
// user and rights, and the kernel permits ptrace(2) unless a process is not dumpable.
func outOfReach() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // fails for no value but others
}

// end says how lklhost ended; valid once exited is closed.
func (h *host) end() string {
	ws, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return "was killed by " + unix.SignalName(ws.Signal())
	case ok && ws.Exited():
		return fmt.Sprintf("ended with status %d", ws.ExitStatus())
	}
	return "ended"
}

// kill ends lklhost at once and waits for it.
func (h *host) kill() error {
	_ = h.cmd.Process.Kill() // gone already: fine
	select {
	case <-h.exited:
		return nil
	case <-time.After(reapLimit):
		return fmt.Errorf("%s (pid %d) does not end on SIGKILL", hostProgram, h.cmd.Process.Pid)
	}
}
