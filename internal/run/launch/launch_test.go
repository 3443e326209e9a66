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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { testutil.Main(m, nil) }

const limit = 20 * time.Second

func TestEndOf(t *testing.T) {
	for ws, want := range map[syscall.WaitStatus]exit.End{
		0:        {},
		7 << 8:   {Status: 7},
		255 << 8: {Status: 255},
		2:        {Signal: unix.SIGINT},
		11 | 128: {Signal: unix.SIGSEGV}, // with a core dump
		9:        {Status: 137},
	} {
		if got := exit.Of(ws); got != want {
			t.Errorf("wait status %#x: %+v, want %+v", uint32(ws), got, want)
		}
	}
}

// exitHelper makes a copy of the test binary end as End says.
const exitHelper = "LKLRUN_TEST_EXIT_SIGNAL"

func init() {
	var n int
	if _, err := fmt.Sscan(os.Getenv(exitHelper), &n); err == nil {
		exit.End{Signal: syscall.Signal(n)}.Exit()
	}
}

// A process that ends by a signal is reported as such, whatever the Go runtime
// does with that signal.
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

func TestAccount(t *testing.T) {
	const text = "MPTcpExtMPCapableSYNACKRX 1\nMPTcpExtMPCapableACKRX 1\nloop.turns 9\n" +
		"sockets.stack 3\nsockets.refused 1\nbytes.received 100\nbytes.sent 20\ndatagrams.sent 1\n" +
		"ended.12.curl.stack 1\nended.12.curl.received 100\nended.12.curl.sent 20\nended.12.curl.fallback-peer 1\nended.12.curl.peer tcp 10.0.0.1:80 120\nproc.13.python3.11.stack 2\nproc.13.python3.11.refused 1\n"
	a, err := newAccount(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"curl(12) made 1 socket on the stack: 100 bytes received, 20 sent; with 10.0.0.1:80; connections: 1 TCP (peer without MPTCP)",
		"python3.11(13) made 2 sockets on the stack",
		"python3.11(13) was refused 1 socket that the stack has not",
		"in all 3 sockets, 100 bytes received, 20 sent; 0 datagrams received, 1 sent",
		"2 connections by MPTCP",
	}
	if diff := cmp.Diff(want, a.lines()); diff != "" {
		t.Error(diff)
	}
	if a, err = newAccount("sockets.stack 0\n"); err != nil || len(a.lines()) != 1 || a.lines()[0] != "nothing used the stack" {
		t.Error(a, err)
	}
	if a, err = newAccount(""); a != nil || err != nil {
		t.Errorf("none: %v, %v", a, err)
	}
	if a, err = newAccount("sockets.stack many\n"); a != nil || err == nil {
		t.Errorf("no number: %v, %v", a, err)
	}
}

func TestUnmet(t *testing.T) {
	const one = "sockets.stack 1\nsockets.connected 1\n"
	for _, tt := range []struct{ text, stack, mptcp string }{
		{"", "the stack host gave no account", "the stack host gave no account"},
		{"sockets.stack 0\n", "no socket came from the stack", "no socket came from the stack"},
		{"sockets.stack 1\nsockets.refused 2\n", "2 sockets that the stack has not", "2 sockets that the stack has not"},
		{"sockets.stack 1\n", "", "there was no MPTCP connection"},
		{one, "", "1 connection by TCP"},
		{one + "MPTcpExtMPCapableSYNTX 1\nMPTcpExtMPCapableFallbackSYNACK 1\n", "", "MPTCP fell back to TCP (MPCapableFallbackSYNACK 1)"},
		{one + "MPTcpExtMPCapableSYNACKRX 1\n", "", ""},
		{one + "MPTcpExtMPCapableSYNACKRX 1\nMPTcpExtInfiniteMapRx 1\n", "", "MPTCP fell back to TCP (InfiniteMapRx 1)"},
		{"sockets.stack 3\nsockets.accepted 2\nMPTcpExtMPCapableACKRX 2\n", "", ""},
		{"sockets.stack 3\nsockets.accepted 2\nMPTcpExtMPCapableACKRX 1\n", "", "1 connection by TCP"},
		// A process can choose any name.
		{one + "MPTcpExtMPCapableSYNACKRX 0\nproc.1.\nsockets.connected 0\n", "no account", "no account"},
		{one + "proc.1.x 1\nsockets.connected 0\n", "", "1 connection by TCP"},
	} {
		a, err := newAccount(tt.text)
		if err != nil {
			if tt.stack != "no account" || a.unmet(config.RequireStack) == "" {
				t.Errorf("%q: %v", tt.text, err)
			}
			continue
		}
		if got := a.unmet(""); got != "" {
			t.Errorf("%q, nothing required: %s", tt.text, got)
		}
		if got := a.unmet(config.RequireStack); got != tt.stack {
			t.Errorf("%q, stack: %q, want %q", tt.text, got, tt.stack)
		}
		if got := a.unmet(config.RequireMPTCP); got != tt.mptcp {
			t.Errorf("%q, mptcp: %q, want %q", tt.text, got, tt.mptcp)
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
		setting(unix.EIO):                 false, // the answer of a dead kernel
		setting(unix.ENOMEM):              false,
		setting(stackconn.ErrClosed):      false,
		context.DeadlineExceeded:          false,
	} {
		var r *RefusedError
		if got := refused(err); errors.As(got, &r) != want || got.Error() != err.Error() {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// Many sockets reduce the sampling rate, and a stack that does not answer is
// sampled again.
func TestNextLook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n          int
		took, want time.Duration
	}{
		{0, 0, time.Second},
		{1, 3 * time.Millisecond, 4 * time.Second},
		{1, 120 * time.Millisecond, 24 * time.Second},
		{2, 20 * time.Millisecond, 10 * time.Second},
		{3, 10 * time.Millisecond, lookEvery},
		{9, 300 * time.Millisecond, time.Minute},
		{9, lookLimit, lookMost},
	} {
		if got := nextLook(c.n, c.took); got != c.want {
			t.Errorf("look %d, after one of %v: in %v, want %v", c.n, c.took, got, c.want)
		}
	}
}
