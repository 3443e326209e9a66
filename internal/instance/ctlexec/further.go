// SPDX-License-Identifier: Apache-2.0

// Package ctlexec runs additional programs on a running stack, for lklctl exec.
package ctlexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// signalLimit bounds the time for forwarding one signal.
const signalLimit = 5 * time.Second

// Check returns an error if the instance cannot run an additional program.
func Check(info *instance.Info, args []string) error {
	switch {
	case args[0] == "":
		return exit.Usagef("the COMMAND is empty; see lklctl exec --help")
	case info.Engine == config.EnginePreload:
		return exit.Usagef("instance %q has its kernel inside the program (--engine %s), so no other program can use it; start the instance with --engine %s", info.Name, info.Engine, config.EngineSupervise)
	}
	return nil
}

// Run runs a program on an instance's stack and returns how it ended. The program gets
// files as its standard streams. It also gets this process's directory, environment and
// umask, and the signals sent to this process. note tells the user about limitations of
// the program.
func Run(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string, files [3]*os.File, note func(format string, args ...any)) (exit.End, error) {
	if err := Check(info, args); err != nil {
		return exit.End{}, err
	}
	req, err := execRequest(args)
	if err != nil {
		return exit.End{}, err
	}
	signals := catch()
	defer signal.Stop(signals)
	root := os.Geteuid() == 0
	if info.User != nil {
		req.Env, root = info.User.Environ(req.Env), info.User.UID == 0
	}
	terminal := term.IsTerminal(int(files[0].Fd())) && term.IsTerminal(int(files[2].Fd()))
	req.Env = instance.KeysEnviron(req.Env, info.Dir)
	req.Env = instance.Environ(req.Env, info.Name, args, terminal, root)
	// From now on, signals go to the program and do not end the wait.
	ctx = context.WithoutCancel(ctx)
	p, err := conn.Exec(ctx, req, files)
	if err != nil {
		return exit.End{}, fmt.Errorf("instance %q: %w", info.Name, err)
	}
	done := make(chan struct{})
	defer close(done)
	go passOn(ctx, p, signals, done)
	r, err := p.Wait(ctx)
	if err != nil {
		return exit.End{}, lost(ctx, info, conn, err)
	}
	return ended(info, req, r, note)
}

// LastWords returns the message of a kernel panic, if it is available.
func LastWords(ctx context.Context, conn *stackconn.Conn) string {
	log, err := conn.Log(ctx)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(log)) {
		if i := strings.Index(line, "Kernel panic"); i >= 0 {
			return " (" + strings.TrimSpace(line[i:]) + ")"
		}
	}
	return ""
}

// ended converts the reply to an End for this process. It also reports limitations of the
// program.
func ended(info *instance.Info, req ctlproto.Exec, r ctlproto.ExecReply, note func(format string, args ...any)) (exit.End, error) {
	why := syscall.Errno(r.Error)
	switch r.How {
	case ctlproto.CTL_EXEC_CWD:
		return exit.End{}, fmt.Errorf("instance %q: the program cannot change to the directory %s: %w", info.Name, req.Dir, why)
	case ctlproto.CTL_EXEC_COMMAND:
		remedy := ""
		if why == syscall.ENOENT && !strings.Contains(req.Args[0], "/") {
			remedy = "; install it, or check PATH"
		}
		note("%s: %v%s", req.Args[0], why, remedy)
	case ctlproto.CTL_EXEC_RUN_ENDED:
		note("instance %q has ended, so %s was killed", info.Name, req.Args[0])
	}
	return exit.FromStatus(syscall.WaitStatus(r.WaitStatus)), nil
}

// lost explains why it is unknown how the program ended.
func lost(ctx context.Context, info *instance.Info, conn *stackconn.Conn, err error) error {
	switch {
	case errors.Is(err, stackconn.ErrClosed):
		return fmt.Errorf("instance %q: lklhost has ended, which killed the program", info.Name)
	case errors.Is(err, syscall.EIO):
		ctx, cancel := context.WithTimeout(ctx, signalLimit)
		defer cancel()
		return fmt.Errorf("instance %q: the stack's kernel has died%s, so the program was killed", info.Name, LastWords(ctx, conn))
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("instance %q is still starting and cannot run programs yet; retry", info.Name)
	case errors.Is(err, syscall.ESHUTDOWN):
		return fmt.Errorf("instance %q is ending because its program has exited", info.Name)
	case errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("instance %q: the process that starts programs has ended; restart the instance", info.Name)
	case errors.Is(err, syscall.EUSERS):
		return fmt.Errorf("instance %q already runs the maximum number of exec programs; wait until one has ended", info.Name)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("instance %q: its lklhost is of an earlier version, which does not support exec", info.Name)
	}
	return fmt.Errorf("instance %q: starting the program: %w", info.Name, err)
}

// execRequest describes the program and the properties that it inherits from this
// process.
func execRequest(args []string) (ctlproto.Exec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return ctlproto.Exec{}, fmt.Errorf("getting the current directory: %w", err)
	}
	mask := unix.Umask(0)
	unix.Umask(mask)
	return ctlproto.Exec{Umask: uint32(mask), Dir: dir, Args: args, Env: environ()}, nil
}

// environ returns the environment without variables that cannot be sent.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.IndexByte(s, 0) >= 0 })
}

// passed are the forwarded signals. Like a terminal, lklctl sends the signals of a
// terminal to the program's whole process group.
var (
	passed  = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGWINCH, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP}
	byGroup = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGWINCH}
)

// catch starts to catch the signals in passed, except those that this process ignored at
// its start.
func catch() chan os.Signal {
	in := make(chan os.Signal, 64)
	for _, sig := range passed {
		if !signal.Ignored(sig) {
			signal.Notify(in, sig)
		}
	}
	return in
}

// passOn forwards signals until done is closed.
func passOn(ctx context.Context, p *stackconn.Program, in <-chan os.Signal, done <-chan struct{}) {
	send := func(sig syscall.Signal, group bool) {
		ctx, cancel := context.WithTimeout(ctx, signalLimit)
		defer cancel()
		_ = p.Signal(ctx, sig, group) // if this fails, Wait reports that the connection has ended
	}
	for {
		select {
		case s := <-in:
			sig := s.(syscall.Signal)
			if sig != unix.SIGTSTP {
				send(sig, slices.Contains(byGroup, s))
				continue
			}
			// The kernel ignores SIGTSTP for a process group without a parent
			// in its session, setpgid(2). So the program gets SIGSTOP
			// instead. Then this process stops until it is continued.
			send(unix.SIGSTOP, true)
			stopHere()
			send(unix.SIGCONT, true)
		case <-done:
			return
		}
	}
}

// stopHere stops this process and returns when it is continued. It sends the signal to
// this thread. If it sent the signal to the process, another thread might handle it, and
// this thread would run on for a while.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
