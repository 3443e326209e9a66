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
