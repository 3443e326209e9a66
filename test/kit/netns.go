// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Netns is a named network namespace, as made by ip-netns(8). The zero value is the
// tests' own namespace, their "host".
type Netns struct {
	Name string
}

// Host is the tests' own namespace.
var Host = &Netns{}

var netnsCount atomic.Int32

// NewNetns makes a namespace with lo up, which ends with the test.
func NewNetns(t testing.TB, purpose string) *Netns {
	t.Helper()
	n := &Netns{Name: fmt.Sprintf("%s-%d", purpose, netnsCount.Add(1))}
	Host.Run(t, "ip", "netns", "add", n.Name)
	t.Cleanup(func() {
		pids, _ := exec.Command("ip", "netns", "pids", n.Name).Output() // no output if there are none
		for _, pid := range strings.Fields(string(pids)) {
			_ = exec.Command("kill", "-9", pid).Run() // it may have ended already
		}
		Host.Run(t, "ip", "netns", "del", n.Name)
	})
	n.Run(t, "ip", "link", "set", "lo", "up")
	return n
}

// Args returns the command line that runs args in the namespace.
func (n *Netns) Args(args ...string) []string {
	if n.Name == "" {
		return args
	}
	return append([]string{"ip", "netns", "exec", n.Name}, args...)
}

// Command returns a command in the namespace. It is not started.
func (n *Netns) Command(args ...string) *exec.Cmd {
	args = n.Args(args...)
	return exec.Command(args[0], args[1:]...)
}

// Run runs a command in the namespace and returns its output; a failure ends
// the test.
func (n *Netns) Run(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	full := n.Args(args...)
	out, err := exec.CommandContext(ctx, full[0], full[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(full, " "), err, out)
	}
	return string(out)
}

// Do calls f on a thread in the namespace. Sockets that f opens always belong to the
// namespace.
func (n *Netns) Do(t testing.TB, f func() error) {
	t.Helper()
	if err := n.Enter(f); err != nil {
		t.Fatal(err)
	}
}

// Enter is like Do, for goroutines that must not end the test.
func (n *Netns) Enter(f func() error) error {
	if n.Name == "" {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, and no goroutine reuses
		// it in the wrong namespace.
		runtime.LockOSThread()
		if err := n.Join(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Join moves the calling thread, which must be locked, into the namespace.
func (n *Netns) Join() error {
	if n.Name == "" {
		return nil
	}
	fd, err := os.Open("/run/netns/" + n.Name)
	if err != nil {
		return err
	}
	defer fd.Close()
	if err := unix.Setns(int(fd.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering namespace %s: %w", n.Name, err)
	}
	return nil
}

// Listen listens in the namespace; the listener is closed with the test.
func (n *Netns) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	var l net.Listener
	n.Do(t, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	t.Cleanup(func() { _ = l.Close() }) // it may be closed already
	return l
}

// Veth connects two namespaces by a pair of devices, both up.
func Veth(t testing.TB, a *Netns, devA string, b *Netns, devB string) {
	t.Helper()
	peer := []string{"ip", "link", "add", devA, "type", "veth", "peer", "name", devB}
	if b.Name != "" {
		peer = append(peer, "netns", b.Name)
	} else {
		peer = append(peer, "netns", fmt.Sprint(os.Getpid()))
	}
	a.Run(t, peer...)
	a.Run(t, "ip", "link", "set", devA, "up")
	b.Run(t, "ip", "link", "set", devB, "up")
	if a.Name == "" { // otherwise the device is removed with its namespace
		t.Cleanup(func() { _ = exec.Command("ip", "link", "del", devA).Run() }) // removed with b
	}
}

// Tap makes a tap device and sets it up; it has no carrier until a program opens it.
func (n *Netns) Tap(t testing.TB, dev string) {
	t.Helper()
	n.Run(t, "ip", "tuntap", "add", dev, "mode", "tap")
	n.Run(t, "ip", "link", "set", dev, "up")
	if n.Name == "" {
		t.Cleanup(func() { n.Run(t, "ip", "link", "del", dev) })
	}
}

// Bridge makes a bridge of devices of the namespace and sets it up.
func (n *Netns) Bridge(t testing.TB, bridge string, devs ...string) {
	t.Helper()
	n.Run(t, "ip", "link", "add", bridge, "type", "bridge")
	if n.Name == "" {
		t.Cleanup(func() { n.Run(t, "ip", "link", "del", bridge) })
	}
	for _, d := range devs {
		n.Run(t, "ip", "link", "set", d, "master", bridge)
	}
	n.Run(t, "ip", "link", "set", bridge, "up")
}

// Addr adds addresses to a device. IPv6 addresses are usable at once.
func (n *Netns) Addr(t testing.TB, dev string, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		args := []string{"ip", "addr", "add", a, "dev", dev}
		if strings.Contains(a, ":") {
			args = append(args, "nodad")
		}
		n.Run(t, args...)
	}
}

// Rate limits the rate of outgoing packets of a device, in tc's notation ("100mbit").
func (n *Netns) Rate(t testing.TB, dev, rate string) {
	t.Helper()
	n.Run(t, "tc", "qdisc", "add", "dev", dev, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
}
