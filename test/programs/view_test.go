// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
)

// dialStack connects to the talker's stack.
func dialStack(ctx context.Context, k *kit.Talker) *stackconn.Conn {
	k.T.Helper()
	c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", k.Name, "ctl.sock"))
	if err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(func() { c.Close() })
	return c
}

// runInside runs a program by exec, which must succeed, and returns its output.
func runInside(k *kit.Talker, args ...string) string {
	k.T.Helper()
	return kit.OK(k.T, kit.Limit, k.Inside(args...))
}

// ours reads a file of the host.
func ours(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// device replaces the file at a path by another device for the rest of the test.
func device(t *testing.T, path string, mode uint32, major, minor uint32) {
	t.Helper()
	node := filepath.Join(kit.Dir(t), "node")
	if err := unix.Mknod(node, unix.S_IFCHR|mode, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(node, os.FileMode(mode)); err != nil { // mknod applies the umask
		t.Fatal(err)
	}
	if err := unix.Mount(node, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestView checks that tools read the stack's files in /proc/net and /sys/class/net.
func TestView(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "netstat", "ifconfig", "nstat")
	before := kit.Take(t, s.Server)
	k := s.Talk("--stack", "mptcp", "--if", s.TapIf())
	k.Say(`keep.__setitem__("l", socket.create_server(("", 8080)))`)
	k.Say(`keep.__setitem__("c", socket.create_connection(("127.0.0.1", 8080)))`)
	k.Say(`keep.__setitem__("a", keep["l"].accept()[0])`)
	k.Say(`keep.__setitem__("u", socket.socket(socket.AF_UNIX)) or keep["u"].bind("\0of the target")`)

	noInode := func(table string) string { // the inode numbers are the host's, as in /proc/PID/fd
		var b strings.Builder
		for _, line := range kit.Lines(table) {
			if f := strings.Fields(line); len(f) > 9 && strings.Trim(f[9], "0123456789") == "" {
				line = strings.Join(slices.Delete(f, 9, 10), " ")
			}
			fmt.Fprintln(&b, strings.TrimRight(line, " "))
		}
		return b.String()
	}
	for _, name := range []string{"tcp", "tcp6", "udp", "route", "if_inet6", "ipv6_route", "sockstat", "sockstat6", "mptcp", "protocols"} {
		var got, want string
		// Use counts and address timers may change between the two reads.
		if !kit.Within(kit.Limit, func() bool {
			got, want = runInside(k, "cat", "/proc/net/"+name), kit.Lklctl(t, "-n", k.Name, "cat", "/proc/net/"+name)
			return noInode(got) == noInode(want)
		}) {
			t.Errorf("/proc/net/%s is not the stack's:\n%s\nwant\n%s", name, got, want)
		}
	}
	mac := strings.Fields(runInside(k, "ip", "-br", "link", "show", "eth0"))[2]
	for _, tt := range []struct{ command, shows string }{
		{"cat /proc/net/dev", "eth0:"},
		{"cat /proc/net/tcp", ":1F90 00000000:0000 0A"},
		{"cat /proc/net/snmp", "\nTcp: "},
		{"cat /proc/net/netstat", "MPTcpExt: "},
		{"cat /proc/net/unix", "@of the target"},  // AF_UNIX sockets are the host's
		{"busybox cat /proc/net/dev", "eth0:"},    // busybox uses sendfile() if it can
		{"wc -c </sys/class/net/eth0/mtu", "5\n"}, // sysfs claims a larger file size
		{"netstat -tlnp", "/python3"},
		{"netstat -tanp | grep ESTABLISHED | grep -vc python3; true", "0\n"},
		{"ss -tlnpH", `users:(("python3",pid=`},
		{"ss -MnpH | grep -vc python3; true", "0\n"},
		{"netstat -s", "1 passive connection openings"},
		{"netstat -i", "\neth0 "},
		{"netstat -rn", "\n10.73.0.0 "},
		{"NSTAT_HISTORY=/dev/null nstat -az", "TcpPassiveOpens                 1 "},
		{"ifconfig eth0", "inet " + kit.StackAddr + " "},
		{"ls -l /sys/class/net/", "eth0 -> ../../devices/virtual/net/eth0\n"},
		{"ls /sys/devices/virtual/net", "eth0\nlo\n"},
		{"cat /sys/class/net/eth0/address", mac + "\n"},
		{"cat /sys/class/net/eth0/mtu", "1500\n"},
		{"cat /sys/class/net/eth0/operstate", "u"}, // up, or unknown
		{"cd /sys/class/net/eth0/statistics && cat rx_bytes", "\n"},
		{"readlink -f /sys/class/net/eth0/subsystem", "/sys/class/net\n"},
		{"find /proc/net/ /sys/class/net/ /sys/devices/virtual/net/ /proc/sys/net -name no-such; echo $?", "0\n"},
	} {
		got := runInside(k, "sh", "-c", tt.command)
		if !strings.Contains(got, tt.shows) {
			t.Errorf("%s: %s\nwant %q", tt.command, got, tt.shows)
		}
		if strings.Contains(got, "br0") || strings.Contains(got, "tap0") || strings.Contains(got, kit.HostAddr+" ") {
			t.Errorf("%s shows the host: %s", tt.command, got)
		}
	}
	for _, path := range []string{"/etc/hosts", "/etc/services", "/proc/sys/kernel/ostype"} {
		if runInside(k, "cat", path) != ours(t, path) {
			t.Errorf("%s is not as it was", path)
		}
	}
	// Java requests the length of the list of interfaces with a struct ifconf that has no
	// buffer and whose fields are not initialized.
	if got := k.Say(`__import__("struct").unpack("iiP", __import__("fcntl").ioctl(keep["l"], 0x8912, __import__("struct").pack("iiP", -1, -1, 0)))[0] // 40`); got != "2" {
		t.Errorf("SIOCGIFCONF: %s interfaces, want 2", got)
	}
	// The target itself sees the stack's files, too.
	if got := k.Say(`"eth0" in open("/proc/net/dev").read()`); got != "True" {
		t.Errorf("the target's /proc/net/dev has eth0: %s", got)
	}
	if r := k.End(); r.Status != 0 || r.Stderr != "" {
		t.Errorf("the target: %v", r)
	}
	before.Same()
}

// TestViewSysctl checks that the target's writes to /proc/sys/net change only the stack.
func TestViewSysctl(t *testing.T) {
	const key = "net.ipv4.tcp_congestion_control"
	const path = "/proc/sys/net/ipv4/tcp_congestion_control"
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	host := ours(t, path)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	if got := runInside(k, "sysctl", "-n", key); got != "cubic\n" {
		t.Errorf("at first: %q", got)
	}
	for value, command := range map[string][]string{
		"reno": {"sysctl", "-w", key + "=reno"},
		"bbr":  {"sh", "-c", "echo bbr >" + path},
	} {
		runInside(k, command...)
		if got := kit.Lklctl(t, "-n", k.Name, "sysctl", key); got != key+" = "+value+"\n" {
			t.Errorf("after %v the stack has %q", command, got)
		}
		if cc := k.Connect(value, kit.ServerAddr, 80); cc != value {
			t.Errorf("after %v a connection has %s", command, cc)
		}
	}
	kit.Lklctl(t, "-n", k.Name, "sysctl", "-w", key+"=cubic")
	if got := runInside(k, "cat", path); got != "cubic\n" {
		t.Errorf("after lklctl sysctl the target reads %q", got)
	}
	all := runInside(k, "sh", "-c", "sysctl -a 2>/dev/null")
	for _, want := range []string{"\nnet.mptcp.enabled = ", "\nnet.ipv4.conf.eth0.", "\nkernel.ostype = Linux\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("sysctl -a has no %q", want)
		}
	}
	if strings.Contains(all, "net.ipv4.conf.br0.") {
		t.Error("sysctl -a shows the host's devices")
	}
	for _, tt := range []struct{ command, says string }{
		{"sysctl -w net.ipv4.ip_forward=yes", "Invalid argument"},
		{"echo reno >/proc/sys/net/ipv4/tcp_available_congestion_control", "ermission denied"},
		{"sysctl -w net.ipv4.no_such=1", "No such file"},
		{"echo 1 >/proc/sys/net/no_such", "ermission denied"},
		{"chmod 777 " + path, "not permitted"},
		{"mkdir /proc/sys/net/new", "not permitted"},
		{"rm " + path, "not permitted"},
		// Another user may not write there, because the stack belongs to root.
		{"setpriv --reuid 54321 --clear-groups sysctl -w " + key + "=reno", "ermission denied"},
	} {
		r := kit.Run(t, kit.Limit, k.Inside("sh", "-c", tt.command))
		if !strings.Contains(r.Stderr, tt.says) {
			t.Errorf("%s: %v; want %q", tt.command, r, tt.says)
		}
	}
	if got := runInside(k, "setpriv", "--reuid", "54321", "--clear-groups", "cat", path); got != "cubic\n" {
		t.Errorf("another user reads %q", got)
	}
	if now := ours(t, path); now != host {
		t.Errorf("the host has %q, and had %q", now, host)
	}
	k.End()
}

// TestViewLoad checks many opens, many readers and long files. Each reader must get a
// complete file, and no file may stay open in the stack. Other files must not cause
// requests to the stack.
func TestViewLoad(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Say(`keep.__setitem__("l", [socket.create_server(("127.0.0.1", 20000 + i)) for i in range(500)])`)
	ctx, cancel := context.WithTimeout(context.Background(), 4*kit.Limit)
	defer cancel()
	c := dialStack(ctx, k)
	count := func() (requests int64, files int) {
		stats, err := c.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stats {
			if s.Name == "view.requests" {
				requests = s.Value
			}
		}
		fds, err := c.ReadDir(ctx, "/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			text := make([]byte, 256)
			n, err := c.Syscall(ctx, stackconn.Call{Nr: unix.SYS_READLINKAT, Args: []any{
				unix.AT_FDCWD, stackconn.CString("/proc/self/fd/" + fd.Name), stackconn.Out(text), len(text),
			}})
			if err != nil && !errors.Is(err, unix.ENOENT) { // the descriptor of the directory itself
				t.Fatal(err)
			}
			// lklrun may open its own sockets, and this file, at any time.
			link := string(text[:n])
			if err == nil && !strings.HasPrefix(link, "socket:") && !strings.Contains(link, filepath.Base(stacknet.JoinFile)) {
				files++
			}
		}
		return requests, files
	}
	const whole = `
import os, sys
def read(size):
    fd, text = os.open("/proc/net/tcp", os.O_RDONLY), b""
    while piece := os.read(fd, size): text += piece
    os.close(fd)
    ports = [l.split()[1] for l in text.decode().splitlines()[1:]]
    assert len(set(ports)) == len(ports) == 500, (size, len(ports))
`
	requests, files := count()
	runInside(k, "/usr/bin/python3", "-c", whole+"read(100); read(1 << 20)\nfor i in range(1000): os.close(os.open('/proc/net/tcp', os.O_RDONLY))")
	if n, now := count(); n < requests+2000 || now != files {
		t.Errorf("after 1,000 opens there are %d files open in the stack, and %d were; %d requests", now, files, n-requests)
	}
	runInside(k, "/usr/bin/python3", "-c", whole+`
for i in range(8):
    if not os.fork():
        try:
            for j in range(20): read(1 << 16)
        except BaseException as e: print(e, file=sys.stderr); os._exit(1)
        os._exit(0)
sys.exit(max(os.wait()[1] for i in range(8)))`)
	// Kill readers at any point.
	runInside(k, "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do timeout -s KILL 0.0$i find /proc/net/ /proc/sys/net /sys/class/net/ -type f -exec cat {} + >/dev/null 2>&1; done; true`)
	kit.WaitFor(t, "the files of the killed", kit.Limit, func() bool { _, now := count(); return now == files })
	requests, _ = count()
	k.Say(`[open("/etc/hosts").read() for i in range(1000)] and 0`)
	k.Say(`__import__("subprocess").run(["ls", "-lR", "/proc/sys/kernel", "/sys/class/tty"], stdout=-3).returncode`)
	if n, _ := count(); n != requests {
		t.Errorf("files of the host were %d requests", n-requests)
	}
	k.End()
}

// TestViewUser checks an ordinary user with a stack of their own. The user sees the
// stack's files if /dev/fuse can be opened.
func TestViewUser(t *testing.T) {
	kit.NewSite(t)
	bin := kit.PublicBin(t)
	device(t, "/dev/fuse", 0o666, 10, 229)
	before := kit.Take(t)
	r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(filepath.Join(bin, "lklrun"), "-q", "--", "sh", "-c", `
		cat /proc/net/route && ls /sys/class/net && cat /sys/class/net/eth0/operstate &&
		sysctl -w net.ipv4.tcp_congestion_control=reno && cat /proc/sys/net/ipv4/tcp_congestion_control
		sysctl -w net.ipv4.ip_forward=yes; touch /proc/sys/net/new; true`), ""))
	for _, want := range []string{"eth0\t00000000", "\neth0\nlo\n", "\nreno\n"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q in %v", want, r)
		}
	}
	if r.Status != 0 || !strings.Contains(r.Stderr, "Invalid argument") || !strings.Contains(r.Stderr, "Permission denied") {
		t.Errorf("what cannot be set: %v", r)
	}
	before.Same()
}

// TestViewSandbox checks that bubblewrap, which remounts every mount, works and shows the
// stack's files: for root and for an ordinary user.
func TestViewSandbox(t *testing.T) {
	kit.Need(t, "bwrap")
	kit.NewSite(t)
	bin := kit.PublicBin(t)
	device(t, "/dev/fuse", 0o666, 10, 229)
	for _, engine := range []string{"supervise", "trace"} {
		command := []string{"-q", "--engine", engine, "--", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "cat", "/proc/net/route"}
		for _, cmd := range []*exec.Cmd{kit.Lklrun(command...), kit.AsUser(exec.Command(filepath.Join(bin, "lklrun"), command...), "")} {
			if out := kit.OK(t, kit.Limit, cmd); !strings.Contains(out, "eth0\t00000000") {
				t.Errorf("%v: %s", cmd, out)
			}
		}
		command = []string{"-q", "--engine", engine, "--", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user", "--unshare-pid", "sh", "-c", "echo $$ /proc/[0-9]*"}
		for _, cmd := range []*exec.Cmd{kit.Lklrun(command...), kit.AsUser(exec.Command(filepath.Join(bin, "lklrun"), command...), "")} {
			if out := kit.OK(t, kit.Limit, cmd); out != "2 /proc/1 /proc/2\n" {
				t.Errorf("%v: %s", cmd, out)
			}
		}
	}
}

// TestViewMissing checks a host without /dev/fuse. The files must be missing, so that
// programs do not see the host's. Reads and writes must fail, -v must print the reason,
// and the run must continue.
func TestViewMissing(t *testing.T) {
	s := kit.NewSite(t)
	bin := kit.PublicBin(t)
	device(t, "/dev/fuse", 0o600, 1, 3) // the null device
	before := kit.Take(t, s.Server)
	const script = `sysctl -w net.ipv4.tcp_congestion_control=reno; cat /proc/net/tcp; cat /sys/class/net/lo/mtu
		echo 1 >/proc/sys/net/new; ls /sys/class/net/; ls /proc/net/; ip -4 -br addr show eth0`
	user := kit.AsUser(exec.Command(filepath.Join(bin, "lklrun"), "-q", "--", "sh", "-c", script), "")
	for _, cmd := range []*exec.Cmd{kit.Lklrun("-q", "--", "sh", "-c", script), user} {
		r := kit.Run(t, kit.Limit, cmd)
		if f := strings.Fields(r.Stdout); r.Status != 0 || len(f) != 4 || f[0] != "unix" || f[1] != "eth0" {
			t.Errorf("want nothing but the socket's view: %v", r)
		}
		if n := strings.Count(r.Stderr, "No such file"); n != 3 || len(kit.Lines(r.Stderr)) != 4 {
			t.Errorf("want four refusals: %v", r)
		}
	}
	r := kit.Run(t, kit.Limit, kit.Lklrun("-v", "--", "true"))
	if r.Status != 0 || !strings.Contains(r.Stderr, "/dev/fuse: Invalid argument") {
		t.Errorf("-v should name /dev/fuse: %v", r)
	}
	before.Same()
}

// TestViewEnds checks that readers of the stack's files end with the run, whatever the
// reason for the end.
func TestViewEnds(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	kill := func(who string) func(*kit.Talker) {
		return func(k *kit.Talker) {
			if err := unix.Kill(kit.ProcessOf(t, k, who), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name string
		end  func(k *kit.Talker)
	}{
		{"target", kill("target_pid")},
		{"lklhost", kill("host_pid")},
		{"lklrun", kill("pid")},
		{"stop", func(k *kit.Talker) { kit.Lklctl(t, "-n", k.Name, "stop") }},
		{"panic", func(k *kit.Talker) {
			ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
			defer cancel()
			_ = dialStack(ctx, k).WriteFile(ctx, "/proc/sysrq-trigger", []byte("c")) // the kernel panics, so no answer arrives
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := s.In(t).Talk("--if", s.TapIf())
			// There are four endless readers. One of them also keeps a file open.
			k.Say(`keep.__setitem__("p", [__import__("subprocess").Popen(["sh", "-c", "exec 3</proc/net/tcp; while :; do cat /proc/net/tcp /proc/sys/net/ipv4/tcp_rmem; ls -lR /sys/class/net/; done >/dev/null 2>&1"]).pid for i in range(4)])`)
			k.Say(`[open("/proc/net/dev").read() for i in range(100)] and 0`)
			tt.end(k)
			k.Proc.Wait(kit.Limit)
			before.Settles(kit.Limit)
		})
	}
}

// TestViewDevices checks that the directory of a device appears when the device is added,
// and disappears when it is removed. The directory must not be cached.
func TestViewDevices(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	for i := range 3 {
		name := "d" + strconv.Itoa(i)
		runInside(k, "ip", "link", "add", name, "type", "dummy")
		if got := runInside(k, "sh", "-c", "cd /sys/class/net/"+name+" && cat ifindex uevent"); !strings.Contains(got, "INTERFACE="+name+"\n") {
			t.Errorf("%s: %q", name, got)
		}
		runInside(k, "ip", "link", "set", name, "name", "again")
		if got := runInside(k, "sh", "-c", "echo /sys/class/net/*/ /sys/class/net/again/mtu"); got != fmt.Sprintf("%[1]s/again/ %[1]s/eth0/ %[1]s/lo/ %[1]s/again/mtu\n", "/sys/class/net") {
			t.Errorf("after the renaming: %q", got)
		}
		runInside(k, "ip", "link", "del", "again")
		if r := kit.Run(t, kit.Limit, k.Inside("cat", "/sys/class/net/again/mtu")); !strings.Contains(r.Stderr, "No such file") {
			t.Errorf("a device that is gone: %v", r)
		}
	}
	k.End()
}
