// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/netns.py
var netnsProgram string

// TestNetworkNamespace checks that a program that makes a network namespace gets an empty
// one, from which nothing of the run's can be reached, and that the programs that sandbox
// others work in it. These also bind netlink to their number in a pid namespace.
func TestNetworkNamespace(t *testing.T) {
	kit.Need(t, "bwrap", "ip", "unshare", "/usr/bin/python3")
	kit.NewSite(t)
	bin := kit.PublicBin(t)
	for who, newNet := range map[string]string{"root": "-n", "user": "-rn"} {
		run := func(engine string, args ...string) *exec.Cmd {
			cmd := exec.Command(filepath.Join(bin, "lklrun"), append([]string{"-q", "--engine", engine, "--name", kit.NewName(), "--"}, args...)...)
			if who == "user" {
				kit.AsUser(cmd, "")
			}
			return cmd
		}
		const addr, gateway = "192.168.127.2", "192.168.127.1"
		r := kit.Run(t, kit.Limit, run("supervise", "/usr/bin/python3", "-c", netnsProgram, addr, gateway))
		if r.Status != 0 || !regexp.MustCompile(`^attempts: \d{3}\nchild: 0 child\narrived: 0\nchanged: False\n$`).MatchString(r.Stdout) {
			t.Errorf("%s: %v", who, r)
		}
		const lo = `ip -br addr; ip link set lo up; ip -br addr; ip route get ` + gateway
		const want = "lo               DOWN           \nlo               UNKNOWN        127.0.0.1/8 ::1/128 \n"
		r = kit.Run(t, kit.Limit, run("supervise", "unshare", newNet, "sh", "-c", lo))
		if r.Stdout != want || !strings.Contains(r.Stderr, "Network is unreachable") {
			t.Errorf("%s, unshare %s: %v", who, newNet, r)
		}
		for _, flags := range [][]string{{"--unshare-net"}, {"--unshare-all"}} {
			args := append([]string{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev"}, flags...)
			if out := kit.OK(t, kit.Limit, run("supervise", append(args, "ip", "-br", "addr")...)); out != want[strings.Index(want, "\n")+1:] {
				t.Errorf("%s, %v: %q", who, args, out)
			}
		}
		const bind = `import os, socket; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((os.getpid(), 0)); print(s.getsockname())`
		flags := strings.Replace(newNet, "n", "pf", 1)
		if out := kit.OK(t, kit.Limit, run("supervise", "sh", "-c", `for i in 1 2; do unshare "$0" --kill-child /usr/bin/python3 -c "$1"; done`, flags, bind)); out != "(1, 0)\n(1, 0)\n" {
			t.Errorf("%s, netlink in a pid namespace: %q", who, out)
		}
		r = kit.Run(t, kit.Limit, run("trace", "unshare", newNet, "ip", "link"))
		if r.Status == 0 || strings.Contains(r.Stdout, "lo") || !strings.Contains(r.Stderr, "the engine trace does not support them") {
			t.Errorf("%s, trace: %v", who, r)
		}
	}
}

// TestNetlinkPort checks that a client of the control socket does not get the port that the
// first process of each pid namespace asks for.
func TestNetlinkPort(t *testing.T) {
	k := kit.NewSite(t).Talk("-q")
	bind := func() {
		t.Helper()
		if got := k.Say(`[s.bind((1, 0)) or s.close() for s in [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, %d)]]`, unix.NETLINK_GENERIC); got != "[None]" {
			t.Fatalf("the port 1: %s", got)
		}
	}
	bind()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Limit)
	defer cancel()
	c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", k.Name, "ctl.sock"))
	kit.Must(t, err)
	defer c.Close()
	other, err := c.Netlink(ctx, unix.NETLINK_GENERIC)
	kit.Must(t, err)
	defer other.Close()
	bind()
}

// TestNetworkNamespacesEnd checks that a namespace ends with its last process, also if that
// has made no socket, and that its number then means another one.
func TestNetworkNamespacesEnd(t *testing.T) {
	kit.Need(t, "ip", "unshare")
	s := kit.NewSite(t)
	k := s.Talk("-q")
	k.Say("0") // the run has started
	fds := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", kit.ProcessOf(t, k, "host_pid")))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	kit.OK(t, kit.Limit, k.Inside("true")) // lklhost now knows the process that starts others
	first := fds()
	cmd := k.Inside("unshare", "-n", "sh", "-c", "ip link add stays type dummy; echo made; read line; ip -br link")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stays := kit.Start(t, cmd)
	kit.WaitFor(t, "the namespace that stays", kit.Limit, func() bool { out, _ := stays.Output(); return out == "made\n" })
	before := fds()
	const each = `ip -br link; ip link set lo up; ip link add d0 type dummy || echo there; (sleep 0; sleep 0) & wait`
	out := kit.OK(t, 4*kit.Limit, k.Inside("sh", "-c", `for i in $(seq 200); do unshare -n sh -c '`+each+`'; done | sort | uniq -c`))
	if !regexp.MustCompile(`^ *200 lo +DOWN +00:00:00:00:00:00 <LOOPBACK> *\n$`).MatchString(out) {
		t.Errorf("200 namespaces: %s", out)
	}
	kit.WaitFor(t, "as few descriptors as before", kit.Limit, func() bool { return fds() <= before })
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	if r := stays.Wait(kit.Limit); !strings.Contains(r.Stdout, "\nstays ") {
		t.Errorf("the namespace that stays: %v", r)
	}
	kit.WaitFor(t, "as few descriptors as at first", kit.Limit, func() bool { return fds() <= first })
	if r := k.End(); r.Status != 0 {
		t.Errorf("%v", r)
	}
}

// TestNetworkNamespaceHostNet checks that the destinations of --host-net are reached only from
// the run's own namespace.
func TestNetworkNamespaceHostNet(t *testing.T) {
	kit.Need(t, "unshare", "/usr/bin/python3")
	kit.NewSite(t)
	port := kit.Host.EchoTCP(t, kit.HostAddr+":0")
	program := fmt.Sprintf(`import socket
try: print(socket.create_connection((%q, %d), 10).getpeername()[1] == %[2]d)
except OSError as e: print(e.strerror)`, kit.HostAddr, port)
	cmd := kit.Lklrun("-q", "--host-net", kit.HostAddr, "--", "sh", "-c", `/usr/bin/python3 -c "$0"; unshare -n /usr/bin/python3 -c "$0"`, program)
	if out := kit.OK(t, kit.Limit, cmd); out != "True\nNetwork is unreachable\n" {
		t.Errorf("%q", out)
	}
}

// inOwnNamespaces returns lklrun with a shell script that can make network namespaces: as
// an ordinary user, in namespaces of its own.
func inOwnNamespaces(t *testing.T, bin, who string, args ...string) *exec.Cmd {
	t.Helper()
	run := append([]string{"-q", "--name", kit.NewName(), "--"}, map[string][]string{
		"root": {"unshare", "-m"},
		"user": {"unshare", "-rmn"},
	}[who]...)
	run = append(run, "sh", "-ec", `mount -t tmpfs none /run; ip link set lo up; eval "$0"`)
	cmd := exec.Command(filepath.Join(bin, "lklrun"), append(run, args...)...)
	if who == "user" {
		kit.AsUser(cmd, "")
	}
	return cmd
}

// TestIPNetns checks that `ip netns` works in a run as on a host: two namespaces, joined
// by veth, and devices that move between them.
func TestIPNetns(t *testing.T) {
	kit.Need(t, "ip", "nsenter", "ping", "unshare", "/usr/bin/python3")
	kit.NewSite(t)
	bin := kit.PublicBin(t)
	const serve = `import socket
s = socket.create_server(("10.9.0.2", 80)); print("listens", flush=True); c, a = s.accept(); c.sendall(a[0].encode())`
	const ask = `import socket; print(socket.create_connection(("10.9.0.2", 80), 10).recv(99).decode())`
	const enter = `import ctypes, os, socket, sys
print(ctypes.CDLL(None).setns(os.pidfd_open(int(sys.argv[1])), 0x40000000), socket.if_nameindex()[1][1])`
	const script = `
ip netns add a
ip netns add b
ip netns list | sort
ip link add va netns a type veth peer name vb netns b
ip -n a addr add 10.9.0.1/24 dev va
ip -n b addr add 10.9.0.2/24 dev vb
ip -n a link set va up
ip -n b link set vb up
ip netns exec a ping -q -c 1 -W 10 10.9.0.2 | grep -o "1 received"
ip netns exec b /usr/bin/python3 -c "$1" >/run/log & server=$!
while ! grep -q listens /run/log; do :; done
ip netns exec a /usr/bin/python3 -c "$2"
wait $server
/usr/bin/python3 -c "$2" 2>&1 | tail -n 1
if [ -e /proc/net/dev ]; then # an ordinary user may have no /dev/fuse
	ip netns exec a sysctl -qw net.ipv4.ip_default_ttl=99
	for n in a b; do ip netns exec $n sh -c 'cat /proc/sys/net/ipv4/ip_default_ttl; grep -c : /proc/net/dev'; done
fi
ip -n a link show va | grep -o "link-netns b"
unshare -n sleep 1000 & other=$!
ip link add d0 type dummy
while [ $(readlink /proc/$other/ns/net) = $(readlink /proc/self/ns/net) ]; do :; done
ip link set d0 netns $other
/usr/bin/python3 -c "$3" $other
nsenter --net=/proc/$other/ns/net ip -br link set d0 netns 1 2>&1 || true
ip link show d0 2>&1 | grep -o "d0: <[A-Z]*" || true
kill $other
ip netns identify $$
ip netns exec a ip netns identify
ip netns del a
ip netns del b
ip netns list | wc -l
ip -br link | grep -c "va\|vb" || true
`
	for _, who := range []string{"root", "user"} {
		want := "^a\nb\n1 received\n10.9.0.1\nOSError: .* Network is unreachable\n(99\n2\n64\n2\n)?link-netns b\n0 d0\nd0: <BROADCAST\n\na\n0\n0\n$"
		if who == "user" { // process 1 is in the run's namespace, which belongs to another user namespace
			want = strings.Replace(want, "d0: <BROADCAST\n", "RTNETLINK answers: Operation not supported\n", 1)
		} else {
			want = strings.Replace(want, ")?", ")", 1)
		}
		r := kit.Run(t, kit.Limit, inOwnNamespaces(t, bin, who, script, serve, ask, enter))
		if r.Status != 0 || !regexp.MustCompile(want).MatchString(r.Stdout) {
			t.Errorf("%s: %v\nwant %q", who, r, want)
		}
	}
}

// TestNetworkNamespaceUsers checks what keeps a namespace of the stack: a process, a mount
// or a descriptor. Without them it ends, and takes nothing with it of what 1,000 others
// had.
func TestNetworkNamespaceUsers(t *testing.T) {
	kit.Need(t, "ip", "nsenter", "unshare", "/usr/bin/python3")
	s := kit.NewSite(t)
	k := s.Talk("-q")
	k.Say("0") // the run has started
	host := kit.ProcessOf(t, k, "host_pid")
	fds := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", host))
		kit.Must(t, err)
		return len(list)
	}
	const rounds = `
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
home = os.open("/proc/self/ns/net", os.O_RDONLY)
for i in range(int(sys.argv[1])):
	assert not libc.unshare(0x40000000)
	assert len(socket.if_nameindex()) == 1
	assert not libc.setns(home, 0x40000000)
print(len(socket.if_nameindex()))`
	many := func(n string) {
		t.Helper()
		if out := kit.OK(t, 2*kit.Limit, k.Inside("/usr/bin/python3", "-c", rounds, n)); out != "2\n" {
			t.Errorf("%s namespaces: %q", n, out)
		}
	}
	slab := func() (kib int) { // memory of the stack's kernel
		t.Helper()
		info := kit.Lklctl(t, "-n", k.Name, "cat", "/proc/meminfo")
		if _, err := fmt.Sscanf(info[strings.Index(info, "Slab:"):], "Slab: %d", &kib); err != nil {
			t.Fatal(err)
		}
		return kib
	}
	many("100")
	kit.WaitFor(t, "the end of 100 namespaces", kit.Limit, func() bool { return slab() < 4<<10 })
	memory, first := slab(), fds()
	many("1000")
	kit.WaitFor(t, "as much memory as before", kit.Limit, func() bool { return slab() <= memory+1<<10 })

	// More namespaces end than lklhost's socket has room for messages about.
	const together = `
import ctypes, os
libc = ctypes.CDLL(None)
home = os.open("/proc/self/ns/net", os.O_RDONLY)
all = []
for i in range(600):
	assert not libc.unshare(0x40000000)
	all.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
assert not libc.setns(home, 0x40000000)
print("made", flush=True)
input()
for fd in all: os.close(fd)
print("closed", flush=True)
input()`
	cmd := k.Inside("/usr/bin/python3", "-c", together)
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	waits := func(text string) {
		t.Helper()
		kit.WaitFor(t, text, 2*kit.Limit, func() bool { out, _ := p.Output(); return strings.HasSuffix(out, text+"\n") })
	}
	waits("made")
	if now := slab(); now < memory+2<<10 {
		t.Errorf("the stack's memory with 600 namespaces: %d KiB, before: %d KiB", now, memory)
	}
	kit.Pause(t, host, kit.Limit)
	_, err = in.Write([]byte("\n"))
	kit.Must(t, err)
	waits("closed")
	kit.WaitFor(t, "lost messages", 2*kit.Limit, func() bool {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netlink", host))
		kit.Must(t, err)
		for _, row := range kit.Lines(string(table))[1:] {
			if f := strings.Fields(row); len(f) > 8 && f[8] != "0" { // Drops
				return true
			}
		}
		return false
	})
	kit.Must(t, unix.Kill(host, unix.SIGCONT))
	kit.WaitFor(t, "as much memory as before", kit.Limit, func() bool { return slab() <= memory+1<<10 })
	_, err = in.Write([]byte("\n"))
	kit.Must(t, err)
	if r := p.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("%v", r)
	}
	kit.WaitFor(t, "as few descriptors as before", kit.Limit, func() bool { return fds() <= first })
	const users = `
mount -t tmpfs none /run
ip netns add n
ip -n n link add d0 type dummy
ip -n n -br link show d0 | cut -c 1-2
exec 5</run/netns/n
ip netns del n
nsenter --net=/proc/self/fd/5 ip -br link show d0 | cut -c 1-2
nsenter --net=/proc/self/fd/5 sh -c 'exec 5<&-; echo in; read line; ip -br link show d0 | cut -c 1-2' <"$0" &
exec 5<&-
echo >"$0"
wait
ip netns add n
ip -n n -br link | cut -c 1-2`
	fifo := filepath.Join(kit.Dir(t), "fifo")
	kit.Must(t, unix.Mkfifo(fifo, 0o600))
	if out := kit.OK(t, kit.Limit, k.Inside("unshare", "-m", "sh", "-ec", users, fifo)); out != "d0\nd0\nin\nd0\nlo\n" {
		t.Errorf("users of a namespace: %q", out)
	}
	kit.WaitFor(t, "as few descriptors as at first", kit.Limit, func() bool { return fds() <= first })
	if r := k.End(); r.Status != 0 {
		t.Errorf("%v", r)
	}
}

// TestNetworkNamespaceTraced checks that a traced program cannot enter a namespace of the
// run, because lklhost could not look at it, and that a line says why.
func TestNetworkNamespaceTraced(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	kit.NewSite(t)
	const program = `import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/proc/self/ns/net", os.O_RDONLY)
print(libc.setns(fd, 0x40000000), flush=True)
pid = os.fork()
if not pid:
	libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
	os._exit(libc.setns(fd, 0x40000000) == -1 and ctypes.get_errno())
print(os.strerror(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))`
	r := kit.Run(t, kit.Limit, kit.Lklrun("-q", "--", "/usr/bin/python3", "-c", program))
	if r.Status != 0 || r.Stdout != "0\nOperation not permitted\n" || !strings.Contains(r.Stderr, "because another process traces it") {
		t.Errorf("%v", r)
	}
}
