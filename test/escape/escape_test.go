// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// The goals of the attempts; see csrc/tests/escape.
const (
	escapeMark     = "lklrun-escape"
	escapeAbstract = "lklrun-escape-abstract"
	escapeTTL      = "77"
	escapeTTLPath  = "/proc/sys/net/ipv4/ip_default_ttl"
	etherTypeTest  = 0x88b5
)

// A witness is the host's side: listeners and a sniffer. It must not receive any data
// from a target.
type witness struct {
	mu        sync.Mutex
	heard     []string // the received data; each item contains the name of its attempt
	accepted  int      // connections to tcp
	tcp, udp  int      // ports
	listeners []io.Closer
}

func (w *witness) hear(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

// accept records the data that arrives on the connections to a listener.
func (w *witness) accept(l net.Listener, what string, connected func()) {
	w.listeners = append(w.listeners, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener is closed
			}
			connected()
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					w.hear("%s: %s", what, lines.Text())
				}
			}()
		}
	}()
}

// unixListener listens at a path that every user may connect to.
func (w *witness) unixListener(t *testing.T, path, what string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(path, "@") {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	w.accept(l, what, func() { w.hear("%s: a connection", what) })
	return l
}

// sniff records every packet of the host that a target may have sent: packets with the
// mark, and all packets on the wire except those that IPv6 sends automatically.
func (w *witness) sniff(t *testing.T, wire string) {
	t.Helper()
	dev, err := net.InterfaceByName(wire)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "sniffer")
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	w.listeners = append(w.listeners, f)
	go func() {
		buf := make([]byte, 65536)
		for {
			var n int
			var from unix.Sockaddr
			var err error
			if rerr := raw.Read(func(fd uintptr) bool {
				n, from, err = unix.Recvfrom(int(fd), buf, 0)
				return !errors.Is(err, unix.EAGAIN)
			}); rerr != nil || err != nil {
				return // the listener is closed
			}
			at, _ := from.(*unix.SockaddrLinklayer)
			if bytes.Contains(buf[:n], []byte(escapeMark)) || at != nil && at.Ifindex == dev.Index && !ipv6Chatter(buf[:n]) {
				w.hear("packet: %q", buf[:min(n, 120)])
			}
		}
	}()
}

// ipv6Chatter reports whether a frame is neighbour discovery or group membership of an
// idle device.
func ipv6Chatter(frame []byte) bool {
	return len(frame) > 20 && frame[12] == 0x86 && frame[13] == 0xdd && (frame[20] == unix.IPPROTO_ICMPV6 || frame[20] == 0)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// daemons are the sockets of name services on a host. Those in late appear, or
// reappear, when the target is already running.
var (
	daemons = []string{"/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/avahi-daemon/socket",
		"/run/systemd/userdb/io.systemd.Multiplexer", "/run/dbus/system_bus_socket"}
	lateDaemons = []string{"/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve.Monitor"}
)

func (w *witness) daemon(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	w.unixListener(t, path, path)
}

// An escapee is a run whose target tries to escape, with its surroundings.
type escapee struct {
	t           *testing.T
	who, engine string
	bin, dir    string
	name        string
	root        string // the parent of the run directories
	witness     *witness
	outside     *kit.Proc
	tellOutside io.WriteCloser
	link        *os.File // the other end of the run's interface
	env         []string
}

// uid returns the target's user.
func (e *escapee) uid() int {
	return map[string]int{"root": 0, "user": kit.OrdinaryUID, "as-user": kit.Nobody}[e.who]
}

// by prepares cmd to run as the user who starts lklrun, with the variables that the
// attempts need.
func (e *escapee) by(cmd *exec.Cmd) *exec.Cmd {
	if e.who == "user" {
		kit.AsUser(cmd, "")
	} else {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, e.env...)
	return cmd
}

// newEscapee sets up the wire and starts the witness, the accomplice and another run.
func newEscapee(t *testing.T, who, engine string) *escapee {
	t.Helper()
	kit.Need(t, "ip", "setcap", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	e := &escapee{t: t, who: who, engine: engine, bin: kit.PublicBin(t), dir: kit.Dir(t), witness: &witness{}}
	e.name = kit.NewName()
	e.root = "/run/lklrun"
	if who == "user" {
		e.root = fmt.Sprint("/tmp/lklrun-", kit.OrdinaryUID)
	}
	server := kit.NewNetns(t, "server")
	kit.Veth(t, kit.Host, "v0", server, "s0")
	kit.Host.Addr(t, "v0", kit.HostAddr+"/24", kit.HostAddr6+"/64")
	server.Addr(t, "s0", kit.ServerAddr+"/24", kit.ServerAddr6+"/64")
	kit.Host.Run(t, "ip", "route", "add", "default", "via", kit.ServerAddr)
	e.setTTL(escapeTTL)
	t.Cleanup(func() { e.setTTL("64") })
	e.watch(server)
	e.copies()
	e.accomplice()
	return e
}

func (e *escapee) setTTL(value string) {
	e.t.Helper()
	if err := os.WriteFile(escapeTTLPath, []byte(value), 0o644); err != nil {
		e.t.Fatal(err)
	}
}

// watch starts the witness.
func (e *escapee) watch(server *kit.Netns) {
	t, w := e.t, e.witness
	t.Helper()
	if err := os.Chmod(e.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	w.accept(tcp, "tcp", func() {
		w.mu.Lock()
		w.accepted++
		w.mu.Unlock()
	})
	udp, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	w.listeners = append(w.listeners, udp)
	go func() {
		buf := make([]byte, 65536)
		for {
			n, _, err := udp.ReadFrom(buf)
			if err != nil {
				return // the listener is closed
			}
			w.hear("udp: %q", buf[:n])
		}
	}()
	w.tcp, w.udp = tcp.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port
	w.unixListener(t, "@"+escapeAbstract, "abstract name")
	w.unixListener(t, filepath.Join(e.dir, "decoy.sock"), "path")
	for _, path := range daemons {
		w.daemon(t, path)
	}
	w.sniff(t, "v0")
	t.Cleanup(func() {
		for _, l := range w.listeners {
			_ = l.Close() // some are closed already
		}
		for _, path := range append(daemons, lateDaemons...) {
			_ = os.Remove(path) // some are removed already
		}
	})
	e.env = []string{
		fmt.Sprint("ESCAPE_TCP=", w.tcp), fmt.Sprint("ESCAPE_UDP=", w.udp), "ESCAPE_HOST4=" + kit.HostAddr, "ESCAPE_HOST6=" + kit.HostAddr6,
		"ESCAPE_LINK=v0", "ESCAPE_TAP=escape0", "ESCAPE_TTL=" + escapeTTL + "\n", "ESCAPE_NETNS=/run/netns/" + server.Name,
		"ESCAPE_ABSTRACT=" + escapeAbstract, "ESCAPE_PATH=" + filepath.Join(e.dir, "decoy.sock"), "ESCAPE_DIR=" + e.dir,
		"ESCAPE_BIN=" + e.bin, "ESCAPE_NAME=" + e.name, "ESCAPE_RUN=" + filepath.Join(e.root, e.name),
		"ESCAPE_OTHER_NAME=other", "ESCAPE_OTHER_RUN=" + filepath.Join(e.root, "other"), "ESCAPE_OUTSIDE=" + filepath.Join(e.dir, "outside.sock"),
	}
	if e.engine == "preload" {
		e.env = append(e.env, "ESCAPE_HERE=1")
	}
}

// program returns the path of a copy of the attempts' program.
func (e *escapee) program(name string) string { return filepath.Join(e.dir, name) }

// copies creates the copies of the program. Some of them gain privileges from their file.
func (e *escapee) copies() {
	built := filepath.Join(kit.Root(), "build", "csrc", "tests")
	for name, from := range map[string]string{"escape": "escape", "static": "escape-static", "setuid": "escape-static", "filecap": "escape-static"} {
		kit.Host.Run(e.t, "install", "-m", "755", filepath.Join(built, from), e.program(name))
	}
	kit.Host.Run(e.t, "chmod", "4755", e.program("setuid"))
	kit.Host.Run(e.t, "setcap", "cap_sys_admin,cap_net_raw,cap_net_admin+ep", e.program("filecap"))
	e.env = append(e.env, "ESCAPE_SETUID="+e.program("setuid"), "ESCAPE_FILECAP="+e.program("filecap"), "ESCAPE_STATIC="+e.program("static"))
}

// accomplice starts the process outside, and the other run.
func (e *escapee) accomplice() {
	t := e.t
	t.Helper()
	cmd := exec.Command(e.program("escape"), "outside")
	cmd.Env = e.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(e.uid()), Gid: uint32(e.uid())}}
	var err error
	if e.tellOutside, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	e.outside = kit.Start(t, cmd)
	kit.WaitFor(t, "the accomplice", kit.Limit, func() bool {
		out, errs := e.outside.Output()
		if !e.outside.Running() {
			t.Fatalf("the accomplice ended: %s%s", out, errs)
		}
		return strings.HasSuffix(out, "\n")
	})
	out, _ := e.outside.Output()
	e.env = append(e.env, strings.Fields(out)...)
	other := kit.Start(t, e.by(exec.Command(e.bin+"/lklrun", "-q", "--name", "other", "--", "sh", "-c", "echo $$; exec sleep 1000")))
	kit.WaitFor(t, "the other run", kit.Limit, func() bool {
		out, errs := other.Output()
		if !other.Running() {
			t.Fatalf("the other run ended: %s%s", out, errs)
		}
		return strings.HasSuffix(out, "\n")
	})
	out, _ = other.Output()
	e.env = append(e.env, "ESCAPE_OTHER_PID="+strings.TrimSpace(out))
}

// inherited returns the descriptors, from 3 on, that lklrun is started with: its
// interface, a connection to the witness, and a unix socket of the host.
func (e *escapee) inherited() []*os.File {
	t := e.t
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.link = os.NewFile(uintptr(pair[0]), "link")
	go func() {
		buf := make([]byte, 65536)
		for {
			n, err := e.link.Read(buf)
			if err != nil || n == 0 {
				return // the listener is closed
			}
			if bytes.Contains(buf[:n], []byte(escapeMark+" inherit-link")) {
				e.witness.hear("link: %q", buf[:n])
			}
		}
	}()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", e.witness.tcp))
	if err != nil {
		t.Fatal(err)
	}
	inet, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	local, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return []*os.File{os.NewFile(uintptr(pair[1]), "frames"), inet, os.NewFile(uintptr(local), "unix")}
}

// attempt makes the named attempts in a run, and returns their outcomes.
func (e *escapee) attempt(names []string) map[string]string {
	t := e.t
	t.Helper()
	args := []string{"-q", "--name", e.name, "--engine", e.engine, "--if", "fd:3,ip=10.99.0.2/24,ip6=fd99::2/64"}
	if e.who == "as-user" {
		args = append(args, "--user", fmt.Sprint(kit.Nobody, ":", kit.Nobody))
	}
	args = append(args, "--", e.program("escape"), "wait")
	cmd := e.by(exec.Command(e.bin+"/lklrun", append(args, names...)...))
	cmd.ExtraFiles = e.inherited()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := kit.Start(t, cmd)
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	kit.WaitFor(t, "the target", kit.Limit, func() bool {
		out, errs := p.Output()
		if !p.Running() {
			t.Fatalf("the run ended: %s%s", out, errs)
		}
		return strings.HasPrefix(out, "ready ") && strings.Contains(out, "\n")
	})
	for _, path := range lateDaemons {
		e.witness.daemon(t, path)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	r := p.Wait(2 * kit.Limit)
	e.link.Close()
	if kit.ShellStatus(r) != 0 {
		t.Fatalf("the run: %v", r)
	}
	got := outcomes(r.Stdout)
	if got["i386-socket"] == "SIGKILL" && !strings.Contains(r.Stderr, "a foreign architecture") {
		t.Errorf("no line says why a call of i386 is the last one: %s", r.Stderr)
	}
	return got
}

// outcomes parses lines of the form "NAME OUTCOME".
func outcomes(text string) map[string]string {
	all := map[string]string{}
	for _, line := range kit.Lines(text) {
		if name, outcome, ok := strings.Cut(line, " "); ok && name != "ready" {
			all[name] = outcome
		}
	}
	return all
}

// silent ends the accomplice and returns the witness's record.
func (e *escapee) silent() []string {
	e.t.Helper()
	_ = e.tellOutside.Close() // it may have been killed
	r := e.outside.Wait(kit.Limit)
	w := e.witness
	last := kit.Lines(r.Stdout)
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := slices.Clone(w.heard)
	// lklrun inherited one of the connections, so the accomplice does not count it.
	if want := fmt.Sprintf("memory intact, %d connections", w.accepted-1); last[len(last)-1] != want {
		heard = append(heard, fmt.Sprintf("the accomplice: %s, the witness: %s", last[len(last)-1], want))
	}
	return heard
}

// excused returns texts in the witness's record that are correct for an attempt, because
// the table allows them.
func (e *escapee) excused(name string) []string {
	words := []string{escapeMark + " " + name + "\n", escapeMark + " " + name + "\"", escapeMark + " " + name}
	return append(words, map[string][]string{
		"unix-path":        {"path: a connection"},
		"d-bus":            {"/run/dbus/system_bus_socket: a connection"},
		"nscd-outside":     {"/run/nscd/socket: a connection"},
		"ptrace-outside":   {escapeMark + " !"},
		"memory-outside":   {"memory changed"},
		"proc-mem-outside": {"memory changed"},
	}[name]...)
}

// judge compares the attempts' outcomes and the witness's record with the table.
func (e *escapee) judge(t *testing.T, got map[string]string) {
	var excused []string
	for _, s := range escapeSections {
		for _, a := range s.attempts {
			want := a.expected(e.who, e.engine)
			if slices.Contains(want, "reached") {
				excused = append(excused, e.excused(a.name)...)
			}
			t.Run(a.name, func(t *testing.T) {
				// If the kernel lacks a feature, an attempt to use it proves nothing.
				if g := got[a.name]; g != "absent" && !slices.Contains(want, g) {
					t.Errorf("%s: %q, want %s", a.tries, g, strings.Join(want, " or "))
				}
			})
		}
	}
	for _, h := range e.silent() {
		if !slices.ContainsFunc(excused, func(word string) bool { return strings.Contains(h, word) }) {
			t.Errorf("the host heard: %s", h)
		}
	}
	if ttl, err := os.ReadFile(escapeTTLPath); err != nil || strings.TrimSpace(string(ttl)) != escapeTTL {
		t.Errorf("the host's ip_default_ttl is %s (%v)", ttl, err)
	}
	noTap(t)
}

// noTap checks that the attempt to make a tap has made none of the host.
func noTap(t *testing.T) {
	t.Helper()
	if links := kit.Host.Run(t, "ip", "-br", "link"); strings.Contains(links, "escape0") {
		t.Errorf("the host has the target's tap:\n%s", links)
	}
}

// listed returns the names of the attempts for an ordinary run.
func (e *escapee) listed() []string {
	e.t.Helper()
	names := kit.Lines(kit.OK(e.t, kit.Limit, exec.Command(e.program("escape"), "list")))
	return slices.DeleteFunc(names, func(n string) bool {
		return n == "kill-lklhost" || strings.HasPrefix(n, "hostnet-") || strings.HasPrefix(n, "exchange-")
	})
}

// TestEscape checks that a run gives no access to the host's network or to other users'
// resources, except as docs/explanation/security.md says.
func TestEscape(t *testing.T) {
	for _, who := range escapeWho {
		for _, engine := range escapeEngines {
			t.Run(who+"/"+engine, func(t *testing.T) {
				e := newEscapee(t, who, engine)
				names := e.listed()
				var known []string
				for _, s := range escapeSections {
					for _, a := range s.attempts {
						known = append(known, a.name)
					}
				}
				slices.Sort(known)
				if diff := cmp.Diff(known, slices.Sorted(slices.Values(names))); diff != "" {
					t.Fatalf("the table and the program differ in the attempts (-table +program):\n%s", diff)
				}
				e.judge(t, e.attempt(names))
			})
		}
	}
}

// withoutNamespaces are the outcomes that differ if no namespace can be created. Then
// only the filter separates the target from the host's network.
var withoutNamespaces = map[string]string{
	"netlink-usersock": "EPROTONOSUPPORT", "netlink-others": "EPROTONOSUPPORT",
	"unix-abstract": "reached", "unshare-user-net": "ENOSPC", "clone3-namespaces": "ENOSPC",
	"setns-new-user": "ENOSPC", "exec-foreign": "ENOSPC",
	"ptrace-zygote": "ECONNREFUSED|EPERM", // like the target, the zygote is in the run
}

// withoutMirror are the outcomes that differ with supervise and trace, because the mirror
// of packet sockets requires a namespace.
var withoutMirror = map[string]string{"packet-raw": "EAFNOSUPPORT", "packet-dgram": "EAFNOSUPPORT", "bare-packet": "EAFNOSUPPORT", "setns-maker": "ENOENT"}

// TestEscapeWithoutNamespaces checks that no socket, system call or namespace leads out
// of a run that has only the filter.
func TestEscapeWithoutNamespaces(t *testing.T) {
	for _, engine := range escapeEngines {
		t.Run(engine, func(t *testing.T) { escapeWithoutNamespaces(t, engine) })
	}
}

// attemptWithoutNamespaces makes the named attempts in a run that can create no
// namespaces, and returns their outcomes.
func (e *escapee) attemptWithoutNamespaces(names []string) map[string]string {
	e.t.Helper()
	cmd := e.withoutNamespaces(append([]string{"--if", "fd:3,ip=10.99.0.2/24,ip6=fd99::2/64", "--", e.program("escape")}, names...)...)
	cmd.ExtraFiles = e.inherited()
	defer e.link.Close()
	return outcomes(kit.OK(e.t, kit.Limit, cmd))
}

// withoutNamespaces returns lklrun of an ordinary user who can create no namespaces.
func (e *escapee) withoutNamespaces(args ...string) *exec.Cmd {
	e.t.Helper()
	kit.Need(e.t, "setpriv")
	kit.Must(e.t, os.Remove("/run/nscd/socket")) // otherwise setpriv would connect to it, and wait
	args = append([]string{"-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=1 --regid=1 --clear-groups "$@"`,
		"sh", e.bin + "/lklrun", "-q", "--engine", e.engine, "--name", e.name}, args...)
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), e.env...)
	cmd.SysProcAttr = kit.InUserNamespace()
	return cmd
}

func escapeWithoutNamespaces(t *testing.T, engine string) {
	e := newEscapee(t, "user", engine)
	var names []string
	var tried []escapeAttempt
	for _, s := range escapeSections {
		for _, a := range s.attempts {
			ours := s.title == "Sockets" || s.title == "System calls" && !strings.HasPrefix(a.name, "exec-set-") && a.name != "exec-file-capabilities" ||
				s.title == "Processes" && !strings.HasSuffix(a.name, "-outside") ||
				strings.HasPrefix(a.name, "setns-") || strings.HasPrefix(a.name, "unshare-") || a.name == "clone3-namespaces"
			if ours && a.name != "setns-mounts" && a.name != "proc-fd-open" {
				names, tried = append(names, a.name), append(tried, a)
			}
		}
	}
	got := e.attemptWithoutNamespaces(names)
	for _, a := range tried {
		want := a.expected("user", engine)
		if other, ok := withoutNamespaces[a.name]; ok {
			want = strings.Split(other, "|")
		} else if other, ok := withoutMirror[a.name]; ok && engine != "preload" {
			want = strings.Split(other, "|")
		} else if st, err := os.Stat("/dev/net/tun"); a.name == "tap" && (err != nil || st.Mode()&0o006 != 0o006) {
			want = []string{"EACCES"} // the run has no mounts that replace the host's file
		}
		if g := got[a.name]; g != "absent" && !slices.Contains(want, g) {
			t.Errorf("%s: %q, want %s", a.name, g, strings.Join(want, " or "))
		}
	}
	for _, h := range e.silent() {
		if !strings.Contains(h, "unix-") && !strings.Contains(h, ": a connection") {
			t.Errorf("the host heard: %s", h)
		}
	}
	noTap(t)
}

// TestEscapeWitness checks that the witness notices a process that is not in a run.
// Without this, its silence would mean nothing.
func TestEscapeWitness(t *testing.T) {
	e := newEscapee(t, "user", "supervise")
	e.inherited()
	names := []string{"inet-stream", "inet6-stream", "inet-dgram", "inet6-dgram", "bare-inet-stream", "inet-mptcp", "netlink-route",
		"netlink-sock-diag", "unix-abstract", "unix-path", "ptrace-outside", "memory-outside", "pidfd-getfd-outside", "receive-inet",
		"receive-netlink", "nscd", "avahi", "exec-foreign"}
	cmd := kit.AsUser(exec.Command(e.program("escape"), names...), "")
	cmd.Env = append(cmd.Env, e.env...)
	got := outcomes(kit.OK(t, kit.Limit, cmd))
	for _, n := range names {
		if got[n] != "reached" && (n != "exec-foreign" || got[n] != "absent") {
			t.Errorf("%s: %q", n, got[n])
		}
	}
	cmd = exec.Command(e.program("escape"), "packet-raw")
	cmd.Env = append(os.Environ(), e.env...)
	kit.OK(t, kit.Limit, cmd)
	heard := strings.Join(e.silent(), "\n")
	for _, want := range []string{"tcp: " + escapeMark + " inet-stream", "tcp: " + escapeMark + " inet6-stream", "udp: \"" + escapeMark + " inet-dgram",
		"abstract name: " + escapeMark, "path: " + escapeMark, "tcp: " + escapeMark + " !", "tcp: " + escapeMark + " pidfd-getfd-outside",
		"tcp: " + escapeMark + " receive-inet", "/run/nscd/socket: " + escapeMark, "memory changed", "\\x88\\xb5" + escapeMark} {
		if !strings.Contains(heard, want) {
			t.Errorf("the witness has not heard %q", want)
		}
	}
	if t.Failed() {
		t.Log(heard)
	}
}

// TestEscapeHostNet checks that a target with --host-net reaches only the chosen port
// of the host.
func TestEscapeHostNet(t *testing.T) {
	for _, who := range escapeWho {
		t.Run(who, func(t *testing.T) {
			e := newEscapee(t, who, "supervise")
			e.inherited()
			l := kit.Host.Listen(t, "127.0.0.1:0")
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return // the listener is closed
					}
					c.Close()
				}
			}()
			port := l.Addr().(*net.TCPAddr).Port
			// A socket must exist at this port: without it, errors would come back and
			// end the attempts.
			sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			args := []string{"-q", "--name", e.name, "--host-net", fmt.Sprintf("127.0.0.1:%d", port)}
			if who == "as-user" {
				args = append(args, "--user", fmt.Sprint(kit.Nobody, ":", kit.Nobody))
			}
			args = append(args, "--", e.program("escape"))
			for _, a := range escapeHostNet.attempts {
				args = append(args, a.name)
			}
			cmd := e.by(exec.Command(e.bin+"/lklrun", args...))
			cmd.Env = append(cmd.Env, fmt.Sprint("ESCAPE_CHOSEN=", port))
			got := outcomes(kit.OK(t, kit.Limit, cmd))
			for _, a := range escapeHostNet.attempts {
				if got[a.name] != a.want {
					t.Errorf("%s: %q, want %s", a.name, got[a.name], a.want)
				}
			}
			heard := e.silent()
			if len(heard) > 0 {
				t.Errorf("the host heard %d times, first: %s", len(heard), heard[0])
			}
		})
	}
}

// TestEscapeKill checks a target that kills its supervisor. The target must end, and so
// must a daemon that it has started. No process continues with another network.
func TestEscapeKill(t *testing.T) {
	for _, who := range []string{"root", "user"} {
		for _, engine := range escapeEngines {
			t.Run(who+"/"+engine, func(t *testing.T) {
				e := newEscapee(t, who, engine)
				cmd := e.by(exec.Command(e.bin+"/lklrun", "-q", "--name", e.name, "--engine", engine, "--if", "fd:3,ip=10.99.0.2/24", "--", e.program("static"), "kill-lklhost"))
				if engine == "preload" {
					cmd.Args[len(cmd.Args)-2] = e.program("escape")
				}
				cmd.ExtraFiles = e.inherited()
				r := kit.Run(t, kit.Limit, cmd)
				for _, f := range append(cmd.ExtraFiles, e.link) {
					f.Close()
				}
				if r.Status != 125 && r.Signal == 0 {
					t.Errorf("the run: %v", r)
				}
				kit.WaitFor(t, "the end of the target's processes", kit.Limit, func() bool {
					return len(e.processes()) == 1 // the accomplice
				})
				for _, h := range e.silent() {
					t.Errorf("the host heard: %s", h)
				}
			})
		}
	}
}

// processes returns the processes that execute a copy of the attempts' program.
func (e *escapee) processes() []string {
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		e.t.Fatal(err)
	}
	return slices.DeleteFunc(exes, func(exe string) bool {
		to, err := os.Readlink(exe)
		return err != nil || filepath.Dir(to) != e.dir
	})
}

// TestEscapeOtherUser checks that another user of the machine cannot access a run.
func TestEscapeOtherUser(t *testing.T) {
	e := newEscapee(t, "user", "supervise")
	e.inherited()
	// The run under attack is "other", which belongs to an ordinary user.
	run := filepath.Join(e.root, "other")
	var list []struct {
		Name   string `json:"name"`
		Pid    int    `json:"pid"`
		Host   int    `json:"host_pid"`
		Target int    `json:"target_pid"`
	}
	out := kit.OK(t, kit.Limit, kit.AsUser(exec.Command(e.bin+"/lklctl", "-o", "json", "list"), ""))
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for _, a := range escapeOtherUser.attempts {
		names = append(names, a.name)
	}
	cmd := exec.Command(e.program("escape"), names...)
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Env = append(cmd.Env, "ESCAPE_RUN="+run, fmt.Sprint("ESCAPE_LKLHOST=", list[0].Host), fmt.Sprint("ESCAPE_TARGET=", list[0].Target))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: kit.Nobody, Gid: kit.Nobody}}
	cmd.Dir = "/"
	got := outcomes(kit.OK(t, kit.Limit, cmd))
	for _, a := range escapeOtherUser.attempts {
		t.Run(a.name, func(t *testing.T) {
			if g := got[a.name]; g != a.want {
				t.Errorf("%s: %q, want %s", a.tries, g, a.want)
			}
		})
	}
	for _, h := range e.silent() {
		t.Errorf("the host heard: %s", h)
	}
}
