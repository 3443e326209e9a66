// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
)

// The process that gets the number of one killed in the middle of a call keeps its
// memory as it is.
func TestFinding02ForeignMemory(t *testing.T) {
	s := newSite(t)
	fs := testutil.NewStallFS(t)
	script := filepath.Join(testutil.Root(), "test", "testdata", "finding02.py")
	r := testutil.Run(t, limit, s.onTap("/usr/bin/python3", script, fs.Dir))
	if r.Status != 0 || r.Stdout != "untouched\n" {
		t.Errorf("%v", r)
	}
}

// buildC compiles one of testdata's programs.
func buildC(t *testing.T, name string) string {
	t.Helper()
	testutil.Need(t, "gcc")
	program := filepath.Join(testutil.Dir(t), name)
	source := filepath.Join(testutil.Root(), "test", "testdata", name+".c")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-pthread", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v\n%s", source, err, out)
	}
	return program
}

// visits counts what comes to an address of the host's, by UDP and TCP; it returns
// the port.
func visits(t *testing.T, address string, n *atomic.Int64) int {
	t.Helper()
	l := testutil.Host.Listen(t, address+":0")
	port := l.Addr().(*net.TCPAddr).Port
	var udp net.PacketConn
	testutil.Host.Do(t, func() (err error) {
		udp, err = net.ListenPacket("udp", fmt.Sprintf("%s:%d", address, port))
		return err
	})
	t.Cleanup(func() { _ = udp.Close() }) // once
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed: the test is over
			}
			n.Add(1)
			_ = c.Close() // no more is wanted of it
		}
	}()
	go func() {
		for buf := make([]byte, 100); ; n.Add(1) {
			if _, _, err := udp.ReadFrom(buf); err != nil {
				return // as above
			}
		}
	}()
	return port
}

// A socket that goes to a destination of --host-net cannot be made to go to
// another one: not by a second message, not by a family that says nothing, and not
// by an address that changes while the call is under way.
func TestFinding03HostNet(t *testing.T) {
	s := newSite(t)
	program := buildC(t, "finding03")
	for _, way := range []string{"udp", "tcp", "unspec", "mmsg", "options"} {
		t.Run(way, func(t *testing.T) {
			var good, bad atomic.Int64
			chosen, forbidden := visits(t, "127.0.0.1", &good), visits(t, "127.0.0.2", &bad)
			r := testutil.Run(t, limit, lklrun("--name", s.name(), "--if", s.tapIf(), "--host-net", fmt.Sprintf("127.0.0.1:%d", chosen), "--",
				program, way, "127.0.0.1", fmt.Sprint(chosen), "127.0.0.2", fmt.Sprint(forbidden)))
			if r.Status != 0 || r.Stdout != "done\n" {
				t.Errorf("%v", r)
			}
			if good.Load() == 0 {
				t.Error("nothing came to the chosen destination")
			}
			if n := bad.Load(); n > 0 {
				t.Errorf("%d times the host's network took the program elsewhere", n)
			}
		})
	}
}
