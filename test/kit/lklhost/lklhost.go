// SPDX-License-Identifier: Apache-2.0

// Package lklhost starts bin/lklhost, the stack host, directly. It is for tests of the
// control protocol. Tests of the user interface start bin/lklrun instead.
package lklhost

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

// Host is a running lklhost after the greeting; its stack is not booted.
type Host struct {
	Conn   *stackconn.Conn // the connection that started it
	Socket string          // its control socket
	PID    int
	Proc   *kit.Proc
	*kit.Netns
}

// Library returns the path of the stack library, or skips the test if it is not built.
func Library(t testing.TB) string {
	t.Helper()
	path := filepath.Join(kit.Root(), "build", "stack", "liblkl.so")
	if _, err := os.Stat(path); err != nil {
		kit.Need(t, path) // fails if nothing may be skipped
	}
	return path
}

// OnHost starts a stack of the host's own kernel, in a new namespace. No lklrun answers
// questions of lklctl.
func OnHost(t testing.TB) *Host {
	t.Helper()
	return OnHostIn(t, kit.Dir(t))
}

// OnHostIn is like OnHost, with a given run directory.
func OnHostIn(t testing.TB, dir string) *Host {
	t.Helper()
	h := startIn(t, kit.NewNetns(t, "stack"), dir, "", "sleep", "infinity").Boot(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := h.Conn.Go(ctx, ctlproto.Go{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for q := range h.Conn.Questions() {
			_ = h.Conn.Answer(context.Background(), q.Serial, -int32(unix.EOPNOTSUPP), nil) // lklhost may end meanwhile
		}
	}()
	return h
}

// Start starts lklhost in a namespace with a target and a stack library. An empty library
// means the host's own kernel. All processes end with the test.
func Start(t testing.TB, n *kit.Netns, library string, target ...string) *Host {
	t.Helper()
	return startIn(t, n, kit.Dir(t), library, target...)
}

func startIn(t testing.TB, n *kit.Netns, dir, library string, target ...string) *Host {
	t.Helper()
	kit.Need(t, kit.Bin("lklhost"))
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	nc, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{kit.Bin("lklhost"), "--run", dir, "--name", "test"}
	if library == "" {
		args = append(args, "--abi", "host")
	} else {
		args = append(args, "--stack", library)
	}
	cmd := n.Command(append(append(args, "--"), target...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	p := kit.Start(t, cmd)
	theirs.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := stackconn.New(ctx, nc.(*net.UnixConn))
	if err != nil {
		out, errs := p.Output()
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	t.Cleanup(func() { c.Close() })
	return &Host{Conn: c, Socket: filepath.Join(dir, "ctl.sock"), PID: int(c.Hello().HostPID), Proc: p, Netns: n}
}

// Boot boots the stack.
func (h *Host) Boot(t testing.TB) *Host {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	release, err := h.Conn.Boot(ctx, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	if release == "" {
		t.Fatal("the stack has no release")
	}
	return h
}

// Dial makes another connection, which ends with the test.
func (h *Host) Dial(t testing.TB) *stackconn.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := stackconn.Dial(ctx, h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
