// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/kube/test/containerd"
	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/sender.py
var sender string

const (
	escapes    = www + "/escape"
	escapeMark = "lklrun-escape"
	escapeTTL  = "77"

	escapeAbstract = "lklrun-escape-abstract"

	// Addresses that only the node's kernel has, in the pod's network namespace.
	decoy4 = "10.99.0.1"
	decoy6 = "fd99::1"
)

// A witness is the node's kernel in a network namespace: servers, and a sniffer. It must
// not receive any data from a container.
type witness struct {
	mu       sync.Mutex
	heard    []string
	tcp, udp int // ports
}

func (w *witness) hear(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.heard)
}

// within calls f on a thread in the network namespace at path.
func within(t *testing.T, path string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := os.Open(path)
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	kit.Must(t, <-done)
}

// accept records the data that arrives on the connections to a listener.
func (w *witness) accept(l net.Listener, what string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				w.hear("%s: %s", what, lines.Text())
			}
		}()
	}
}

// serve starts the servers in the network namespace at path.
func (w *witness) serve(t *testing.T, path string) {
	t.Helper()
	within(t, path, func() error {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			return err
		}
		u, err := net.ListenPacket("udp", ":0")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close(); u.Close() })
		w.tcp, w.udp = l.Addr().(*net.TCPAddr).Port, u.LocalAddr().(*net.UDPAddr).Port
		go w.accept(l, "tcp")
		go func() {
			buf := make([]byte, 65536)
			for {
				n, _, err := u.ReadFrom(buf)
				if err != nil {
					return // the socket is closed
				}
				w.hear("udp: %q", buf[:n])
			}
		}()
		return nil
	})
}

// sniff records the frames that a device of a network namespace receives. It leaves out
// those that IPv6 sends automatically.
func (w *witness) sniff(t *testing.T, path, dev string) {
	t.Helper()
	within(t, path, func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		all := int(unix.ETH_P_ALL&0xff)<<8 | unix.ETH_P_ALL>>8
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: i.Index}); err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "sniffer")
		t.Cleanup(func() { f.Close() })
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		go func() {
			buf := make([]byte, 65536)
			for {
				var n int
				var from unix.Sockaddr
				if rerr := raw.Read(func(fd uintptr) bool {
					n, from, err = unix.Recvfrom(int(fd), buf, 0)
					return !errors.Is(err, unix.EAGAIN)
				}); rerr != nil || err != nil {
					return // the socket is closed, or the device has ended
				}
				at, _ := from.(*unix.SockaddrLinklayer)
				frame := buf[:n]
				if at.Pkttype != unix.PACKET_OUTGOING && !chatter(frame) && (dev != "lo" || bytes.Contains(frame, []byte(escapeMark))) {
					w.hear("%s: %q", dev, frame[:min(n, 120)])
				}
			}
		}()
		return nil
	})
}

// chatter reports whether a frame is neighbour discovery or group membership of IPv6.
func chatter(frame []byte) bool {
	return len(frame) > 20 && frame[12] == 0x86 && frame[13] == 0xdd && (frame[20] == unix.IPPROTO_ICMPV6 || frame[20] == 0)
}

// netns returns the path of the node's network namespace.
func (n *node) netns() string { return "/proc/" + n.PID + "/ns/net" }

// netns returns the path of the pod's network namespace, as the test sees it.
func (p *pod) netns() string {
	p.n.t.Helper()
	path := strings.TrimPrefix(p.inside()[1], "--net=/var") // a link, which is absolute
	return "/proc/" + p.n.PID + "/root" + path
}

// prisons returns the security contexts of the containers that try to escape. kubelet makes
// /proc/sys read-only unless a container is privileged.
func prisons() map[string]object {
	all := map[string]object{
		"plain": {},
		"user":  {"runAsUser": object{"value": 1000}},
		"admin": {"capabilities": object{"addCapabilities": []string{"NET_ADMIN", "NET_RAW", "SYS_PTRACE", "SYS_ADMIN"}}},
	}
	for _, security := range all {
		security["readonlyPaths"] = []string{"/proc/sys", "/proc/sysrq-trigger"}
	}
	all["privileged"] = object{"privileged": true}
	return all
}

// permitted are the attempts that may succeed, because they do not concern the network: a
// container gets a unix socket with a folder, and its files in /proc and /sys are those of
// the node's kernel, in the pod's network namespace.
var permitted = []string{
	"unix-path", "view-read", "proc-net", "proc-self-net", "sys-class-net", "mount-proc", "mount-sysfs",
}

// testEscape makes the attempts of csrc/tests/escape in containers. They must not reach
// the node's kernel.
func testEscape(n *node) *pod {
	t := n.t
	p := n.start(sandbox("escape", map[string]string{"lklrun.dev/stack": "bbr"}, object{
		"linux": object{"securityContext": object{"privileged": true, "namespaceOptions": namespaces}},
	}))
	n.run(p.inside("sh", "-c", "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && ip addr add "+decoy4+
		"/24 dev v0 && ip addr add "+decoy6+"/64 dev v0 nodad && echo "+escapeTTL+" >/proc/sys/net/ipv4/ip_default_ttl")...)
	// Without a route, the stack's own answers differ from those of the node's kernel.
	n.run("lklctl", "-n", p.instance(), "exec", "--", "ip", "route", "del", "default")
	w := &witness{}
	w.serve(t, p.netns())
	w.sniff(t, p.netns(), "v1") // the other end of v0
	w.sniff(t, p.netns(), "lo")
	within(t, n.netns(), func() error {
		l, err := net.Listen("unix", "@"+escapeAbstract)
		if err == nil {
			t.Cleanup(func() { l.Close() })
			go w.accept(l, "abstract name")
		}
		return err
	})
	built := filepath.Join(kit.Root(), "build/csrc/tests")
	n.run("sh", "-c", fmt.Sprintf(`mkdir -m 1777 %[1]s && cd %[1]s && install %[2]s/escape escape && for f in static filecap; do install %[2]s/escape-static $f; done &&
		install -m 4755 %[2]s/escape-static setuid && setcap cap_sys_admin,cap_net_raw,cap_net_admin+ep filecap && touch netns && mount -n --bind /proc/self/ns/net netns`,
		escapes, built))
	env := []string{
		"env", fmt.Sprint("ESCAPE_TCP=", w.tcp), fmt.Sprint("ESCAPE_UDP=", w.udp), "ESCAPE_HOST4=" + decoy4, "ESCAPE_HOST6=" + decoy6,
		"ESCAPE_LINK=v0", "ESCAPE_TAP=escape0", "ESCAPE_TTL=" + escapeTTL + "\n", "ESCAPE_NETNS=" + escapes + "/netns",
		"ESCAPE_ABSTRACT=" + escapeAbstract, "ESCAPE_PATH=" + escapes + "/decoy.sock", "ESCAPE_DIR=" + escapes, "ESCAPE_BIN=/opt/lklrun",
		"ESCAPE_NAME=" + p.instance(), "ESCAPE_RUN=/run/lklrun/" + p.instance(), "ESCAPE_OTHER_NAME=other", "ESCAPE_OTHER_RUN=/run/lklrun/other",
		"ESCAPE_OUTSIDE=" + escapes + "/outside.sock", "ESCAPE_SETUID=" + escapes + "/setuid", "ESCAPE_FILECAP=" + escapes + "/filecap",
		"ESCAPE_STATIC=" + escapes + "/static",
	}
	// The accomplice has sockets of the node's kernel, and passes them to the containers.
	outside := n.Command(p.inside(slices.Concat(env, []string{escapes + "/escape", "outside"})...)...)
	end, err := outside.StdinPipe()
	kit.Must(t, err)
	accomplice := kit.Start(t, outside)
	kit.WaitFor(t, "the accomplice", endLimit, func() bool {
		out, errs := accomplice.Output()
		if !accomplice.Running() {
			t.Fatalf("the accomplice has ended: %s", errs)
		}
		return strings.HasSuffix(out, "\n")
	})
	out, _ := accomplice.Output()
	env = append(env, strings.Fields(out)...)
	names := kit.Lines(n.run(escapes+"/escape", "list"))
	names = slices.DeleteFunc(names, func(n string) bool { return n == "kill-lklhost" || strings.HasPrefix(n, "hostnet-") })
	for who, security := range prisons() {
		p.run(who, security, slices.Concat(env, []string{escapes + "/escape"}, names)...)
	}
	for who := range prisons() {
		var lines []string
		for _, line := range kit.Lines(n.log(who, " "+names[len(names)-1]+" ")) {
			if _, text, ok := strings.Cut(line, " stdout F "); ok {
				lines = append(lines, text)
			}
		}
		judge(t, who, names, lines)
	}
	// A program that starts in a container later has a seccomp listener of its own.
	late := p.run("late", object{"privileged": true}, "sleep", "1000")
	judge(t, "exec", names, kit.Lines(late.exec(slices.Concat(env, []string{escapes + "/escape"}, names)...)))
	end.Close()
	if r := accomplice.Wait(kit.Limit); !strings.Contains(r.Stdout, "memory intact") {
		t.Errorf("the accomplice: %v", r)
	}
	for _, h := range w.heard {
		t.Errorf("the node's kernel has received: %s", h)
	}
	// The witness notices the same attempts of a process of the node.
	n.run(p.inside(slices.Concat(env, []string{escapes + "/escape", "inet-stream", "inet-dgram", "inet6-stream", "packet-raw"})...)...)
	for _, want := range []string{"tcp: " + escapeMark + " inet-stream", "udp: \"" + escapeMark + " inet-dgram", "tcp: " + escapeMark + " inet6-stream", "v1: "} {
		if !strings.Contains(strings.Join(w.heard, "\n"), want) {
			t.Errorf("the witness has not noticed %q: %q", want, w.heard)
		}
	}
	if links := n.run(p.inside("ip", "-br", "link")...) + n.run("ip", "-br", "link"); strings.Contains(links, "escape0") {
		t.Errorf("a tap of a container is left: %s", links)
	}
	n.run("umount", escapes+"/netns")
	return p
}

// judge checks the outcomes of attempts: lines of the form "NAME OUTCOME".
func judge(t *testing.T, who string, names, lines []string) {
	t.Helper()
	got := map[string]string{}
	for _, line := range lines {
		name, outcome, _ := strings.Cut(line, " ")
		got[name] = outcome
	}
	for _, name := range names {
		switch outcome := got[name]; {
		case outcome == "" || outcome == "unknown" || outcome == "silent":
			t.Errorf("%s: %s: no outcome: %q", who, name, outcome)
		case strings.HasPrefix(outcome, "reached") && !slices.Contains(permitted, name):
			t.Errorf("%s: %s: %s", who, name, outcome)
		}
	}
	// The stack has no route to the node's kernel. Without the stack, nobody refuses.
	if got["inet-stream"] != "ENETUNREACH" || got["bare-inet-dgram"] != "ENETUNREACH" {
		t.Errorf("%s: the attempts have not reached the stack: %v", who, got)
	}
}

// testKilled kills each process that serves a pod, while its containers send by every kind
// of socket. After the end of the stack, no packet leaves the pod.
func testKilled(n *node) *pod {
	t := n.t
	kit.WriteFile(t, filepath.Join("/proc", n.PID, "root", www, "sender.py"), sender)
	for _, victim := range []string{"lklhost", "lklrun", "lklrun-oci hold"} {
		p := n.start(sandbox("killed", map[string]string{"lklrun.dev/stack": "bbr"}, object{
			"linux": object{"securityContext": object{"privileged": true, "namespaceOptions": namespaces}},
		}))
		w, host := &witness{}, &witness{}
		host.serve(t, n.netns())
		var names []string
		var containers []container
		for who, security := range prisons() {
			names = append(names, who)
			containers = append(containers, p.run(who, security, "python3", www+"/sender.py", containerd.Gateway, strconv.Itoa(host.tcp)))
		}
		rounds := func(who string, from, more int) int {
			last := 0
			kit.WaitFor(t, "rounds of "+who, endLimit, func() bool {
				last = strings.Count(n.run("cat", "/run/node/logs/"+who+".log"), " round ")
				return last >= from+more
			})
			return last
		}
		for _, who := range names {
			rounds(who, 0, 3)
		}
		kit.WaitFor(t, "a packet at the node while the stack runs", endLimit, func() bool { return host.count() > 0 })
		w.sniff(t, n.netns(), p.device())
		kit.WaitFor(t, "frames of the pod", endLimit, func() bool { return w.count() > 0 })
		n.run("kill", "-KILL", p.process(victim))
		kit.WaitFor(t, "the end of the run", endLimit, func() bool {
			return kit.Run(t, kit.Limit, n.Command("test", "-e", "/run/lklrun/"+p.instance())).Status != 0
		})
		before, received := w.count(), host.count()
		for i, who := range names {
			if n.nri { // the plug-in kills the containers of a stack that has ended
				n.ended(containers[i])
				continue
			}
			rounds(who, rounds(who, 0, 0), 3)
			lines := kit.Lines(n.run("cat", "/run/node/logs/"+who+".log"))
			if last := lines[len(lines)-1]; !strings.Contains(strings.ReplaceAll(last, " again", ""), " round ") || len(strings.Fields(strings.ReplaceAll(last, " again", ""))) != 5 {
				t.Errorf("%s: %s sends without a stack: %s", victim, who, last)
			}
		}
		if got := w.count(); got != before {
			t.Errorf("%s: %d frames left the pod after the end of its stack: %s", victim, got-before, w.heard[before:])
		}
		if got := host.count(); got != received {
			t.Errorf("%s: the node has received from the pod after the end of its stack: %s", victim, host.heard[received:])
		}
		p.end()
	}
	return nil
}

// process returns the PID of a process that serves the pod.
func (p *pod) process(which string) string {
	p.n.t.Helper()
	var list []struct {
		Name   string `json:"name"`
		Target int    `json:"pid"`
		Host   int    `json:"host_pid"`
	}
	kit.Must(p.n.t, json.Unmarshal([]byte(p.n.run("lklctl", "-o", "json", "list")), &list))
	for _, i := range list {
		switch {
		case i.Name != p.instance():
		case which == "lklhost":
			return strconv.Itoa(i.Host)
		case which == "lklrun":
			return strings.TrimSpace(p.n.run("ps", "-o", "ppid=", "-p", strconv.Itoa(i.Host)))
		default:
			return strconv.Itoa(i.Target)
		}
	}
	p.n.t.Fatalf("lklctl does not list the pod's stack: %v", list)
	return ""
}

// device returns the node's end of the pod's interface eth0.
func (p *pod) device() string {
	p.n.t.Helper()
	var links []struct {
		Name  string `json:"ifname"`
		Index int    `json:"ifindex"`
		Peer  int    `json:"link_index"`
	}
	kit.Must(p.n.t, json.Unmarshal([]byte(p.n.run(p.inside("ip", "-j", "link", "show", "eth0")...)), &links))
	peer := links[0].Peer
	kit.Must(p.n.t, json.Unmarshal([]byte(p.n.run("ip", "-j", "link")), &links))
	for _, l := range links {
		if l.Index == peer {
			return l.Name
		}
	}
	p.n.t.Fatalf("no peer of the pod's eth0: %v", links)
	return ""
}
