// SPDX-License-Identifier: Apache-2.0

// Package oci is the program lklrun-oci: an OCI runtime that runs containers on a stack.
//
// lklrun-oci passes all commands on to crun or runc. A container with the annotation
// lklrun.dev/stack is created as follows:
//
//	conmon ── lklrun-oci create ┬─ takes the addresses from the container's interfaces
//	                            ├─ lklrun --detach, in the container's network namespace
//	                            ├─ CTL_SERVE: a listening socket for lklhost
//	                            ├─ rewrites the seccomp profile in config.json
//	                            └─ crun create ── sends the seccomp listener to lklhost
//
// The command of lklrun only waits (Hold). The run ends when all processes of the
// container have ended, with the command delete, or if the container is not created.
package oci

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/relay"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

const (
	// Name is the name of the program.
	Name = "lklrun-oci"

	// HoldVerb is the verb that only waits.
	HoldVerb = "hold"
	holdFD   = 3

	socketFile = "oci.sock"
	idLen      = 12 // of a container's id, as podman ps shows it

	startLimit = 30 * time.Second
	stopLimit  = 10 * time.Second
	grace      = 2 * time.Second
)

// Run carries out one command of the OCI runtime. It returns its exit status, unless
// the process becomes the OCI runtime.
func Run(ctx context.Context, args []string) (int, error) {
	c := parse(args)
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, interfacesFlag+"=") })
	status, err := c.run(ctx, args)
	if err != nil {
		c.report(err)
	}
	return status, err
}

func (c commandLine) run(ctx context.Context, args []string) (int, error) {
	path, err := findRuntime()
	if err != nil {
		return 1, err
	}
	setRunDir()
	switch c.verb {
	case "create", "run":
		s, err := readSpec(c.spec())
		if err != nil {
			return 1, err
		}
		r, err := s.request(c)
		if err != nil {
			return 1, err
		}
		sandbox, err := s.sandbox(c)
		switch {
		case err != nil:
			return 1, err
		case sandbox != "":
			joined, err := s.join(ctx, sandbox, r)
			switch {
			case err != nil:
				return 1, err
			case !joined:
				return 1, become(path, args)
			}
			files, err := keepFiles()
			if err != nil {
				return 1, err
			}
			status, err := call(path, args, files)
			if status == 0 && err == nil {
				err = c.showFiles(name(sandbox))
			}
			return status, err
		case r == nil:
			return 1, become(path, args)
		case c.verb == "run":
			return 1, fmt.Errorf("run: a container on a stack needs the commands create and start instead")
		}
		return c.create(ctx, s, r, path, args)
	case "exec":
		if err := lost(name(c.id)); err != nil {
			return 1, err
		}
	case "delete":
		return c.delete(ctx, path, args)
	}
	return 1, become(path, args)
}

// lost returns why a container has no stack any more, or nil. The OCI runtime would only
// report that it cannot connect to a socket.
func lost(id string) error {
	why := endReason(id)
	if why == "" {
		return nil
	}
	return fmt.Errorf("the stack of the container has ended, and so has its network: %s; restart the container", why)
}

// endReason returns "" if the run has not ended, or has left no record.
func endReason(id string) string {
	if _, err := (instance.Place{}).Open(id); err == nil {
		return ""
	}
	r, err := instance.Place{}.OpenEnded(id)
	if err != nil || r == nil {
		return ""
	}
	if r.Ended.Error != "" {
		return r.Ended.Error
	}
	return fmt.Sprint("its command ended (", r.Ended, ")")
}

// setRunDir chooses the folder of run directories for podman without root: user 0 in
// a user namespace, who must not use the folder of the host's root.
func setRunDir() {
	ids, err := os.ReadFile("/proc/self/uid_map")
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if err != nil || strings.Join(strings.Fields(string(ids)), " ") == "0 0 4294967295" || os.Geteuid() != 0 || os.Getenv(instance.EnvRoot) != "" || !filepath.IsAbs(dir) {
		return
	}
	_ = os.Setenv(instance.EnvRoot, filepath.Join(dir, "lklrun"))
}

var hexID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// name is the name of the instance for a container.
func name(id string) string {
	if hexID.MatchString(id) {
		return id[:idLen]
	}
	return id
}

// report writes an error where podman and containerd look for those of the runtime.
func (c commandLine) report(err error) {
	path := c.options["--log"]
	if path == "" {
		return
	}
	f, oerr := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_CLOEXEC, 0o600)
	if oerr != nil {
		return // standard error has the message, too
	}
	defer f.Close()
	line := text.OneLine(err.Error())
	if c.options["--log-format"] != "json" {
		fmt.Fprintln(f, line)
		return
	}
	_ = json.NewEncoder(f).Encode(map[string]string{"msg": line, "level": "error", "time": time.Now().UTC().Format(time.RFC3339Nano)})
}

// create starts the stack, and then creates the container.
func (c commandLine) create(ctx context.Context, s *spec, r *request, path string, args []string) (status int, err error) {
	files, err := keepFiles()
	if err != nil {
		return 1, err
	}
	id := name(c.id)
	if err := instance.CheckName(id); err != nil {
		return 1, fmt.Errorf("container %q: its id is the name of the instance: %w", c.id, err)
	}
	netns, err := s.netns()
	if err != nil {
		return 1, err
	}
	socket := filepath.Join(instance.Root(), id, socketFile)
	if err := s.supervise(socket); err != nil {
		return 1, err
	}
	r.socket = socketFile
	waits, creating, err := os.Pipe() // see Hold
	if err != nil {
		return 1, fmt.Errorf("creating a pipe: %w", err)
	}
	defer creating.Close()
	command := s.args()
	if r.pod != nil {
		command = []string{r.pod.String()} // the command of a sandbox only waits
	}
	err = within(netns, func() error { return r.start(ctx, netns, id, command, waits) })
	waits.Close()
	if err != nil {
		return 1, errors.Join(err, end(ctx, id))
	}
	defer func() {
		if status != 0 || err != nil {
			err = errors.Join(err, end(ctx, id))
		}
	}()
	if err := serve(ctx, id, socket, netns, false); err != nil {
		return 1, err
	}
	if err := s.write(); err != nil {
		return 1, err
	}
	status, err = call(path, args, files)
	if status == 0 && err == nil {
		err = c.showFiles(id)
	}
	if status == 0 && err == nil {
		_, err = creating.WriteString("\n")
	}
	return status, err
}

// start starts a run in the background, in this thread's network namespace. Its command
// reads the pipe waits.
func (r *request) start(ctx context.Context, netns, id string, command []string, waits *os.File) error {
	interfaces := r.interfaces
	if len(interfaces) == 0 {
		var err error
		before := taken{Netns: netns, Stack: r.stack, Sysctls: r.sysctls, Command: command, Pod: r.pod, Socket: r.socket}
		if interfaces, err = takeOver(before, id); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the lklrun program: %w", err)
	}
	programs := filepath.Dir(exe)
	args := []string{"--detach", "--" + relay.Flag, "--engine", "supervise", "--name", id, "--stack", r.stack}
	if r.pod != nil {
		args = append(args, "--pod", r.pod.Flag())
	}
	for _, i := range interfaces {
		args = append(args, "--if", i)
	}
	for _, s := range r.sysctls {
		args = append(args, "--sysctl", s)
	}
	args = append(append(args, "--", filepath.Join(programs, Name), HoldVerb), command...)
	// The run in the background keeps its standard error, so a pipe would not end.
	fd, err := unix.MemfdCreate("messages", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("creating a file for messages: %w", err)
	}
	messages := os.NewFile(uintptr(fd), "messages")
	defer messages.Close()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "lklrun"), args...)
	cmd.Dir, cmd.Stderr = "/", messages
	cmd.ExtraFiles = []*os.File{waits} // the first one is holdFD
	if r.cgroup != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(r.cgroup.Fd())}
	}
	if err := cmd.Run(); err != nil {
		if _, serr := messages.Seek(0, io.SeekStart); serr != nil {
			return errors.Join(err, serr)
		}
		said, _ := io.ReadAll(messages)
		return fmt.Errorf("starting the stack %s: %s (%w)", r.stack, strings.TrimSpace(string(said)), err)
	}
	return nil
}

// serve makes lklhost listen for the container's seccomp listeners. With stay, the run
// does not end with the container's processes.
func serve(ctx context.Context, id, path, netns string, stay bool) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listening for the container's processes: %w", err)
	}
	l.SetUnlinkOnClose(false) // lklhost listens
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("listening for the container's processes: %w", err)
	}
	f, err := l.File()
	if err != nil {
		return fmt.Errorf("listening for the container's processes: %w", err)
	}
	defer f.Close()
	ns, err := os.Open(netns)
	if err != nil {
		return fmt.Errorf("opening the container's network namespace: %w", err)
	}
	defer ns.Close()
	c, err := dial(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Serve(ctx, f, ns, stay)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w; the stack does not check capabilities, so each process of the container could configure it: use another stack", err)
	}
	return err
}

func dial(ctx context.Context, id string) (*stackconn.Conn, error) {
	info, err := instance.Place{}.Open(id)
	if err != nil {
		return nil, err
	}
	return stackconn.Dial(ctx, info.Socket())
}

// stop ends the run of a container, if it still exists, and waits for its end. A run
// whose processes have ended is about to end without this.
func stop(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	c, err := dial(ctx, id)
	if err == nil {
		defer c.Close()
		err = c.Stop(ctx, unix.SIGTERM, grace)
	}
	switch {
	case errors.Is(err, instance.ErrNone):
		return nil
	case errors.Is(err, stackconn.ErrClosed), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
	case err != nil:
		return fmt.Errorf("ending the stack of container %s: %w", id, err)
	}
	return waitEnd(ctx, id)
}

// waitEnd waits until the run of a container has cleaned up.
func waitEnd(ctx context.Context, id string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := (instance.Place{}).Open(id); errors.Is(err, instance.ErrNone) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the stack of container %s has not ended within %s; run lklrun cleanup", id, stopLimit)
		}
	}
}

// delete deletes the container, and then ends its run and restores the addresses of its
// interfaces. If the container has run, the run ends with it.
func (c commandLine) delete(ctx context.Context, path string, args []string) (int, error) {
	id := name(c.id)
	if instance.CheckName(id) != nil {
		return 1, become(path, args)
	}
	_, err := os.Lstat(filepath.Join(instance.Root(), id))
	if _, terr := os.Lstat(takenFile(id)); err != nil && terr != nil {
		return 1, become(path, args)
	}
	files, err := keepFiles()
	if err != nil {
		return 1, err
	}
	status, err := call(path, args, files)
	if status != 0 || err != nil {
		return status, err // the container may still run
	}
	return status, end(ctx, id)
}

// Hold is the command of a run for a container. It waits for a signal that ends it. It
// also ends if the process that creates the container ends without success, even by
// SIGKILL: the pipe holdFD then has an end, but no line. The line contains the path of the
// pod's network namespace, if the run must end with it. It does so even if the plug-in
// does not run when the pod is deleted.
func Hold() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	ended := make(chan struct{})
	go func() {
		line, err := bufio.NewReader(os.NewFile(holdFD, "pipe")).ReadString('\n')
		if path := strings.TrimSpace(line); err == nil {
			if path == "" || awaitRemoval(path) != nil {
				return // only a signal ends it
			}
			dropTaken()
		}
		close(ended)
	}()
	select {
	case <-signals:
	case <-ended:
	}
}

// awaitRemoval returns nil when the file at path does not exist any more.
func awaitRemoval(path string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_DELETE|unix.IN_DELETE_SELF); err != nil {
		return err
	}
	events := make([]byte, 4<<10)
	for {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if _, err := unix.Read(fd, events); err != nil && err != unix.EINTR {
			return err
		}
	}
}
