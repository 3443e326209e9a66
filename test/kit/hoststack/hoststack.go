// SPDX-License-Identifier: Apache-2.0

// Package hoststack is a stack host for tests: it implements the control protocol for the
// host kernel itself, in a process with its own network and mount namespaces. Calls go to
// a real kernel, so results differ from other stacks only where kernels differ. It needs
// neither C nor a library.
//
// It is the second implementation of the protocol, next to csrc/: the two agree on
// everything in csrc/shared/ctl_proto.h.
package hoststack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

const stageEnv = "LKLRUN_TEST_HOSTSTACK"

// Main runs the stack host if Start has started this process as the stack host. A
// TestMain must call Main first.
func Main() {
	if os.Getenv(stageEnv) == "" {
		return
	}
	code := 0
	if err := serveProcess(); err != nil {
		fmt.Fprintln(os.Stderr, "hoststack:", err)
		code = 1
	}
	os.Exit(code)
}

// Stack is a running stack host.
type Stack struct {
	Socket string // its control socket
	PID    int    // for nsenter -n -t PID
	cmd    *exec.Cmd
	once   sync.Once
	ended  chan struct{} // closed by Kill
}

// Start starts a stack host that ends with the test.
func Start(t testing.TB) *Stack {
	t.Helper()
	return StartAt(t, filepath.Join(t.TempDir(), "ctl.sock"))
}

// StartAt is like Start, with a given control socket.
func StartAt(t testing.TB, path string) *Stack {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	s := &Stack{Socket: path, cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The child ends with the thread that started it (prctl(2), PR_SET_PDEATHSIG). So
		// no other goroutine may use this thread, because the thread could end with that
		// goroutine.
		runtime.LockOSThread()
		started <- cmd.Start()
		<-s.ended
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	s.PID = cmd.Process.Pid
	t.Cleanup(s.Kill)
	return s
}

// Kill ends the stack host at once.
func (s *Stack) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	_ = s.cmd.Wait()         // an error is expected after SIGKILL
	s.once.Do(func() { close(s.ended) })
}

// Dial connects to the stack host; the connection ends with the test.
func (s *Stack) Dial(t testing.TB) *stackconn.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := stackconn.Dial(ctx, s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Run runs a command in the stack's network namespace.
func (s *Stack) Run(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args = append([]string{"-n", "-m", "-t", fmt.Sprint(s.PID)}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nsenter %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// serveProcess serves the listener that is descriptor 3 until it is told to stop.
func serveProcess() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// A sysfs mount shows the network namespace in which it was mounted.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	nl, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	h := &host{stop: make(chan struct{}), start: monotonic()}
	go func() {
		<-h.stop
		nl.Close()
	}()
	for {
		nc, err := nl.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go h.serve(nc.(*net.UnixConn))
	}
}

func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot fail: the clock exists and ts is valid
	}
	return uint64(ts.Nano())
}
