// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

const limit = 20 * time.Second

func TestEndOf(t *testing.T) {
	for ws, want := range map[syscall.WaitStatus]exit.End{
		0:        {},
		7 << 8:   {Status: 7},
		255 << 8: {Status: 255},
		2:        {Signal: unix.SIGINT},
		11 | 128: {Signal: unix.SIGSEGV}, // the wait status also says that there is a core dump
		9:        {Status: 137},
	} {
		if got := exit.FromStatus(ws); got != want {
			t.Errorf("wait status %#x: %+v, want %+v", uint32(ws), got, want)
		}
	}
}

// exitHelper makes a copy of the test binary end as an End describes.
const exitHelper = "LKLRUN_TEST_EXIT_SIGNAL"

func init() {
	var n int
	if _, err := fmt.Sscan(os.Getenv(exitHelper), &n); err == nil {
		exit.End{Signal: syscall.Signal(n)}.Exit()
	}
}

// If a process ends by a signal, its parent sees that signal, whatever the Go
// runtime does with it.
func TestDieBy(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGSEGV, unix.SIGPIPE, unix.SIGUSR1, unix.SIGABRT, unix.SIGTERM} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", exitHelper, sig))
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		ws := exit.Sys().(syscall.WaitStatus)
		if !ws.Signaled() || ws.Signal() != sig || ws.CoreDump() {
			t.Errorf("%v: %v", sig, exit)
		}
	}
}

// The user can fix refusals of the stack, but not its failures.
func TestRefused(t *testing.T) {
	setting := func(err error) error { return &stacknet.SysctlError{Key: "a.b", Value: "1", Write: true, Err: err} }
	for err, want := range map[error]bool{
		setting(&fs.PathError{Op: stackconn.OpOpen, Err: unix.ENOENT}): true,
		setting(unix.EINVAL):              true,
		fmt.Errorf("way: %w", unix.EPERM): true,
		setting(unix.EIO):                 false, // a dead kernel returns this error
		setting(unix.ENOMEM):              false,
		setting(stackconn.ErrClosed):      false,
		context.DeadlineExceeded:          false,
	} {
		var r *exit.UsageError
		if got := refused(err); errors.As(got, &r) != want || got.Error() != err.Error() {
			t.Errorf("%v: %v", err, got)
		}
	}
}
