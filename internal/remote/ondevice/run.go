// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/remote/session"
	"github.com/lklrun/lklrun/pkg/config"
)

// Timeouts for the steps in which a run ends. Their sum with session.Silence is
// below ten seconds, which is the time after which nothing is left of a run whose
// desk is gone.
const (
	startLimit = 10 * time.Second        // until the desk has sent the command to run
	hangupTime = 1500 * time.Millisecond // time between SIGHUP and SIGKILL for a run whose desk is gone
	undoLimit  = 2 * time.Second         // until lklhost has reverted the remaining changes
	restTime   = time.Second             // time for the last output of a command that has ended
)

// runner is the device's end of one session.
type runner struct {
	conn  *session.Conn
	start session.StartMessage
	cmd   *exec.Cmd
	tty   *os.File // the terminal's master; nil: none

	in    *os.File   // the command's standard input while it is open; nil: none
	outs  []*os.File // sources of the command's output
	pumps sync.WaitGroup
}

// Run serves one session with the desk over in and out. It returns when the command
// has ended and Run has sent the result. If the desk is gone, it returns when
// nothing of the run remains.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	// A signal from adbd or sshd means that the desk is gone, as does silence of
	// the desk.
	ctx, cancel := signal.NotifyContext(ctx, unix.SIGHUP, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT)
	defer cancel()
	// Use a handler, because the command would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	r := &runner{conn: session.New(in, out)}
	over := make(chan error, 1)
	go func() { over <- r.conn.Run(ctx) }()

	var err error
	select {
	case f, ok := <-r.conn.Frames():
		if !ok {
			return errors.New("the connection was lost before the run request arrived")
		}
		if f.Kind != session.Start {
			return fmt.Errorf("the first frame has the unexpected kind %d", f.Kind)
		}
		if err = json.Unmarshal(f.Body, &r.start); err != nil {
			return fmt.Errorf("reading the run request: %w", err)
		}
	case <-time.After(startLimit):
		return errors.New("no run request arrived")
	}
	clean, err := r.launch()
	if err != nil {
		return r.conn.SendJSON(session.Exit, session.ExitMessage{Status: 125, Error: err.Error()})
	}
	defer clean()
	ended := make(chan syscall.WaitStatus, 1)
	go func() {
		_ = r.cmd.Wait()
		ended <- r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	}()
	for {
		select {
		case f, ok := <-r.conn.Frames():
			if ok {
				r.handleFrame(f)
				continue
			}
			err := <-over
			r.abandon(ended)
			return fmt.Errorf("connection lost (%w); the run was stopped", err)
		case err := <-over:
			r.abandon(ended)
			return fmt.Errorf("connection lost (%w); the run was stopped", err)
		case ws := <-ended:
			return r.tell(exit.FromStatus(ws), over)
		}
	}
}

// handleFrame handles a frame of the desk while the command runs.
func (r *runner) handleFrame(f session.Frame) {
	switch {
	case f.Kind == session.Signal && len(f.Body) == 4:
		r.signal(syscall.Signal(binary.BigEndian.Uint32(f.Body)))
	case f.Kind == session.Size && len(f.Body) == 4 && r.tty != nil:
		setSize(r.tty, binary.BigEndian.Uint16(f.Body), binary.BigEndian.Uint16(f.Body[2:]))
	}
}

// signal forwards a signal. A signal of the terminal goes to the foreground process
// group of our terminal, as it would at the desk. Other signals go to lklrun, which
// forwards them.
func (r *runner) signal(sig syscall.Signal) {
	if r.tty != nil && (sig == unix.SIGINT || sig == unix.SIGQUIT) {
		// TIOCSIG sends the signal to the foreground process group
		// (pty_unix98_ioctl, drivers/tty/pty.c).
		err := error(unix.EBADF)
		control(r.tty, func(fd int) { err = unix.IoctlSetInt(fd, unix.TIOCSIG, int(sig)) })
		if err == nil {
			return
		}
	}
	if sig > 0 && sig < 65 {
		_ = r.cmd.Process.Signal(sig) // fails if the command has just ended
	}
}

// launch starts lklrun for the run, as a session leader. If the desk has a
// terminal, the terminal of lklrun is ours.
func (r *runner) launch() (clean func(), err error) {
	place, err := Locate()
	if err != nil {
		return nil, err
	}
	if err := place.SetUp(); err != nil {
		return nil, err
	}
	files := &handles{}
	defer files.closeTheirs()
	clean = func() { files.closeOurs() }
	defer func() {
		if err != nil {
			clean()
		}
	}()
	args := r.start.Args
	if r.start.Run != nil {
		name, err := writeConfig(r.start.Run)
		if err != nil {
			return clean, err
		}
		files.remove = name
		args = append([]string{"--configured", name}, args...)
	}
	r.cmd = &exec.Cmd{Path: place.Program(), Args: append([]string{"lklrun"}, args...), Env: append(os.Environ(), r.start.Env...)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !r.start.Stay {
		// If this process is killed, the kernel kills lklrun, too, and lklhost
		// reverts the remaining changes.
		r.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := r.connect(files); err != nil {
		return clean, err
	}
	// The kernel sends Pdeathsig when the thread that forked ends, so this thread
	// must live until the process ends.
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- r.cmd.Start()
		select {}
	}()
	if err := <-started; err != nil {
		return clean, fmt.Errorf("starting lklrun: %w", err)
	}
	files.closeTheirs()
	return clean, r.pump()
}

// handles contains the files to close after the start of a run.
type handles struct {
	theirs, ours []*os.File
	remove       string
}

func (h *handles) closeTheirs() {
	for _, f := range h.theirs {
		f.Close()
	}
	h.theirs = nil
}

func (h *handles) closeOurs() {
	for _, f := range h.ours {
		f.Close()
	}
	if h.remove != "" {
		_ = os.Remove(h.remove)
	}
}

func writeConfig(run *config.Run) (string, error) {
	f, err := os.CreateTemp("", "lklrun-*.json") // mode 0600
	if err != nil {
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(run); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	return f.Name(), nil
}

// connect sets the standard descriptors of the command: pipes, or the terminal.
func (r *runner) connect(h *handles) error {
	var fds [3]*os.File
	if r.start.TTY {
		master, slave, err := openTerminal(r.start.Rows, r.start.Cols)
		if err != nil {
			return err
		}
		r.tty = master
		h.ours, h.theirs = append(h.ours, master), append(h.theirs, slave)
		for n := range fds {
			if r.start.OnTTY[n] {
				fds[n] = slave
				r.cmd.SysProcAttr.Setctty, r.cmd.SysProcAttr.Ctty = true, n
			}
		}
	}
	for n := range fds {
		if fds[n] != nil {
			continue
		}
		if r.start.None[n] || r.start.Stay {
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			h.theirs = append(h.theirs, null)
			fds[n] = null
			if !r.start.Stay || n == 0 {
				continue
			}
		}
		read, write, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("making a pipe: %w", err)
		}
		if n == 0 {
			fds[n], r.in = read, write
			h.theirs = append(h.theirs, read)
			continue // pump closes our end
		}
		fds[n] = write
		h.theirs, h.ours = append(h.theirs, write), append(h.ours, read)
		r.outs = append(r.outs, read)
		r.pumpOut([]session.Channel{session.Stdin, session.Stdout, session.Stderr}[n], read)
	}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = fds[0], fds[1], fds[2]
	return nil
}

// pumpOut copies the output in f to the desk.
func (r *runner) pumpOut(ch session.Channel, f *os.File) {
	r.pumps.Add(1)
	go func() {
		defer r.pumps.Done()
		// Reads from a terminal end with EIO. Reads of the output of an ended run
		// end with a timeout. If the desk has closed the output, the command must
		// get a broken pipe.
		if err := r.conn.Copy(ch, last{f}); errors.Is(err, io.ErrClosedPipe) && f != r.tty {
			f.Close()
		}
	}()
}

// pump copies the desk's input to the command, and the output of the terminal
// back.
func (r *runner) pump() error {
	if r.in != nil {
		if err := r.conn.Accept(session.Stdin); err != nil {
			return err
		}
		go func() {
			defer r.in.Close()
			_, _ = io.Copy(r.in, r.conn.Reader(session.Stdin)) // the command may have stopped reading
			// Discard the rest of the desk's input.
			_, _ = io.Copy(io.Discard, r.conn.Reader(session.Stdin))
		}()
	}
	if r.tty == nil {
		return nil
	}
	r.outs = append(r.outs, r.tty)
	r.pumpOut(session.TTYOut, r.tty)
	if err := r.conn.Accept(session.TTYIn); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(r.tty, r.conn.Reader(session.TTYIn)) }()
	return nil
}

// tell waits until the rest of the command's output has been sent to the desk, and then
// sends the result. A process that outlives the run may keep the output open, so the
// output also ends after restTime. If the connection to the desk fails, tell does not
// block.
func (r *runner) tell(end exit.End, over <-chan error) error {
	told := make(chan error, 1)
	go func() {
		for _, f := range r.outs {
			_ = f.SetReadDeadline(time.Now().Add(restTime))
		}
		r.pumps.Wait()
		told <- r.conn.SendJSON(session.Exit, session.ExitMessage{Status: end.Status, Signal: int(end.Signal)})
	}()
	select {
	case err := <-told:
		return err
	case err := <-over:
		return fmt.Errorf("connection lost (%w); the exit status was not delivered", err)
	}
}

// abandon ends a run whose desk is gone. It sends SIGHUP, as for a closed terminal,
// and then SIGKILL, after which lklhost reverts the remaining changes. It waits for
// orphaned descendants.
func (r *runner) abandon(ended <-chan syscall.WaitStatus) {
	if r.start.Stay {
		return
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = r.cmd.Process.Signal(unix.SIGHUP)
	select {
	case <-ended:
		return
	case <-time.After(hangupTime):
	}
	_ = r.cmd.Process.Kill()
	<-ended
	limit := time.Now().Add(undoLimit)
	for time.Now().Before(limit) {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil); errors.Is(err, unix.ECHILD) {
			return // no processes remain
		}
		time.Sleep(10 * time.Millisecond)
	}
}
