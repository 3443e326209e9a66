// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net"

	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestHostNet checks that destinations of --host-net are reached over the host's stack,
// and all others over the run's own.
func TestHostNet(t *testing.T) {
	s := kit.NewSite(t)
	port := kit.Host.EchoTCP(t, "127.0.0.1:0")
	kit.Host.EchoTCP(t, fmt.Sprintf("[::1]:%d", port))
	kit.Host.EchoUDP(t, fmt.Sprintf("127.0.0.1:%d", port))
	far := s.Server.EchoTCP(t, kit.ServerAddr+":0")
	s.Server.EchoUDP(t, fmt.Sprintf("%s:%d", kit.ServerAddr, far))
	closed := kit.Host.Listen(t, "127.0.0.1:0")
	nobody := closed.Addr().(*net.TCPAddr).Port
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	before := kit.Take(t, s.Server)
	script := kit.TestData("hostnet.py")
	r := kit.Run(t, kit.Limit, kit.Lklrun("-v", "--name", kit.NewName(), "--if", s.TapIf(), "--require", "stack",
		"--host-net", fmt.Sprintf("127.0.0.0/8:%d", port), "--host-net", fmt.Sprintf("127.0.0.1:%d", nobody),
		"--host-net", fmt.Sprintf("[::1]:%d", port), "--",
		"/usr/bin/python3", script, fmt.Sprint(port), fmt.Sprint(nobody), kit.ServerAddr, fmt.Sprint(far)))
	if r.Status != 0 || r.Stdout != "all well\n" {
		t.Errorf("the target: %v", r)
	}
	for _, want := range []string{
		fmt.Sprintf("sockets connected to 127.0.0.1:%d over the host's stack (--host-net)", port),
		fmt.Sprintf("1 socket connected to [::1]:%d over the host's stack (--host-net)", port),
		"sockets on the host's stack",
	} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("the account has no %q:\n%s", want, r.Stderr)
		}
	}
	before.Same()
}

// TestHostNetRequire checks a program whose connections all used the host: they do not
// violate --require, but they do not count as use of the stack either.
func TestHostNetRequire(t *testing.T) {
	s := kit.NewSite(t)
	port := kit.Host.EchoTCP(t, "127.0.0.1:0")
	r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "--require", "stack", "--host-net", "127.0.0.1", "--",
		kit.Probe(), "dial", fmt.Sprintf("127.0.0.1:%d", port)))
	if want := "--require stack: the program used no socket of the stack, but 1 socket of the host (--host-net)"; r.Status != 123 || !strings.Contains(r.Stderr, want) {
		t.Errorf("%v\nwant 123 and %q", r, want)
	}
	s.Web(kit.Nginx{})
	r = kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.TapIf(), "--require", "stack", "--host-net", "127.0.0.1", "--",
		"sh", "-c", fmt.Sprintf("%s dial 127.0.0.1:%d && curl -sS %s/hello", kit.Probe(), port, kit.ServerURL)))
	if r.Status != 0 || !strings.Contains(r.Stdout, "hello\n") {
		t.Errorf("beside the stack: %v", r)
	}
}

// TestHostNetUser checks an ordinary user, for whom only a helper process can reach the
// host's network namespace. If all processes are killed, the helper must leave nothing
// behind.
func TestHostNetUser(t *testing.T) {
	s := kit.NewSite(t)
	port := kit.Host.EchoTCP(t, "127.0.0.1:0")
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	kit.Host.Run(t, "chown", fmt.Sprint(kit.OrdinaryUID), dir)
	before := kit.Take(t, s.Server)
	dial := []string{"/usr/bin/python3", "-c", fmt.Sprintf(`
import socket, sys, time
s = socket.create_connection(("127.0.0.1", %d)); s.sendall(b"x"); print(s.recv(1).decode(), flush=True)
while len(sys.argv) > 1: time.sleep(1)`, port)}
	run := func(more ...string) *exec.Cmd {
		args := append([]string{"--name", kit.NewName(), "--host-net", fmt.Sprintf("127.0.0.1:%d", port), "--"}, append(dial, more...)...)
		return kit.AsUser(exec.Command(filepath.Join(bin, "lklrun"), args...), dir)
	}
	if r := kit.Run(t, kit.Limit, run()); r.Status != 0 || r.Stdout != "x\n" {
		t.Errorf("as an ordinary user: %v", r)
	}
	before.Same()
	p := kit.Start(t, run("stay"))
	kit.WaitFor(t, "the target", kit.Limit, func() bool { out, _ := p.Output(); return out == "x\n" || !p.Running() })
	p.Signal(unix.SIGKILL)
	p.Wait(kit.Limit)
	before.Settles(kit.Limit)
}

// TestHostNetUsage checks that lklrun reports an impossible destination in one line, and
// does nothing else.
func TestHostNetUsage(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for _, word := range []string{"localhost", "10.1.2.3/8", "127.0.0.1:0", ""} {
		r := kit.Run(t, kit.Limit, kit.Lklrun("--host-net", word, "--", "true"))
		if said := kit.Lines(r.Stderr); r.Status != 2 || len(said) != 1 || !strings.Contains(said[0], "--host-net") {
			t.Errorf("%q: %v", word, r)
		}
	}
	before.Same()
}
