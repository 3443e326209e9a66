// SPDX-License-Identifier: Apache-2.0

package sockdiag_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func sockaddr(t testing.TB, ap string) []byte {
	t.Helper()
	a := netip.MustParseAddrPort(ap)
	b := make([]byte, 16)
	if a.Addr().Is6() {
		b = make([]byte, 28)
		binary.NativeEndian.PutUint16(b, unix.AF_INET6)
		copy(b[8:], a.Addr().AsSlice())
	} else {
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		copy(b[4:], a.Addr().AsSlice())
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	return b
}

const ipprotoMPTCP = 262

// listen opens a listening socket in the stack.
func listen(t testing.TB, c *stackconn.Conn, family, proto int, addr string) *stackconn.Socket {
	t.Helper()
	ctx := limit(t)
	s, err := c.Socket(ctx, family, unix.SOCK_STREAM, proto)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(ctx, sockaddr(t, addr)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Syscall(ctx, stackconn.Call{Nr: unix.SYS_LISTEN, Args: []any{s.FD(), 7}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// connect connects a socket in the stack and accepts the connection.
func connect(t testing.TB, c *stackconn.Conn, family, proto int, l *stackconn.Socket, addr string) (fd int) {
	t.Helper()
	ctx := limit(t)
	s, err := c.Socket(ctx, family, unix.SOCK_STREAM, proto)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Connect(ctx, sockaddr(t, addr)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Syscall(ctx, stackconn.Call{
		Nr: unix.SYS_ACCEPT4, Args: []any{l.FD(), nil, nil, unix.SOCK_NONBLOCK},
		Wait: unix.EPOLLIN, Timeout: 5 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	return s.FD()
}

// write sends n bytes that nobody reads.
func write(t testing.TB, c *stackconn.Conn, fd, n int) {
	t.Helper()
	if r, err := c.Syscall(limit(t), stackconn.Call{
		Nr: unix.SYS_SENDTO, Args: []any{fd, stackconn.In(make([]byte, n)), n, 0, nil, 0},
		Wait: unix.EPOLLOUT, Timeout: 5 * time.Second,
	}); err != nil || int(r) != n {
		t.Fatalf("wrote %d of %d: %v", r, n, err)
	}
}

// each runs a test in a stack of the host's kernel and in one of our library.
func each(t *testing.T, test func(t *testing.T, c *stackconn.Conn)) {
	t.Run("host", func(t *testing.T) { test(t, lklhost.OnHost(t).Conn) })
	t.Run("library", func(t *testing.T) {
		test(t, library(t))
	})
}

// library starts a stack of our library, whose only interface is lo.
func library(t *testing.T) *stackconn.Conn {
	c := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true").Boot(t).Conn
	if err := stacknet.Configure(limit(t), c, stacknet.Config{Links: []stacknet.Link{{Name: "lo"}}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPings(t *testing.T) { each(t, testPings) }

func testPings(t *testing.T, c *stackconn.Conn) {
	ctx := limit(t)
	if err := c.WriteFile(ctx, "/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647")); err != nil {
		t.Fatal(err)
	}
	ping, err := c.Socket(ctx, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	if err != nil {
		t.Fatal(err)
	}
	if err := ping.Bind(ctx, sockaddr(t, "127.0.0.1:77")); err != nil {
		t.Fatal(err)
	}
	got, err := sockdiag.Pings(ctx, c)
	if err != nil || len(got) != 1 || got[0].Local != netip.MustParseAddrPort("127.0.0.1:77") || got[0].Inode == 0 {
		t.Errorf("ping: %+v, %v", got, err)
	}
}

// Each congestion control reports its own values only.
func TestCongestionControls(t *testing.T) {
	c := library(t)
	for i, name := range []string{"bbr", "vegas", "dctcp", "cubic"} {
		if err := stacknet.SetSysctl(limit(t), c, "net.ipv4.tcp_congestion_control", name); err != nil {
			t.Fatal(err)
		}
		port := uint16(90 + i)
		server := fmt.Sprint("127.0.0.1:", port)
		fd := connect(t, c, unix.AF_INET, 0, listen(t, c, unix.AF_INET, 0, server), server)
		write(t, c, fd, 5000)
		tcp, err := sockdiag.List(limit(t), c, sockdiag.TCP)
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, s := range tcp {
			if s.Remote.Port() != port || s.Congestion != name {
				continue
			}
			seen = true
			if (s.BBR != nil) != (name == "bbr") || (s.Vegas != nil) != (name == "vegas") || (s.DCTCP != nil) != (name == "dctcp") {
				t.Errorf("%s: %+v, %+v, %+v", name, s.BBR, s.Vegas, s.DCTCP)
			}
			if s.BBR != nil && (s.BBR.PacingGain < 0.5 || s.BBR.CwndGain < 1) {
				t.Errorf("bbr: %+v", s.BBR)
			}
			if s.Memory == nil || s.Memory.Sndbuf.N == 0 || s.TCP.Options&sockdiag.OptSACK == 0 {
				t.Errorf("%s: %+v, %+v, %+v", name, s, s.Memory, s.TCP)
			}
		}
		if !seen {
			t.Errorf("no connection by %s among %+v", name, tcp)
		}
	}
}

// The file of MPTCP connections and sock_diag agree about each connection.
func TestProcConnectionsOfKernel(t *testing.T) {
	c := library(t)
	if got, err := sockdiag.ProcConnections(limit(t), c); err != nil || len(got) != 0 {
		t.Errorf("before any connection: %+v, %v", got, err)
	}
	for family, at := range map[int]string{unix.AF_INET: "127.0.0.1:80", unix.AF_INET6: "[::1]:81"} {
		l := listen(t, c, family, ipprotoMPTCP, at)
		write(t, c, connect(t, c, family, ipprotoMPTCP, l, at), 1000)
	}
	var diff string
	defer func() {
		if t.Failed() {
			t.Logf("sock_diag and file (-sock_diag +file):\n%s", diff)
		}
	}()
	kit.WaitFor(t, "the same of both", 30*time.Second, func() bool {
		told, err := sockdiag.ProcConnections(limit(t), c)
		if err != nil {
			t.Fatal(err)
		}
		all, err := sockdiag.Connections(limit(t), c)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(c sockdiag.Connection) bool { return c.State == sockdiag.Listen })
		if len(told) != 4 {
			diff = fmt.Sprintf("%d connections", len(told))
			return false
		}
		var a, b []string
		for _, k := range told {
			a = append(a, fmt.Sprint(k.Family, k.Local, k.Remote, k.State, k.Inode, k.Proc.Token, k.Proc.RemoteToken, k.Proc.Subflows.N))
		}
		for _, k := range all {
			var remote sockdiag.Value // token of the other end, which is in the same stack
			for _, o := range all {
				if o.Local == k.Remote && o.Remote == k.Local {
					remote = o.MPTCP.Token
				}
			}
			b = append(b, fmt.Sprint(k.Family, k.Local, k.Remote, k.State, k.Inode, k.MPTCP.Token, remote, len(k.Subflows)))
		}
		slices.Sort(a)
		slices.Sort(b)
		diff = cmp.Diff(b, a)
		return diff == ""
	})
}

// The list is complete if the sockets do not fit in one datagram of a dump.
func TestMany(t *testing.T) { each(t, testMany) }

func testMany(t *testing.T, c *stackconn.Conn) {
	const n = 2000
	ctx := limit(t)
	want := map[uint16]bool{}
	for i := range uint16(n) {
		s, err := c.Socket(ctx, unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			t.Fatalf("socket %d: %v", i, err)
		}
		if err := s.Bind(ctx, sockaddr(t, fmt.Sprintf("127.0.0.1:%d", 20000+i))); err != nil {
			t.Fatal(err)
		}
		want[20000+i] = true
	}
	all, err := sockdiag.List(ctx, c, sockdiag.UDP)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if !want[s.Local.Port()] {
			t.Fatalf("port %d is listed twice, or was never bound", s.Local.Port())
		}
		delete(want, s.Local.Port())
	}
	if len(want) != 0 {
		t.Errorf("%d sockets are missing", len(want))
	}
}
