// SPDX-License-Identifier: Apache-2.0

package sockdiag_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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

// procNet reads /proc/net/tcp or a similar file: "local remote state inode" per line.
func procNet(t testing.TB, c *stackconn.Conn, path string) []string {
	t.Helper()
	b, err := c.ReadFile(limit(t), path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	sc := bufio.NewScanner(strings.NewReader(string(b)))
	sc.Scan() // the heading
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		state, err := strconv.ParseUint(f[3], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%v %v %v %s", procAddr(t, f[1]), procAddr(t, f[2]), sockdiag.State(state), f[9]))
	}
	slices.Sort(all)
	return all
}

// procAddr decodes ADDRESS:PORT of /proc/net/tcp: 32-bit words in host order.
func procAddr(t testing.TB, s string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(a, uint16(p))
}

func lines(sockets []sockdiag.Socket) []string {
	var all []string
	for _, s := range sockets {
		all = append(all, fmt.Sprintf("%v %v %v %d", s.Local, s.Remote, s.State, s.Inode))
	}
	slices.Sort(all)
	return all
}

// each runs a test in a stack of the host's kernel and in one of our library. lo is up
// and has a second address, which is an MPTCP endpoint.
func each(t *testing.T, test func(t *testing.T, c *stackconn.Conn)) {
	cfg := stacknet.Config{
		Links: []stacknet.Link{{Name: "lo", Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.1.1/8")}}},
		MPTCP: &stacknet.MPTCPLimits{Subflows: 4, AddAddrAccepted: 4},
	}
	configure := func(t *testing.T, c *stackconn.Conn) {
		if err := stacknet.Configure(limit(t), c, cfg); err != nil {
			t.Fatal(err)
		}
		n, err := stacknet.Open(limit(t), c)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		lo, ok, err := n.Link("lo")
		if err != nil || !ok {
			t.Fatalf("lo: %v, %v", ok, err)
		}
		e := stacknet.Endpoint{Addr: cfg.Links[0].Addrs[0].Addr(), Ifindex: lo.Index, Flags: stacknet.EndpointSubflow}
		if err := n.Do(stacknet.AddEndpoint(e))[0]; err != nil {
			t.Fatal(err)
		}
	}
	t.Run("host", func(t *testing.T) {
		c := lklhost.OnHost(t).Dial(t)
		configure(t, c)
		test(t, c)
	})
	t.Run("library", func(t *testing.T) {
		c := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true").Boot(t).Conn
		configure(t, c)
		test(t, c)
	})
}

func TestAgainstProcNet(t *testing.T) { each(t, testAgainstProcNet) }

func testAgainstProcNet(t *testing.T, c *stackconn.Conn) {
	l4 := listen(t, c, unix.AF_INET, 0, "127.0.0.1:80")
	l6 := listen(t, c, unix.AF_INET6, 0, "[::1]:80")
	fd := connect(t, c, unix.AF_INET, 0, l4, "127.0.0.1:80")
	connect(t, c, unix.AF_INET6, 0, l6, "[::1]:80")
	write(t, c, fd, 1000)
	udp, err := c.Socket(limit(t), unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := udp.Bind(limit(t), sockaddr(t, "127.0.0.1:53")); err != nil {
		t.Fatal(err)
	}

	tcp, err := sockdiag.List(limit(t), c, sockdiag.TCP)
	if err != nil {
		t.Fatal(err)
	}
	want := append(procNet(t, c, "/proc/net/tcp"), procNet(t, c, "/proc/net/tcp6")...)
	slices.Sort(want)
	if diff := cmp.Diff(want, lines(tcp)); diff != "" || len(tcp) != 6 {
		t.Errorf("TCP (-proc +diag):\n%s", diff)
	}
	udps, err := sockdiag.List(limit(t), c, sockdiag.UDP)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(procNet(t, c, "/proc/net/udp"), lines(udps)); diff != "" || len(udps) != 1 {
		t.Errorf("UDP (-proc +diag):\n%s", diff)
	}

	var sender, receiver *sockdiag.Socket
	for i, s := range tcp {
		if s.State == sockdiag.Established && s.Local.Addr().Is4() {
			if s.Remote.Port() == 80 {
				sender = &tcp[i]
			} else {
				receiver = &tcp[i]
			}
		}
	}
	if sender == nil || receiver == nil {
		t.Fatalf("no connection among %+v", tcp)
	}
	if receiver.RecvQ != sockdiag.Known(1000) {
		t.Errorf("receive queue: %+v", receiver.RecvQ)
	}
	i := sender.TCP
	// RFC 4898 counts the SYN as acknowledged.
	if i == nil || i.BytesSent != sockdiag.Known(1000) || i.BytesAcked != sockdiag.Known(1001) || !i.RTT.Known || i.RTT.N > 1e6 || !i.Cwnd.Known {
		t.Errorf("tcp_info of the sender: %+v", i)
	}
	if receiver.TCP.BytesRecv != sockdiag.Known(1000) || sender.Congestion == "" {
		t.Errorf("of the receiver: %+v; congestion control %q", receiver.TCP, sender.Congestion)
	}
}

func TestMPTCPTree(t *testing.T) { each(t, testMPTCPTree) }

func testMPTCPTree(t *testing.T, c *stackconn.Conn) {
	l := listen(t, c, unix.AF_INET, ipprotoMPTCP, "0.0.0.0:80")
	plain := listen(t, c, unix.AF_INET, 0, "0.0.0.0:81")
	fd := connect(t, c, unix.AF_INET, ipprotoMPTCP, l, "127.0.0.1:80")
	fallen := connect(t, c, unix.AF_INET, ipprotoMPTCP, plain, "127.0.0.1:81")
	write(t, c, fd, 10000)
	write(t, c, fallen, 100)

	var conns []sockdiag.Connection
	find := func(remote string) *sockdiag.Connection {
		for i, c := range conns {
			if c.Remote == netip.MustParseAddrPort(remote) {
				return &conns[i]
			}
		}
		return nil
	}
	// Unlike the host's kernel, the stack adds no subflows to a connection with itself.
	want := []string{"127.0.0.1", "127.0.1.1"}
	if strings.HasSuffix(t.Name(), "/library") {
		want = want[:1]
	}
	kit.WaitFor(t, "the data and all subflows", 10*time.Second, func() bool {
		var err error
		if conns, err = sockdiag.Connections(limit(t), c); err != nil {
			t.Fatal(err)
		}
		m := find("127.0.0.1:80")
		for _, o := range conns { // the accepting side is a connection too
			if o.State == sockdiag.Established && o.Local.Port() == 80 && len(o.Subflows) != len(want) {
				return false
			}
		}
		return m != nil && len(m.Subflows) == len(want) && m.MPTCP.Subflows.N == uint64(len(want)-1) && m.MPTCP.BytesAcked.N == 10000
	})
	m := find("127.0.0.1:80")
	if m.MPTCP.Token.N == 0 || m.MPTCP.Fallback || m.MPTCP.BytesSent != sockdiag.Known(10000) || m.MPTCP.Subflows != sockdiag.Known(uint64(len(want)-1)) {
		t.Errorf("mptcp_info: %+v", m.MPTCP)
	}
	var locals []string
	var sent uint64
	for _, f := range m.Subflows {
		locals = append(locals, f.Local.Addr().String())
		sent += f.TCP.BytesSent.N
		if f.Subflow == nil || f.State != sockdiag.Established {
			t.Errorf("subflow: %+v", f)
		}
		if join := f.Subflow.Flags&sockdiag.FlagJoinLocal != 0; join != (f.Local.Addr() == netip.MustParseAddr("127.0.1.1")) {
			t.Errorf("subflow from %v has flags %v", f.Local, f.Subflow.Flags.Names())
		}
	}
	slices.Sort(locals)
	if diff := cmp.Diff(want, locals); diff != "" {
		t.Errorf("subflows' addresses:\n%s", diff)
	}
	if sent < 10000 {
		t.Errorf("the subflows sent %d bytes", sent)
	}
	// The accepting side is another connection with subflows of its own.
	accepted := 0
	for _, o := range conns {
		if o.Local.Port() == 80 && o.State == sockdiag.Established {
			accepted = len(o.Subflows)
		}
		if o.State == sockdiag.Listen && len(o.Subflows) != 1 {
			t.Errorf("listener %v has %d sockets", o.Local, len(o.Subflows))
		}
	}
	if accepted != len(want) {
		t.Errorf("the accepted connection has %d subflows", accepted)
	}

	if f := find("127.0.0.1:81"); f == nil || !f.MPTCP.Fallback {
		t.Errorf("fallen back: %+v", f)
	}

	// JSON output can be read back.
	b, err := json.Marshal(conns)
	if err != nil {
		t.Fatal(err)
	}
	var back []sockdiag.Connection
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(conns, back, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("JSON (-before +after):\n%s", diff)
	}
}

func TestOtherSockets(t *testing.T) { each(t, testOtherSockets) }

func testOtherSockets(t *testing.T, c *stackconn.Conn) {
	ctx := limit(t)
	raw, err := c.Socket(ctx, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	got, err := sockdiag.List(ctx, c, sockdiag.Raw)
	if errors.Is(err, sockdiag.ErrUnsupported) {
		t.Log("this kernel has no raw_diag") // CONFIG_INET_RAW_DIAG
	} else if err != nil || len(got) != 1 || got[0].Local.Port() != unix.IPPROTO_ICMP {
		t.Errorf("raw: %+v, %v", got, err)
	}
	packet, err := c.Socket(ctx, unix.AF_PACKET, unix.SOCK_DGRAM, int(uint16(0x0300))) // ETH_P_ALL, big endian
	if err != nil {
		t.Fatal(err)
	}
	defer packet.Close()
	got, err = sockdiag.List(ctx, c, sockdiag.Packet)
	if err != nil || len(got) != 1 || got[0].Inode == 0 {
		t.Errorf("packet: %+v, %v", got, err)
	}
	u, err := c.Socket(ctx, unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := append([]byte{unix.AF_UNIX, 0, 0}, "diag"...)
	if err := u.Bind(ctx, name); err != nil {
		t.Fatal(err)
	}
	got, err = sockdiag.List(ctx, c, sockdiag.Unix)
	if err != nil || !slices.ContainsFunc(got, func(s sockdiag.Socket) bool { return s.Name == "@diag" }) {
		t.Errorf("unix: %+v, %v", got, err)
	}
	if nl, err := sockdiag.List(ctx, c, sockdiag.Netlink); err != nil || !slices.ContainsFunc(nl, func(s sockdiag.Socket) bool { return s.Name == "tcpdiag" && s.Inode != 0 }) {
		t.Errorf("netlink: %+v, %v", nl, err)
	}
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
	got, err = sockdiag.Pings(ctx, c)
	if err != nil || len(got) != 1 || got[0].Local != netip.MustParseAddrPort("127.0.0.1:77") || got[0].Inode == 0 {
		t.Errorf("ping: %+v, %v", got, err)
	}
	if _, err := sockdiag.List(ctx, c, "none"); err == nil {
		t.Error("an unknown kind was listed")
	}
}

// Each congestion control reports its own values only.
func TestCongestionControls(t *testing.T) {
	c := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true").Boot(t).Conn
	if err := stacknet.Configure(limit(t), c, stacknet.Config{Links: []stacknet.Link{{Name: "lo"}}}); err != nil {
		t.Fatal(err)
	}
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
	c := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true").Boot(t).Conn
	if err := stacknet.Configure(limit(t), c, stacknet.Config{Links: []stacknet.Link{{Name: "lo"}}}); err != nil {
		t.Fatal(err)
	}
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
