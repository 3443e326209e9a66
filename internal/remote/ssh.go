// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
)

// sshDevice is a machine that the OpenSSH client reaches, with the user's own
// configuration, keys and agent. All commands share one connection of the
// client (ControlMaster, ssh_config(5)).
type sshDevice struct {
	target Target
	ssh    string
	dir    string   // private folder for the shared connection's socket
	args   []string // arguments before the command
}

// sshLimit is the timeout for opening and for closing the connection to a machine.
const sshLimit = 10 * time.Second

// openSSH connects to a machine. The ssh client asks questions, such as for a
// password or a new host key, at the terminal. Without a terminal, it asks none.
func openSSH(ctx context.Context, t Target) (Device, error) {
	destination, port, err := t.address()
	if err != nil {
		return nil, userError(t.String(), "%w", err)
	}
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, userError(t.String(), "the program ssh is not installed on this machine; install the OpenSSH client")
	}
	// A socket path has at most 107 characters, and ssh appends 17 to the name.
	place := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
	sweepSSH(place)
	dir, err := os.MkdirTemp(place, sshPrefix)
	if err != nil {
		return nil, userError(t.String(), "creating a directory for ssh's socket: %w", err)
	}
	d := &sshDevice{target: t, ssh: program, dir: dir}
	// These options are for connections without a session, such as an upload of the
	// bundle. A session detects silence by itself, within 6 s. The timeout is long
	// because keepalive replies wait behind all data sent before.
	d.args = []string{
		"-T", "-a", "-x",
		"-o", "ControlPath=" + filepath.Join(dir, "s"), "-o", "ControlMaster=auto", "-o", "ControlPersist=15",
		"-o", "ConnectTimeout=" + strconv.Itoa(int(sshLimit.Seconds())),
		"-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3",
		"-o", "RequestTTY=no", "-o", "RemoteCommand=none", "-o", "ClearAllForwardings=yes", "-o", "LogLevel=ERROR",
	}
	if port != 0 {
		d.args = append(d.args, "-p", strconv.Itoa(port))
	}
	batch := "yes"
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		tty.Close()
		if term.IsTerminal(int(os.Stderr.Fd())) {
			batch = "no"
		}
	}
	first := append(append([]string{}, d.args...), "-o", "BatchMode="+batch, "--", destination, "exit 0")
	d.args = append(d.args, "-o", "BatchMode=yes", "--", destination)
	if err := d.connect(ctx, first); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// sshPrefix is the prefix of the folders for sockets.
const sshPrefix = "lklrun-ssh-"

// sweepSSH removes the folders of killed lklrun processes. ssh removes the socket
// when its connection ends. sweepSSH keeps a folder that contains a socket.
func sweepSSH(place string) {
	const unused = 10 * time.Minute                              // time for which a question of ssh may remain unanswered
	all, _ := filepath.Glob(filepath.Join(place, sshPrefix+"*")) // a folder whose name contains pattern characters is not swept
	for _, dir := range all {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && time.Since(st.ModTime()) > unused {
			_ = os.Remove(dir) // fails if the folder is not empty, or belongs to another user
		}
	}
}

// connect opens the shared connection. The ssh process stays in the foreground
// process group of the terminal, so that it can ask questions.
func (d *sshDevice) connect(ctx context.Context, args []string) error {
	var said Head
	cmd := exec.CommandContext(ctx, d.ssh, args...)
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second // the background process of the connection may keep the pipe open
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.ExitCode() != 255:
		return userError(d.Name(), "its shell refused a command (status %d)%s; lklrun requires a login with a shell", ended.ExitCode(), after(": ", lastLine(said.String())))
	case err != nil:
		why := cmp.Or(lastLine(said.String()), err.Error())
		return userError(d.Name(), "%s; try `ssh %s`", strings.TrimSuffix(strings.TrimPrefix(why, "ssh: "), "."), d.where())
	}
	return nil
}

// where returns the machine in the form of ssh(1).
func (d *sshDevice) where() string {
	destination, port, _ := d.target.address()
	if port != 0 {
		return "-p " + strconv.Itoa(port) + " " + destination
	}
	return destination
}

func (d *sshDevice) Name() string { return d.target.String() }

// command returns a process that runs a shell command on the machine. sh interprets
// the command, regardless of the user's login shell.
func (d *sshDevice) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.ssh, append(append([]string{}, d.args...), "exec sh -c "+Quote(line))...)
	// Ctrl-C is meant for the remote command, and must not end ssh. The session
	// forwards it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

func (d *sshDevice) Run(ctx context.Context, c Command) (int, error) {
	cmd := d.command(ctx, c.Line)
	var said Head
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if c.Stderr == nil {
		cmd.Stderr = &said
	}
	return d.ended(ctx, cmd.Run(), said.String())
}

// ended distinguishes the end of the command from a failure of the connection: ssh
// uses status 255 for its own errors.
func (d *sshDevice) ended(ctx context.Context, err error, said string) (int, error) {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.As(err, &ended) && ended.ExitCode() >= 0 && ended.ExitCode() != 255:
		return ended.ExitCode(), nil
	}
	return 0, broken(d.Name(), "the connection was lost%s", after(": ", lastLine(said)))
}

func (d *sshDevice) Start(ctx context.Context, line string, stderr io.Writer) (Stream, error) {
	return startStream(d.Name(), d.command(ctx, line), stderr, func(err error) (int, error) { return d.ended(ctx, err, "") })
}

// Push uploads each file through cat, which every machine has. It compresses
// the data if the machine has gzip, for slow connections.
func (d *sshDevice) Push(ctx context.Context, files []File, dir string, progress func(int64)) error {
	folders := map[string]bool{dir: true}
	var prepare []string
	for _, f := range files {
		if to := path.Dir(path.Join(dir, f.Name)); !folders[to] {
			folders[to] = true
			prepare = append(prepare, "mkdir -p "+Quote(to))
		}
	}
	if len(prepare) > 0 {
		if err := d.must(ctx, nil, strings.Join(prepare, " && ")); err != nil {
			return err
		}
	}
	var zip Head
	if _, err := d.Run(ctx, Command{Line: "command -v gzip", Stdout: &zip}); err != nil {
		return err
	}
	var done int64
	count := func(n int) {
		done += int64(n)
		if progress != nil {
			progress(done)
		}
	}
	for _, f := range files {
		to := Quote(path.Join(dir, f.Name))
		if f.Link != "" {
			if err := d.must(ctx, nil, fmt.Sprintf("ln -s %s %s", Quote(f.Link), to)); err != nil {
				return err
			}
			continue
		}
		if err := d.pushFile(ctx, f, to, len(zip.Bytes()) > 0, count); err != nil {
			return err
		}
	}
	return nil
}

func (d *sshDevice) pushFile(ctx context.Context, f File, to string, zip bool, count func(int)) error {
	from, err := f.Open()
	if err != nil {
		return userError(d.Name(), "%w", err)
	}
	defer from.Close()
	counted := &counter{from, count}
	if !zip {
		return d.must(ctx, counted, fmt.Sprintf("cat >%s && chmod %o %s", to, f.Mode.Perm(), to))
	}
	read, write := io.Pipe()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return compress(write, counted) })
	g.Go(func() error {
		defer read.Close()
		return d.must(ctx, read, fmt.Sprintf("gzip -dc >%s && chmod %o %s", to, f.Mode.Perm(), to))
	})
	return g.Wait()
}

// must runs a command of an upload and treats its failure as an error.
func (d *sshDevice) must(ctx context.Context, in io.Reader, line string) error {
	var said Head
	status, err := d.Run(ctx, Command{Line: line, Stdin: in, Stderr: &said})
	if err != nil {
		return err
	}
	if status != 0 {
		return userError(d.Name(), "uploading files: %s", cmp.Or(lastLine(said.String()), fmt.Sprintf("its shell exited with status %d", status)))
	}
	return nil
}

// Close ends the shared connection.
func (d *sshDevice) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), sshLimit)
	defer cancel()
	if _, err := os.Stat(filepath.Join(d.dir, "s")); err == nil {
		args := append([]string{"-O", "exit"}, d.args...)
		cmd := exec.CommandContext(ctx, d.ssh, args...)
		cmd.WaitDelay = time.Second
		_ = cmd.Run() // if this fails, the connection has ended, or ends by itself (ControlPersist)
	}
	return os.RemoveAll(d.dir)
}
