// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/test/kit"
)

// inState creates an instance whose stack host is in a given state, with a
// kernel log.
func inState(t *testing.T, name string, state uint32, log string) {
	t.Helper()
	kit.Need(t)
	d, err := instance.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	if err := d.WriteState(&instance.State{Name: name, PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", d.File(instance.SocketFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // errors do not matter at the end
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c, state, log)
		}
	}()
}

// halted is the log of an instance that is ending and still answers.
const halted = "reboot: System halted\n"

// answer serves a connection like the part of a stack host that works in every
// state.
func answer(c net.Conn, state uint32, log string) {
	defer c.Close()
	for {
		f, err := ctlproto.ReadFrame(c)
		if err != nil {
			return
		}
		r := ctlproto.Frame{Type: f.Type | ctlproto.CTL_REPLY, ID: f.ID}
		switch f.Type {
		case ctlproto.CTL_HELLO:
			r.Body = ctlproto.HelloReply{Version: 1, State: state, Arch: runtime.GOARCH}.Append(nil)
		case ctlproto.CTL_LOG:
			r.Body = []byte(log)
		case ctlproto.CTL_SYSCALL:
			if state == ctlproto.CTL_STATE_ENDING && log != halted {
				return
			}
			r.Status = -5 // EIO
		default:
			r.Status = -5 // EIO
		}
		b, err := r.Append(nil)
		if err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

func TestDeadKernel(t *testing.T) {
	inState(t, "dead", ctlproto.CTL_STATE_PANICKED,
		"[    1.0] sysrq: Trigger a crash\n[    1.1] Kernel panic - not syncing: sysrq triggered crash\n[    1.2] Call Trace:\n")
	for _, args := range [][]string{{"netstat"}, {"mptcp"}, {"cat", "/proc/version"}, {"counters"}, {"sysctl", "-a"}} {
		refused(t, 1, args, `"dead"`, "(Kernel panic - not syncing: sysrq triggered crash)", "/run/lklrun/dead/log")
	}
}

func TestNotBooted(t *testing.T) {
	inState(t, "new", ctlproto.CTL_STATE_NEW, "")
	refused(t, 1, []string{"netstat"}, `"new" is starting`)
}

// An instance can end before or during a query.
func TestEnding(t *testing.T) {
	inState(t, "late", ctlproto.CTL_STATE_ENDING, "")
	for _, args := range [][]string{{"netstat"}, {"mptcp"}, {"cat", "/proc/version"}, {"counters"}, {"sysctl", "-a"}, {"sysctl", "-w", "net.ipv4.ip_forward=1"}} {
		refused(t, 1, args, `"late" is ending`)
	}
	d, err := instance.Create("later")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}()
	l, err := net.Listen("unix", d.File(instance.SocketFile))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // errors do not matter
		}
	}()
	refused(t, 1, []string{"-n", "later", "netstat"}, `"later" is ending`)
}

// Between the kernel's halt and the stack host's end, each call fails with EIO.
func TestHalted(t *testing.T) {
	inState(t, "halted", ctlproto.CTL_STATE_ENDING, halted)
	for _, args := range [][]string{{"netstat"}, {"mptcp"}, {"cat", "/proc/version"}, {"counters"}, {"sysctl", "-w", "net.ipv4.ip_forward=1"}} {
		refused(t, 1, args, `"halted" is ending`)
	}
	r := lklctl(t, "netstat", "--watch")
	if r.status != 0 || r.out != "" || r.errors != "lklctl: instance \"halted\" has ended\n" {
		t.Errorf("netstat --watch: status %d, stdout %q, stderr %q", r.status, r.out, r.errors)
	}
}

func TestNoSocket(t *testing.T) {
	kit.Need(t)
	d, err := instance.Create("early")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}()
	refused(t, 1, []string{"netstat"}, `"early" is starting`, "no control socket yet")
	// The stack host has removed its socket, and lklrun still undoes its changes.
	if err := d.WriteState(&instance.State{Name: "early", PID: os.Getpid(), HostPID: 1 << 22}); err != nil {
		t.Fatal(err)
	}
	refused(t, 1, []string{"netstat"}, `"early" is ending`, "has closed the connection")
}
