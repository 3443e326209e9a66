// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

// client creates sockets in a stack, like a program.
type client struct {
	t *testing.T
	c *stackconn.Conn
}

func (c client) must(n int64, err error) int {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	return int(n)
}

func (c client) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func (c client) call(nr uint32, args ...any) int {
	c.t.Helper()
	return c.must(c.c.Syscall(c.ctx(), stackconn.Call{Nr: nr, Args: args, Wait: unix.EPOLLIN | unix.EPOLLOUT, Timeout: 5 * time.Second}))
}

// inet4 builds a struct sockaddr_in.
func inet4(ap string) *stackconn.Buffer {
	a := netip.MustParseAddrPort(ap)
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	copy(b[4:], a.Addr().AsSlice())
	return stackconn.In(b)
}

func (c client) listen(proto int, addr string) int {
	c.t.Helper()
	fd := c.call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, proto)
	c.call(unix.SYS_BIND, fd, inet4(addr), 16)
	c.call(unix.SYS_LISTEN, fd, 5)
	return fd
}

func (c client) connect(proto, listener int, addr string) int {
	c.t.Helper()
	s, err := c.c.Socket(c.ctx(), unix.AF_INET, unix.SOCK_STREAM, proto)
	if err != nil {
		c.t.Fatal(err)
	}
	a := netip.MustParseAddrPort(addr)
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	copy(b[4:], a.Addr().AsSlice())
	if err := s.Connect(c.ctx(), b); err != nil {
		c.t.Fatal(err)
	}
	c.call(unix.SYS_ACCEPT4, listener, nil, nil, unix.SOCK_NONBLOCK)
	c.call(unix.SYS_SENDTO, s.FD(), stackconn.In([]byte("hello")), 5, 0, nil, 0)
	return s.FD()
}

// site starts an instance with a listener, a TCP connection, an MPTCP connection of
// two subflows, and an MPTCP connection that fell back to TCP. All use lo.
func site(t *testing.T, name string) (client, *instance.Dir) {
	t.Helper()
	s, d := instanceOf(t, name)
	s.Run(t, "ip", "link", "set", "lo", "up")
	s.Run(t, "ip", "addr", "add", "127.0.1.1/8", "dev", "lo")
	s.Run(t, "ip", "mptcp", "endpoint", "add", "127.0.1.1", "dev", "lo", "subflow")
	c := client{t, s.Dial(t)}
	c.connect(0, c.listen(0, "127.0.0.1:80"), "127.0.0.1:80")
	c.connect(262, c.listen(262, "127.0.0.1:81"), "127.0.0.1:81")
	c.connect(262, c.listen(0, "127.0.0.1:82"), "127.0.0.1:82")
	return c, d
}

func TestList(t *testing.T) {
	instanceOf(t, "web")
	text := ok(t, "list")
	for _, want := range []string{"web", "4242", "host", "6.12.38", "3m12s", "eth0=tap:tap0", "curl -s http://example.com/"} {
		if !strings.Contains(text, want) {
			t.Errorf("list lacks %q:\n%s", want, text)
		}
	}
	list := decode[[]instance.Info](t, "list")
	if len(list) != 1 || list[0].Name != "web" || !list[0].Running {
		t.Errorf("list: %+v", list)
	}
	// The list contains the leftover of a killed run, but it does not count as
	// running.
	if err := os.MkdirAll("/run/lklrun/old", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll("/run/lklrun/old") }) // on a tmpfs that is removed after the tests
	if err := os.WriteFile("/run/lklrun/old/lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := ok(t, "list"); !strings.Contains(text, "leftover") {
		t.Errorf("list lacks the leftover:\n%s", text)
	}
	ok(t, "cat", "/proc/version")
	refused(t, 3, []string{"-n", "old", "cat", "/proc/version"}, `"old"`)
}

func TestChoice(t *testing.T) {
	instanceOf(t, "one")
	instanceOf(t, "two")
	refused(t, 2, []string{"cat", "/proc/version"}, "one", "two", "-n")
	ok(t, "-n", "two", "cat", "/proc/version")
	ok(t, "cat", "-n", "two", "/proc/version")
	if r := lklctl(t, "-n", "two", "netstat", "-n", "-a", "-o", "json"); r != (result{0, "[]\n", ""}) {
		t.Errorf("no sockets: %+v", r)
	}
	// The shell's completion script reports its result on standard error.
	if r := lklctl(t, "__complete", "cat", "-n", ""); r.status != 0 || !strings.Contains(r.out, "one\ntwo\n") {
		t.Errorf("completion of -n: %+v", r)
	}
}

func TestNetstat(t *testing.T) {
	c, _ := site(t, "web")
	type socket struct {
		Proto, State, Local, Remote, Family, Iface string
		RecvQ                                      int                 `json:"recv_q"`
		TCPInfo                                    *struct{ Cwnd int } `json:"tcp_info"`
	}
	count := func(args ...string) map[string]int {
		n := map[string]int{}
		for _, s := range decode[[]socket](t, append([]string{"netstat"}, args...)...) {
			n[s.Proto+" "+s.State]++
			if s.Family == "inet" && s.Iface != "lo" {
				t.Errorf("interface of %+v", s)
			}
		}
		return n
	}
	kit.WaitFor(t, "the second subflow", 10*time.Second, func() bool {
		// one TCP connection, two subflows, one fallback; each counts twice because
		// both ends are in this stack
		return count()["tcp ESTAB"] == 8
	})
	for args, want := range map[string]map[string]int{
		"":                      {"tcp LISTEN": 3, "tcp ESTAB": 8, "mptcp LISTEN": 1, "mptcp ESTAB": 3},
		"-a":                    {"tcp LISTEN": 3, "tcp ESTAB": 8, "mptcp LISTEN": 1, "mptcp ESTAB": 3},
		"-t":                    {"tcp LISTEN": 3, "tcp ESTAB": 8},
		"-tl":                   {"tcp LISTEN": 3},
		"-tc":                   {"tcp ESTAB": 8},
		"-M":                    {"mptcp LISTEN": 1, "mptcp ESTAB": 3},
		"-u":                    {},
		"-t6":                   {},
		"-4":                    {"tcp LISTEN": 3, "tcp ESTAB": 8, "mptcp LISTEN": 1, "mptcp ESTAB": 3},
		"-f inet":               {"tcp LISTEN": 3, "tcp ESTAB": 8, "mptcp LISTEN": 1, "mptcp ESTAB": 3},
		"-tl state established": {"tcp ESTAB": 8},
		"-M exclude listening":  {"mptcp ESTAB": 3},
		"sport = :80":           {"tcp LISTEN": 1, "tcp ESTAB": 1},
	} {
		got := count(strings.Fields(args)...)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("netstat %s: %v, want %v", args, got, want)
		}
	}
	text := ok(t, "netstat", "-tip")
	for _, want := range []string{"127.0.0.1:80", "0.0.0.0:*", "cwnd:", "rtt:", "    subflow     token:", "bytes_sent:5B"} {
		if !strings.Contains(text, want) {
			t.Errorf("netstat -tip lacks %q:\n%s", want, text)
		}
	}
	if r := lklctl(t, "netstat", "-u", "--fail-empty"); r.status != 1 || r.out != "" || !strings.Contains(r.errors, `"web" has no matching sockets`) {
		t.Errorf("no sockets: %+v", r)
	}
	refused(t, 2, []string{"netstat", "dev", "eth7"}, `dev "eth7": the stack has no such interface`, "lo")
	if r := lklctl(t, "netstat", "dport = :9"); r.status != 0 || r.out != "" {
		t.Errorf("nothing matches: %+v", r)
	}
	type summaryRow struct {
		Proto  string
		Total  int
		IPv4   int `json:"inet"`
		IPv6   int `json:"inet6"`
		States map[string]int
	}
	for _, row := range decode[[]summaryRow](t, "ss", "-s") {
		if row.Proto == "tcp" && (row.Total != 11 || row.IPv4 != 11 || row.States["ESTAB"] != 8) {
			t.Errorf("netstat -s: %+v", row)
		}
	}
	c.call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0)
	c.call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0x0300)
	text = ok(t, "netstat", "-x0", "-f", "netlink", "-em")
	for _, want := range []string{"packet ", "unix ", "netlink ", "rtnl:kernel", "type:raw", "rcvbuf:"} {
		if !strings.Contains(text, want) {
			t.Errorf("netstat -x0 -f netlink lacks %q:\n%s", want, text)
		}
	}
}

func TestMPTCP(t *testing.T) {
	site(t, "web")
	type subflow struct {
		Local, Remote, State, Iface string
		Backup                      bool
		TCPInfo                     struct {
			RTT  int `json:"rtt_us"`
			Sent int `json:"bytes_sent"`
		} `json:"tcp_info"`
	}
	type connection struct {
		Local, Remote, State string
		Fallback             bool
		Info                 struct{ Token uint32 } `json:"mptcp_info"`
		Subflows             []subflow
	}
	var two, fallen *connection
	kit.WaitFor(t, "the second subflow", 10*time.Second, func() bool {
		all := decode[[]connection](t, "mptcp")
		two, fallen = nil, nil
		for i, c := range all {
			switch c.Remote {
			case "127.0.0.1:81":
				two = &all[i]
			case "127.0.0.1:82":
				fallen = &all[i]
			}
			if c.State == "LISTEN" {
				t.Errorf("a listener: %+v", c)
			}
		}
		return two != nil && len(two.Subflows) == 2
	})
	if two.Fallback || two.Info.Token == 0 {
		t.Errorf("the connection: %+v", two)
	}
	for _, s := range two.Subflows {
		if s.Iface != "lo" || s.TCPInfo.RTT == 0 || s.State != "ESTAB" || s.Remote != "127.0.0.1:81" {
			t.Errorf("subflow: %+v", s)
		}
	}
	if fallen == nil || !fallen.Fallback {
		t.Errorf("the one without MPTCP at the peer: %+v", fallen)
	}
	text := ok(t, "mptcp")
	for _, want := range []string{"-> 127.0.0.1:81 ESTAB", "127.0.1.1:", "2 subflows", "token", "plain TCP", "RTT"} {
		if !strings.Contains(text, want) {
			t.Errorf("mptcp lacks %q:\n%s", want, text)
		}
	}
	if !strings.Contains(ok(t, "mptcp", "-a"), "LISTEN") {
		t.Error("mptcp -a lacks the listener")
	}
}

func TestNoConnection(t *testing.T) {
	instanceOf(t, "web")
	if r := lklctl(t, "mptcp", "--fail-empty"); r.status != 1 || r.out != "" || !strings.Contains(r.errors, `"web" has no MPTCP connection`) {
		t.Errorf("no connection: %+v", r)
	}
	if r := lklctl(t, "mptcp", "-o", "json"); r != (result{0, "[]\n", ""}) {
		t.Errorf("no connection: %+v", r)
	}
}

func TestSysctl(t *testing.T) {
	instanceOf(t, "web")
	const ttl = "net.ipv4.ip_default_ttl"
	if text := ok(t, "sysctl", ttl); text != ttl+" = 64\n" {
		t.Errorf("read: %q", text)
	}
	if text := ok(t, "sysctl", "-w", ttl+"=63", "net/ipv4/tcp_congestion_control=reno"); text != ttl+" = 63\nnet.ipv4.tcp_congestion_control = reno\n" {
		t.Errorf("written: %q", text)
	}
	if text := ok(t, "sysctl", "--values", "net/ipv4/ip_default_ttl"); text != "63\n" {
		t.Errorf("the value alone: %q", text)
	}
	got := decode[map[string]string](t, "sysctl", ttl, "net.ipv4.tcp_rmem")
	if len(got) != 2 || got[ttl] != "63" || len(strings.Fields(got["net.ipv4.tcp_rmem"])) != 3 {
		t.Errorf("JSON: %v", got)
	}
	if text := ok(t, "sysctl", "net.mptcp"); !strings.Contains(text, "net.mptcp.enabled = 1\n") || !strings.Contains(text, "net.mptcp.scheduler = default\n") {
		t.Errorf("a directory: %q", text)
	}
	if text := ok(t, "sysctl", "-a", "net.ipv4.tcp_[rw]mem", "default_ttl"); strings.Count(text, "\n") != 3 {
		t.Errorf("patterns: %q", text)
	}
	if r := lklctl(t, "sysctl", "-a", "no.such.thing"); r.status != 1 || !strings.Contains(r.errors, "no.such.thing") {
		t.Errorf("a pattern that matches nothing: %+v", r)
	}
	if all := decode[map[string]string](t, "sysctl", "-a"); len(all) < 300 {
		t.Errorf("-a reads %d settings", len(all))
	}
	ok(t, "sysctl", "-w", "net.ipv4.route.flush=1") // a write-only setting
	refused(t, 1, []string{"sysctl", "net.ipv4.no_such"}, "net.ipv4.no_such", "no such setting")
	refused(t, 1, []string{"sysctl", "-w", "net.ipv4.no_such=1"}, "net.ipv4.no_such=1", "no such setting")
	refused(t, 1, []string{"sysctl", "-w", ttl + "=256"}, ttl+"=256", "it takes 1 to 255")
	refused(t, 1, []string{"sysctl", "-w", "net.ipv4.tcp_congestion_control=none"}, "refused the value")
	refused(t, 2, []string{"sysctl", "-a", "[x"}, "glob")
	// If one argument is not a setting, nothing is written.
	refused(t, 2, []string{"sysctl", "-w", ttl + "=62", "rubbish"}, "rubbish")
	if text := ok(t, "sysctl", "--values", ttl); text != "63\n" {
		t.Errorf("half of a refused command was done: %q", text)
	}
}

// The flags for files of settings work.
func TestSysctlFiles(t *testing.T) {
	instanceOf(t, "web")
	const ttl, syn = "net.ipv4.ip_default_ttl", "net.ipv4.tcp_syn_retries"
	dir := t.TempDir()
	if r := lklctl(t, "sysctl", "--save", dir+"/old", ttl, syn); r.status != 0 || r.out+r.errors != "" {
		t.Fatalf("save: %+v", r)
	}
	if text := ok(t, "sysctl", "--save", "-", ttl); text != ttl+" = 64\n" {
		t.Errorf("saved to standard output: %q", text)
	}
	if err := os.WriteFile(dir+"/new", []byte("# mine\n"+ttl+"=60\n"+syn+"=5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := ok(t, "sysctl", "--load", dir+"/new", "--dry-run"); !strings.Contains(text, ttl) || !strings.Contains(text, "TO BE") {
		t.Errorf("dry run:\n%s", text)
	}
	if text := ok(t, "sysctl", "--values", ttl); text != "64\n" {
		t.Errorf("a dry run has set it to %s", text)
	}
	if text := ok(t, "sysctl", "--load", dir+"/new"); text != ttl+" = 60\n"+syn+" = 5\n" {
		t.Errorf("load: %q", text)
	}
	ok(t, "sysctl", "--load", dir+"/old")
	if r := lklctl(t, "sysctl", "--load", dir+"/old", "--dry-run"); r.status != 1 || !strings.Contains(r.errors, "nothing would change") {
		t.Errorf("back again: %+v", r)
	}
	refused(t, 1, []string{"sysctl", "-w", ttl + "=59", syn + "=500"}, syn, "1 to 127", "earlier changes undone: ")
	if text := ok(t, "sysctl", "--values", ttl); text != "64\n" {
		t.Errorf("half of it was done: %s", text)
	}
	if r := lklctl(t, "sysctl", "-e", "-w", "net.no.such=1", ttl+"=59"); r.status != 0 || r.out != ttl+" = 59\n" || !strings.Contains(r.errors, "no such setting") {
		t.Errorf("-e: %+v", r)
	}
	if r := lklctl(t, "sysctl", "-w", "net.ipv4.ip_local_reserved_ports=8,9,10"); r.status != 0 || !strings.Contains(r.errors, "the stack changed the value 8,9,10 to 8-10") {
		t.Errorf("changed by the stack: %+v", r)
	}
	if text := ok(t, "sysctl", "-r", "default_t+l$"); text != ttl+" = 59\n" {
		t.Errorf("-r: %q", text)
	}
	if r := lklctl(t, "__complete", "sysctl", "net.ipv4.ip_default"); !strings.HasPrefix(r.out, ttl+"\n") {
		t.Errorf("completion: %+v", r)
	}
}

func TestCat(t *testing.T) {
	instanceOf(t, "web")
	// The output contains only the stack's interfaces, not those of the
	// tests' namespace.
	kit.Host.Tap(t, "here0")
	if text := ok(t, "cat", "/proc/net/dev"); !strings.Contains(text, "lo:") || strings.Contains(text, "here0") {
		t.Errorf("the stack's interfaces: %q", text)
	}
	files := decode[[]struct{ Path, Content string }](t, "cat", "/proc/sys/net/ipv4/ip_forward", "/proc/version")
	if len(files) != 2 || files[0].Content != "0\n" || files[1].Path != "/proc/version" {
		t.Errorf("JSON: %+v", files)
	}
	refused(t, 1, []string{"cat", "/proc/net/none"}, "/proc/net/none", "no such file")
	refused(t, 1, []string{"cat", "/proc/net"}, "directory")
}

func TestStop(t *testing.T) {
	_, d := instanceOf(t, "web")
	instanceOf(t, "stuck")
	// This goroutine replaces lklrun: it removes the directory after the stack host
	// has ended.
	c := decode[[]instance.Info](t, "list")
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		for i := range c {
			if c[i].Name == "web" {
				if err := waitEnd(c[i].HostPID, 20*time.Second); err != nil {
					t.Error(err) // not Fatal: the test waits for stop, which waits for this goroutine
				}
			}
		}
		_ = d.Remove() // the cleanup reports the error
	}()
	if r := lklctl(t, "-n", "web", "stop"); r.status != 0 || r.out != "" || r.errors != "" {
		t.Errorf("stop: %+v", r)
	}
	if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
		t.Errorf("stop returned before the end: %v", err)
	}
	<-removed // before the cleanup does the same
	// The stack ends, but no process removes the directory.
	refused(t, 1, []string{"-n", "stuck", "stop", "--grace", "0s", "--limit", "300ms"}, `"stuck"`, "its stack has ended", "lklrun")
}

// waitEnd waits for a process's end.
func waitEnd(pid int, limit time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for end := time.Now().Add(limit); time.Until(end) > 0; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		if n == 1 || err != nil && err != unix.EINTR {
			return err
		}
	}
	return fmt.Errorf("process %d has not ended within %v", pid, limit)
}
