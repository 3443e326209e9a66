// SPDX-License-Identifier: Apache-2.0

package main

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

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// exitOwn is the exit status when not the program failed, but what starts it;
// the same as lklrun's.
const exitOwn = 125

// signalLimit bounds the passing on of one signal.
const signalLimit = 5 * time.Second

// endError ends lklctl as a program ended; it has nothing to say itself.
type endError struct{ exit.End }

func (e *endError) Error() string { return fmt.Sprintf("the program ended with status %d", e.Status) }

func (c *ctl) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [-n NAME] [--] COMMAND [ARG]...",
		Short: "run another program on an instance's stack",
		Long: `exec runs another program on a stack that runs already, as if the instance's own
program had started it: same interfaces, ports and name servers. It gets the
standard streams, the folder, the environment and the umask of lklctl, and no
other descriptors; its user, rights and limits are those of the instance, and
with lklrun --user so are HOME, USER and LOGNAME.

INT, QUIT, HUP, TERM, WINCH, USR1 and USR2 are passed on, and Ctrl-Z stops the
program with lklctl. A terminal can be read and written, but it is not the
program's controlling terminal: a shell has no job control on it, and /dev/tty
cannot be opened.

The program is ended when the instance's own program ends. When lklctl is killed
it gets SIGHUP and SIGTERM, and SIGKILL after five seconds. What it left in the
background stays until the instance ends.

EXIT STATUS
  The program's own. A signal that ended it ends lklctl too, save SIGKILL,
  which is 137. Else:

  2      the command line was not understood
  125    no such instance runs, or it failed
  126    the program cannot be executed
  127    the program was not found`,
		Example: "  lklctl exec ip addr\n  lklctl exec -n web -- curl -s http://127.0.0.1/\n  lklctl exec bash",
		Args:    someArgs("COMMAND"),
		RunE:    c.execProgram,
	}
	c.flags(cmd.Flags(), true)
	must(cmd.Flags().MarkHidden("output"))
	cmd.Flags().SetInterspersed(false) // what follows the command is the command's
	return cmd
}

// execProgram is the body of exec: it ends as the program did.
func (c *ctl) execProgram(cmd *cobra.Command, args []string) error {
	if c.output != cli.OutputTable {
		return cli.Usagef("-o %s: %s prints what the program prints: see %s --help", c.output, cmd.Name(), cmd.CommandPath())
	}
	end, err := c.exec(cmd.Context(), args, [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	var usage *cli.UsageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		cli.Fail(c.stderr, program, err)
		end = exit.End{Status: exitOwn}
	}
	return &endError{end}
}

// ipCommand is short for what people ask most.
func (c *ctl) ipCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ip [ARG]...",
		Short: "the same as lklctl exec -- ip ...",
		Long: `ip runs the machine's ip(8) on the instance's stack: addresses, routes, rules,
neighbours, MPTCP endpoints, as the stack has them. What follows is ip's own: -n
goes before the verb, as in lklctl -n web ip -s link.`,
		Example:            "  lklctl ip -br addr\n  lklctl ip route show table all\n  lklctl -n web ip -s link",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return c.execProgram(cmd, append([]string{"ip"}, args...))
		},
	}
	return cmd
}

// exec runs a program on the chosen instance's stack, with files as its standard
// streams, and returns its end.
func (c *ctl) exec(ctx context.Context, args []string, files [3]*os.File) (exit.End, error) {
	req, err := execRequest(args)
	if err != nil {
		return exit.End{}, err
	}
	signals := catch()
	defer signal.Stop(signals)
	attaching, cancel := context.WithTimeout(ctx, queryLimit)
	info, conn, err := c.attach(attaching)
	cancel()
	if err != nil {
		return exit.End{}, err
	}
	defer conn.Close()
	if info.Engine == config.EnginePreload {
		return exit.End{}, cli.Usagef("instance %q has its kernel inside its own program (--engine %s), so no other can use it: start it with --engine %s", info.Name, info.Engine, config.EngineSupervise)
	}
	if info.User != nil {
		req.Env = info.User.Environ(req.Env)
	}
	// Signals are the program's from here on, and do not end the wait.
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
	return c.ended(info, req, r)
}

// ended turns the answer into lklctl's end, and tells what the program cannot.
func (c *ctl) ended(info *instance.Info, req ctlproto.Exec, r ctlproto.ExecReply) (exit.End, error) {
	why := syscall.Errno(r.Error)
	switch r.How {
	case ctlproto.CTL_EXEC_CWD:
		return exit.End{}, fmt.Errorf("instance %q: entering %s, as the program: %w", info.Name, req.Dir, why)
	case ctlproto.CTL_EXEC_COMMAND:
		cli.Note(c.stderr, program, "%s: %v", req.Args[0], why)
	case ctlproto.CTL_EXEC_RUN_ENDED:
		cli.Note(c.stderr, program, "instance %q has ended, so %s was killed", info.Name, req.Args[0])
	}
	return exit.Of(syscall.WaitStatus(r.WaitStatus)), nil
}

// lost says why no end of the program is known.
func lost(ctx context.Context, info *instance.Info, conn *stackconn.Conn, err error) error {
	switch {
	case errors.Is(err, stackconn.ErrClosed):
		return fmt.Errorf("instance %q: its stack host is gone, and the program with it", info.Name)
	case errors.Is(err, syscall.EIO):
		ctx, cancel := context.WithTimeout(ctx, signalLimit)
		defer cancel()
		return fmt.Errorf("instance %q: the kernel of its stack has died%s, so the program was killed", info.Name, lastWords(ctx, conn))
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("instance %q is starting: its own program does not run yet, try again", info.Name)
	case errors.Is(err, syscall.ESHUTDOWN):
		return fmt.Errorf("instance %q is ending: its own program has ended", info.Name)
	case errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("instance %q: the process that starts programs in it is gone; start the instance anew", info.Name)
	case errors.Is(err, syscall.EUSERS):
		return fmt.Errorf("instance %q runs as many programs by exec as it can: wait until one has ended", info.Name)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("instance %q: its stack host is of an earlier version, which has no exec", info.Name)
	}
	return fmt.Errorf("instance %q: starting the program: %w", info.Name, err)
}

// execRequest is the program with what it has of lklctl's.
func execRequest(args []string) (ctlproto.Exec, error) {
	if args[0] == "" {
		return ctlproto.Exec{}, cli.Usagef("the COMMAND is empty: see %s exec --help", program)
	}
	dir, err := os.Getwd()
	if err != nil {
		return ctlproto.Exec{}, fmt.Errorf("looking for the current folder: %w", err)
	}
	mask := unix.Umask(0)
	unix.Umask(mask)
	return ctlproto.Exec{Umask: uint32(mask), Dir: dir, Args: args, Env: environ()}, nil
}

// environ is the environment, without what cannot be sent.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.IndexByte(s, 0) >= 0 })
}

// passed are the signals that the program gets; those of a terminal go to its
// whole group, as the terminal itself would send them.
var (
	passed  = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGWINCH, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP}
	byGroup = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGWINCH}
)

// catch begins to catch them, save those that were ignored when lklctl began.
func catch() chan os.Signal {
	in := make(chan os.Signal, 64)
	for _, sig := range passed {
		if !signal.Ignored(sig) {
			signal.Notify(in, sig)
		}
	}
	return in
}

// passOn passes signals on until done.
func passOn(ctx context.Context, p *stackconn.Program, in <-chan os.Signal, done <-chan struct{}) {
	send := func(sig syscall.Signal, group bool) {
		ctx, cancel := context.WithTimeout(ctx, signalLimit)
		defer cancel()
		_ = p.Signal(ctx, sig, group) // the connection's end is Wait's to tell
	}
	for {
		select {
		case s := <-in:
			sig := s.(syscall.Signal)
			if sig != unix.SIGTSTP {
				send(sig, slices.Contains(byGroup, s))
				continue
			}
			// A group without a parent in its session ignores SIGTSTP, setpgid(2):
			// the program is stopped by force, then lklctl, until it is continued.
			send(unix.SIGSTOP, true)
			stopHere()
			send(unix.SIGCONT, true)
		case <-done:
			return
		}
	}
}

// stopHere stops this process and returns when it was continued. The signal is
// for this thread: one for the process as a whole may be taken by another, and
// this one would go on for a while.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
