// SPDX-License-Identifier: Apache-2.0

// Package stackhost starts lklhost, which runs the stack and the target. It
// establishes the control connection to lklhost and ends lklhost.
package stackhost

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
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/errno"
	base "github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

const program = "lklhost"

const (
	// stopLimit bounds the wait for an lklhost that was told to stop.
	stopLimit = 5 * time.Second

	// killLimit bounds the wait for lklhost after SIGKILL. lklhost may be
	// stuck in the host's kernel.
	killLimit = 5 * time.Second
)

// Find returns the path of lklhost, which must be in the directory of this
// program.
func Find() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", program, err)
	}
	path := filepath.Join(filepath.Dir(exe), program)
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", fmt.Errorf("%s (expected in lklrun's directory): %w; build it with `make build`", path, err)
	}
	return path, nil
}

// FindPreload returns the path of a library that the engine preload loads into
// the program. The library must be in the directory of lklhost. If library is
// empty, FindPreload returns "".
func FindPreload(hostPath, library string) (string, error) {
	if library == "" {
		return "", nil
	}
	path := filepath.Join(filepath.Dir(hostPath), library)
	if err := unix.Access(path, unix.R_OK); err != nil {
		target := "build"
		if library == base.PreloadLibraryBionic {
			target = "cross" // it is only in bundles for devices
		}
		return "", fmt.Errorf("--engine %s: %s: %w; build it with `make %s`", config.EnginePreload, path, err, target)
	}
	if err := checkExecutable(path); err != nil {
		return "", fmt.Errorf("--engine %s: %s: %w", config.EnginePreload, path, err)
	}
	return path, nil
}

// checkExecutable returns an error if a program cannot load the library at path. The file
// system may be mounted noexec. On Android, SELinux forbids apps to execute most files.
func checkExecutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	code, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("it cannot be executed there (%w): the file system is mounted noexec, or SELinux forbids it; install lklrun in another folder (for an Android app: its nativeLibraryDir)", err)
	}
	return unix.Munmap(code)
}

// Options are the parameters of lklhost.
type Options struct {
	Path    string // path of lklhost, from Find
	Preload string // path of the library, from FindPreload
	Plan    *plan.Plan
	Dir     *instance.Dir
	Log     *slog.Logger
}

// Process is a running lklhost.
type Process struct {
	// Unresponsive is set if lklhost does not answer. Stop then kills it
	// without a request to stop.
	Unresponsive bool

	cmd    *exec.Cmd
	exited chan struct{} // closed when lklhost has ended and cmd.ProcessState is set

	connected chan struct{} // closed when conn or err is set
	conn      *stackconn.Conn
	err       error
}

// Start starts lklhost, which forks the target immediately. The greeting
// continues in the background.
func Start(ctx context.Context, opts Options) (*Process, error) {
	// Orphaned descendants become our children, so none of them escapes.
	// EINVAL means that the kernel does not support subreapers (qemu-user).
	// In that case, if lklhost is killed, most orphans end because of
	// PR_SET_PDEATHSIG or because their control socket has ended.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("becoming the subreaper: %w", err)
	}
	sock, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	self, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		sock.Close()
		return nil, fmt.Errorf("opening lklrun's own file: %w", err)
	}
	selfFile := os.NewFile(uintptr(self), "lklrun")
	defer selfFile.Close()

	ours := []*os.File{theirs, selfFile, opts.Dir.LockFD()}
	h := &Process{exited: make(chan struct{}), connected: make(chan struct{})}
	h.cmd = &exec.Cmd{
		Path: opts.Path,
		Args: arguments(opts, ours),
		// The target gets these streams unchanged.
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	h.cmd.Env = environ(opts)
	keepFromTarget(opts.Plan.Links, opts.Log)
	setUndumpable()
	err = InheritFiles(ours, h.cmd.Start)
	if err != nil {
		sock.Close()
		return nil, fmt.Errorf("starting %s: %w", opts.Path, errno.Errno(err))
	}
	go func() {
		defer close(h.exited)
		_ = h.cmd.Wait() // the process state contains the result
	}()
	go func() {
		defer close(h.connected)
		h.conn, h.err = stackconn.New(ctx, sock)
	}()
	return h, nil
}

// environ returns the environment of the target, which lklhost has, too.
func environ(opts Options) []string {
	env, root := os.Environ(), os.Geteuid() == 0
	if u := opts.Plan.User; u != nil {
		env, root = u.Environ(env), u.UID == 0
	}
	terminal := term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd()))
	env = instance.KeysEnviron(env, opts.Dir.Path)
	return instance.Environ(env, opts.Dir.Name, opts.Plan.Command, terminal, root)
}

// arguments returns lklhost's command line. The first descriptor is the control
// connection. The second one is for the cleanup that runs if lklrun dies. The
// third one is the lock of the run directory, which is held as long as lklhost
// lives.
func arguments(opts Options, fds []*os.File) []string {
	p, dir := opts.Plan, opts.Dir
	args := []string{program, "--run", dir.Path, "--name", dir.Name, "--abi", p.Stack.ABI}
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
	if p.Confined {
		args = append(args, "--hide")
	}
	if p.User != nil {
		args = append(args, "--user", p.User.Spec())
	}
	if opts.Preload != "" {
		args = append(args, "--preload", opts.Preload)
	}
	if p.Engine == config.EngineTrace {
		args = append(args, "--trace")
	}
	return append(append(args, "--"), p.Command...)
}

// InheritFiles calls start. During the call, files stay open across execve(2) under
// their present numbers. os/exec would renumber them to 3, 4 and 5, which may
// be descriptors of the target itself, as in `cat <(command)`.
func InheritFiles(files []*os.File, start func() error) error {
	for _, f := range files {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
		defer unix.CloseOnExec(int(f.Fd()))
	}
	return start()
}

// keepFromTarget sets close-on-exec on the descriptors of --if fd:N and on
// inherited sockets of the host's network. With these, the target could bypass
// its stack. The target gets standard input, output and error deliberately.
func keepFromTarget(links []plan.Link, log *slog.Logger) {
	for i := range links {
		if links[i].FD != 0 {
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
		log.Debug("closed an inherited socket of the host", "descriptor", fd)
	}
}

// controlPair creates the control connection. It returns our end and the
// descriptor for lklhost.
func controlPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the control connection: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("creating the control connection: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// Exited returns a channel that is closed when lklhost has ended.
func (h *Process) Exited() <-chan struct{} { return h.exited }

// Connect waits for the greeting and returns the control connection.
func (h *Process) Connect(ctx context.Context) (*stackconn.Conn, error) {
	select {
	case <-h.connected:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var refused *stackconn.StartError
	switch {
	case h.err == nil:
		return h.conn, nil
	case errors.As(h.err, &refused):
		return nil, h.err
	case errors.Is(h.err, stackconn.ErrClosed):
		select {
		case <-h.exited:
			return nil, fmt.Errorf("%s %s before it was ready", program, h.End())
		case <-ctx.Done():
		}
	}
	return nil, h.err
}

// setUndumpable protects lklrun's memory and descriptors, including sockets of the
// host's network, from the command. Without a user namespace, lklrun and the
// command have the same user and rights. The kernel would then permit ptrace(2)
// if lklrun were dumpable.
func setUndumpable() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // cannot fail with this value
}

// End describes how lklhost ended. It is valid after the channel of Exited is
// closed.
func (h *Process) End() string {
	ws, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return "was killed by " + unix.SignalName(ws.Signal())
	case ok && ws.Exited():
		return fmt.Sprintf("exited with status %d", ws.ExitStatus())
	}
	return "ended"
}

// kill kills lklhost and waits until it has ended.
func (h *Process) kill() error {
	_ = h.cmd.Process.Kill() // fails only if lklhost has already ended
	select {
	case <-h.exited:
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("%s (pid %d) did not exit after SIGKILL", program, h.cmd.Process.Pid)
	}
}

// Stop ends lklhost if it is still running. It first asks lklhost to stop, so
// that lklhost can halt its kernel. After a timeout it kills lklhost.
func (h *Process) Stop() error {
	select {
	case <-h.exited:
	case <-h.connected:
		if h.conn != nil && !h.Unresponsive {
			h.ask()
		}
	default: // there is no greeting yet
	}
	err := h.kill()
	<-h.connected // the greeting has failed, or it fails within the time limit of the start
	if h.conn != nil {
		h.conn.Close()
	}
	return err
}

// ask asks lklhost to stop and waits until it has ended.
func (h *Process) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := h.conn.Stop(ctx, unix.SIGKILL, 0); err != nil {
		return
	}
	select {
	case <-h.exited:
	case <-ctx.Done():
	}
}
