// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	kit "github.com/lklrun/lklrun/test/kit"
)

const limit = 20 * time.Second

func TestMain(m *testing.M) { kit.Main(m, nil) }

// TestPeers checks that the peers serve ordinary host programs over a pair of connected
// namespaces.
func TestPeers(t *testing.T) {
	kit.Need(t, "ip", "tc", "nginx", "curl", "dnsmasq", "iperf3", "mptcpize", "ss", "nft")
	client, server := kit.NewNetns(t, "client"), kit.NewNetns(t, "server")
	kit.Veth(t, client, "c0", server, "s0")
	client.Addr(t, "c0", "10.72.0.2/24", "fd72::2/64")
	server.Addr(t, "s0", "10.72.0.1/24", "fd72::1/64")
	server.Rate(t, "s0", "500mbit")

	dir := kit.Dir(t)
	kit.Random(t, dir+"/file", 1<<20)
	server.Nginx(t, kit.Nginx{Root: dir, Workers: 2, MPTCP: true})
	server.Dnsmasq(t, map[string]string{"www.test": "10.72.0.1"})
	server.Iperf3(t)
	server.EchoUDP(t, "10.72.0.1:7")
	server.PythonHTTP(t, 8080, dir)

	want := sum(t, dir+"/file")
	for _, url := range []string{"http://10.72.0.1/file", "http://[fd72::1]/file", "http://10.72.0.1:8080/file"} {
		kit.OK(t, limit, client.Command("curl", "-sf", "-o", dir+"/got", url))
		if got := sum(t, dir+"/got"); got != want {
			t.Errorf("%s: checksum %s, want %s", url, got, want)
		}
	}
	kit.OK(t, limit, client.Command("iperf3", "-c", "10.72.0.1", "-n", "1M"))
	echo := client.Command("/usr/bin/python3", "-c", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.sendto(b"hello", ("10.72.0.1", 7))
print(s.recvfrom(100))`)
	if got := kit.OK(t, limit, echo); got != "(b'hello', ('10.72.0.1', 7))\n" {
		t.Errorf("UDP echo: %q", got)
	}
}

func sum(t *testing.T, path string) string {
	t.Helper()
	return strings.Fields(kit.OK(t, limit, exec.Command("sha256sum", path)))[0]
}

// TestInventory checks that the inventory detects everything that a run could leave
// behind, and otherwise reports nothing.
func TestInventory(t *testing.T) {
	kit.Need(t, "ip", "nft", "iptables-legacy")
	ns := kit.NewNetns(t, "inventory")
	run := func(args ...string) { kit.Host.Run(t, args...) }
	tests := []struct {
		sees     string
		make, to []string
	}{
		{"device", []string{"ip", "link", "add", "left0", "type", "veth"}, []string{"ip", "link", "del", "left0"}},
		{"namespace", []string{"ip", "netns", "add", "left"}, []string{"ip", "netns", "del", "left"}},
		{"mount", []string{"mount", "-t", "tmpfs", "left", "/mnt"}, []string{"umount", "/mnt"}},
		{"file: /dev/shm/left", []string{"touch", "/dev/shm/left"}, []string{"rm", "/dev/shm/left"}},
		{"file: /run/left", []string{"mkdir", "/run/left"}, []string{"rmdir", "/run/left"}},
		{"iptables-legacy-save", ns.Args("iptables-legacy", "-A", "OUTPUT", "-j", "DROP"), ns.Args("iptables-legacy", "-F")},
		{"nft", ns.Args("nft", "add", "table", "left"), ns.Args("nft", "delete", "table", "left")},
		{"rule", ns.Args("ip", "rule", "add", "from", "10.0.0.1", "table", "7"), ns.Args("ip", "rule", "del", "from", "10.0.0.1")},
	}
	for _, tt := range tests {
		run(tt.make...) // the first time, the tools leave files of their own, such as locks
		run(tt.to...)
	}
	before := kit.Take(t, ns)
	before.Same()
	for _, tt := range tests {
		run(tt.make...)
		if left := strings.Join(before.Left(), "\n"); !strings.Contains(left, "new: ") || !strings.Contains(left, tt.sees) {
			t.Errorf("%s left no trace of %q:\n%s", strings.Join(tt.make, " "), tt.sees, left)
		}
		run(tt.to...)
	}
	sleeper := kit.Start(t, exec.Command("sleep", "60"))
	if left := strings.Join(before.Left(), "\n"); !strings.Contains(left, "sleep 60") {
		t.Errorf("a process left no trace:\n%s", left)
	}
	sleeper.Signal(syscall.SIGKILL)
	if r := sleeper.Wait(limit); r.Signal != syscall.SIGKILL {
		t.Errorf("the killed process: %v", r)
	}
	before.Settles(limit)
}

func TestAsUser(t *testing.T) {
	kit.Need(t)
	r := kit.Run(t, limit, kit.AsUser(exec.Command("sh", "-c", "id -u; env | grep -c XDG"), ""))
	if r.Stdout != "54321\n0\n" {
		t.Errorf("as an ordinary user: %v", r)
	}
	dir := kit.Dir(t)
	if err := os.WriteFile(dir+"/f", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	kit.OK(t, limit, kit.AsUser(exec.Command("cat", dir+"/f"), ""))
}

// TestPause checks that Pause leaves no thread running, and that a stopped process can be
// ended.
func TestPause(t *testing.T) {
	kit.Need(t)
	busy := kit.Start(t, exec.Command("sh", "-c", "while :; do :; done"))
	kit.Pause(t, busy.Pid(), limit)
	stat := func() string { return kit.Host.Run(t, "cat", fmt.Sprintf("/proc/%d/stat", busy.Pid())) }
	if at := stat(); !strings.Contains(at, ") T ") || at != stat() {
		t.Errorf("stopped it is at %s and later at %s", at, stat())
	}
	busy.Signal(syscall.SIGKILL)
	if r := busy.Wait(limit); r.Signal != syscall.SIGKILL {
		t.Errorf("the killed process: %v", r)
	}
}
