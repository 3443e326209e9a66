// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

// space is a program in a network namespace that it has made, with a connection to itself.
type space struct {
	pid string
	in  io.WriteCloser // a line: send one byte; the end: end the program
	p   *kit.Proc
}

func newSpace(t *testing.T, k *kit.Talker) *space {
	t.Helper()
	const program = `
import os, socket, sys
s = socket.create_server(("127.0.0.1", 7777))
c = socket.create_connection(("127.0.0.1", 7777))
a, _ = s.accept()
print(os.getpid(), flush=True)
for line in sys.stdin:
	c.sendall(b"x")
	a.recv(1)`
	cmd := k.Inside("unshare", "-n", "sh", "-ec", `ip link set lo up; exec /usr/bin/python3 -c "$0"`, program)
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	s := &space{in: in, p: kit.Start(t, cmd)}
	kit.WaitFor(t, "the connection", kit.Limit, func() bool {
		s.pid, _ = s.p.Output()
		if !s.p.Running() {
			t.Fatal(s.p.Wait(kit.Limit))
		}
		return strings.HasSuffix(s.pid, "\n")
	})
	s.pid = strings.TrimSpace(s.pid)
	return s
}

// inode returns the inode number of the space on the host.
func (s *space) inode(t *testing.T) uint64 {
	t.Helper()
	var st unix.Stat_t
	kit.Must(t, unix.Stat("/proc/"+s.pid+"/ns/net", &st))
	return st.Ino
}

// TestNetns checks that lklctl shows and changes a network namespace that a program has
// made, and reaches no other one by --netns.
func TestNetns(t *testing.T) {
	kit.Need(t, "ip", "unshare", "/usr/bin/python3")
	s := kit.NewSite(t)
	k, other := s.Talk("-q"), s.Talk("-q")
	k.Say("0") // both runs have started
	other.Say("0")
	a, b, foreign := newSpace(t, k), newSpace(t, k), newSpace(t, other)
	ctl := func(args ...string) string {
		t.Helper()
		return kit.Lklctl(t, append([]string{"-n", k.Name}, args...)...)
	}

	rows := parseJSON[[]struct {
		Instance string
		Inode    uint64
		PIDs     []int
	}](t, ctl("list", "--netns", "-o", "json"))
	if len(rows) != 2 {
		t.Fatalf("the namespaces of the run: %v", rows)
	}
	for i, want := range []*space{a, b} {
		if r := rows[i]; r.Instance != k.Name || r.Inode != want.inode(t) || fmt.Sprint(r.PIDs) != "["+want.pid+"]" {
			t.Errorf("namespace %d: %v, want that of process %s", i, r, want.pid)
		}
	}
	if out := ctl("netstat", "-a", "-t"); strings.Contains(out, ":7777") {
		t.Errorf("the run's own namespace: %s", out)
	}
	for _, in := range []*space{a, b} {
		out := ctl("netstat", "-a", "-t", "--netns", in.pid)
		if strings.Count(out, ":7777") != 3 || strings.Count(out, "("+in.pid+")") != 3 || strings.Count(out, "LISTEN") != 1 {
			t.Errorf("the sockets of process %s: %s", in.pid, out)
		}
		if n := parseJSON[numbers](t, ctl("counters", "-o", "json", "--netns", in.pid)); n["TcpActiveOpens"] != 1 || n["engine.conns_now"] != 0 {
			t.Errorf("the counters of process %s: %v", in.pid, n)
		}
		if out := ctl("addr", "--netns", in.pid); strings.Contains(out, "eth0") || !strings.Contains(out, "127.0.0.1/8") {
			t.Errorf("the addresses of process %s: %s", in.pid, out)
		}
	}
	const ttl = "net.ipv4.ip_default_ttl"
	ctl("sysctl", "--netns", a.pid, "-w", ttl+"=77")
	for _, c := range []struct {
		want  string
		flags []string
	}{{"77", []string{"--netns", a.pid}}, {"64", []string{"--netns", b.pid}}, {"64", nil}} {
		if out := ctl(append([]string{"sysctl", ttl}, c.flags...)...); out != ttl+" = "+c.want+"\n" {
			t.Errorf("%v: %s", c.flags, out)
		}
	}

	c := kit.Start(t, exec.Command(kit.Bin("lklctl"), "-n", k.Name, "capture", "--netns", a.pid, "-c", "1", "tcp port 7777"))
	kit.WaitFor(t, "the packet", kit.Limit, func() bool { _, err := a.in.Write([]byte("\n")); kit.Must(t, err); return !c.Running() })
	if r := c.Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stdout, " lo ") || !strings.Contains(r.Stdout, "7777") {
		t.Errorf("capture: %v", r)
	}

	self := fmt.Sprint(os.Getpid())
	for _, bad := range [][2]string{
		{self, "has made no such namespace"}, // the host's
		{foreign.pid, "has made no such namespace"},
		{"/etc/passwd", "is not a network namespace"},
		{"/proc/self/ns/mnt", "is not a network namespace"},
		{"absent", "no such file"},
		{"0", "no such file"},
	} {
		k.Refused(2, bad[1], "netstat", "--netns", bad[0])
	}
	pre := s.Talk("-q", "--engine", "preload")
	pre.Say("0")
	pre.Refused(2, "they need --engine supervise", "netstat", "--netns", a.pid)
	k.Refused(2, "conflicts with --device", "netstat", "--netns", a.pid, "--device", "ssh:x")

	ctl("kill", "--netns", a.pid, "dport", "=", ":7777")
	if out := ctl("netstat", "-t", "--netns", a.pid); strings.Contains(out, "ESTAB") {
		t.Errorf("after kill: %s", out)
	}
	if out := ctl("netstat", "-t", "--netns", b.pid); strings.Count(out, "ESTAB") != 2 {
		t.Errorf("after kill in another namespace: %s", out)
	}

	// A connection that has chosen a namespace never reaches another one after its end.
	ctx, cancel := context.WithTimeout(t.Context(), kit.Limit)
	defer cancel()
	conn, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", k.Name, "ctl.sock"))
	kit.Must(t, err)
	defer conn.Close()
	_, err = conn.Netns(ctx, b.inode(t))
	kit.Must(t, err)
	kit.Must(t, b.in.Close())
	kit.WaitFor(t, "the end of the namespace", kit.Limit, func() bool {
		text, err := conn.ReadFile(ctx, "/proc/net/dev")
		if strings.Contains(string(text), "eth0") {
			t.Fatalf("the run's own devices: %s", text)
		}
		return errors.Is(err, syscall.ENONET)
	})
	if _, err := conn.Netns(ctx, foreign.inode(t)); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("another run's namespace: %v", err)
	}
	if _, err := conn.ReadFile(ctx, "/proc/net/dev"); !errors.Is(err, syscall.ENONET) {
		t.Errorf("after a refusal: %v", err)
	}
}
