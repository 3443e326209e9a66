// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// gateways are the interfaces whose TCP connections end in lklrun, and in a kernel of a
// process of its own, which starts with the first connection or with the run.
var gateways = []string{"user,tcp=lklrun", "user", "user,tcp=linux"}

//go:embed testdata/gatewaydata.py
var gatewayData string

// TestGatewayKernel checks the data of connections that end in the gateway's kernel, with
// both engines: both ways at once, after one side has ended its direction, many connections,
// resets, and the last data of a program that ends. If a rule limits the data, they also pass lklrun.
func TestGatewayKernel(t *testing.T) {
	t.Parallel()
	host, net, command := egressSite(t, nil)
	for name, c := range map[string]struct {
		server *kit.Netns
		to     string
		flags  []string
	}{
		"direct":  {host, "192.168.127.254", nil},
		"checked": {net, egressGood, []string{"--allow", egressGood + ",sent=1G"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := kit.Dir(t)
			server := kit.Start(t, c.server.Command("/usr/bin/python3", "-uc", gatewayData, "server", filepath.Join(dir, "last")))
			var ports []string
			kit.WaitFor(t, "the server", kit.Limit, func() bool {
				out, _ := server.Output()
				ports = strings.Fields(out)
				return len(ports) == 3
			})
			for i, engine := range []string{"supervise", "preload"} {
				args := slices.Concat([]string{kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--engine", engine}, c.flags,
					[]string{"--", "/usr/bin/python3", "-c", gatewayData, "client", c.to}, ports)
				r := kit.Run(t, 4*kit.Limit, command(args...))
				if r.Status != 0 || r.Stdout != "both ways: equal\nhalf closed: equal\n500 connections: equal\nends: True\n" || strings.Contains(r.Stderr, "refused tcp") {
					t.Errorf("%s: %v", engine, r)
				}
				// the client's last connection
				kit.WaitFor(t, "the last data", kit.Limit, func() bool {
					got, _ := os.ReadFile(filepath.Join(dir, "last"))
					return strings.Count(string(got), "\n") == i+1
				})
				if got, err := os.ReadFile(filepath.Join(dir, "last")); err != nil || string(got) != strings.Repeat("20000000\n", i+1) {
					t.Errorf("%s: the last data: %q, %v", engine, got, err)
				}
				if !kit.Within(kit.Limit, func() bool {
					out, _ := server.Output()
					return strings.Count(out, "reset\n") == 2*(i+1) && strings.Count(out, "end\n") == i+1
				}) {
					out, _ := server.Output()
					t.Errorf("%s: connections ended so:\n%s", engine, out)
				}
			}
		})
	}
}

//go:embed testdata/gatewaypublish.py
var gatewayPublish string

// TestGatewayPublish checks connections to published ports with both kinds of gateway: data
// both ways, many at once, resets of either side, and a crowd for which the program is too slow.
// The small MTU leaves the stack without IPv6, so that it has sent no frame before.
func TestGatewayPublish(t *testing.T) {
	t.Parallel()
	kit.Need(t, "ip", "prlimit", "/usr/bin/python3")
	for _, iface := range gateways {
		for _, engine := range []string{"supervise", "preload"} {
			t.Run(iface+"/"+engine, func(t *testing.T) {
				t.Parallel()
				host := kit.NewNetns(t, "host")
				host.Run(t, "ip", "link", "set", "lo", "up")
				name := kit.NewName()
				server := kit.Start(t, host.Command("prlimit", "--nofile=2048:2048", kit.Bin("lklrun"), "--name", name, "--engine", engine,
					"--if", iface+",mtu=1000", "--publish", "8080:80", "--publish", "8081:81", "--publish", "8082:82", "--",
					"/usr/bin/python3", "-uc", gatewayPublish, "server"))
				kit.WaitFor(t, "the server", kit.Limit, func() bool {
					out, _ := server.Output()
					return out == "ready\n" || !server.Running()
				})
				cmd := host.Command("/usr/bin/python3", "-uc", gatewayPublish, "client")
				stdin, err := cmd.StdinPipe()
				kit.Must(t, err)
				client := kit.Start(t, cmd)
				const want = "data: 192.168.127.254 True\nmany: 200\nclosed port: reset\nreset by the server: reset\nbeside waiting ones: 192.168.127.254 True\n"
				kit.WaitFor(t, "the client", 2*kit.Limit, func() bool {
					out, _ := client.Output()
					return out == want || !client.Running()
				})
				if out, _ := client.Output(); out != want {
					t.Errorf("%s", out)
				}
				if n := gatewayCount(t, name, "eth0.gateway.publish_evicted"); n == 0 {
					t.Error("no connection was evicted")
				}
				stdin.Close()
				if r := client.Wait(kit.Limit); r.Status != 0 {
					t.Error(r)
				}
				server.Signal(syscall.SIGTERM)
				if r := server.Wait(kit.Limit); r.Stdout != "ready\nreset by the client\n" || strings.Count(r.Stderr, "published ports wait for the stack") != 1 {
					t.Error(r)
				}
			})
		}
	}
}

// TestGatewayKernelSealed checks what the process of the gateway's kernel has left of its
// rights, and that its end is reported.
func TestGatewayKernelSealed(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	name := kit.NewName()
	k := kit.StartTalker(t, name, host.Command(kit.Bin("lklrun"), "-q", "--name", name, "--", "/usr/bin/python3", "-uc", kit.TalkerProgram))
	if got := k.Say("socket.create_connection((%q, 7)).sendall(b'x')", nearPeer); got != "None" {
		t.Fatal(got)
	}
	pid := kernelOf(t, name)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	kit.Must(t, err)
	for _, line := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t2"} {
		if !strings.Contains(string(status), "\n"+line+"\n") {
			t.Errorf("not %q:\n%s", line, status)
		}
	}
	for _, kind := range []string{"net", "mnt"} {
		own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		kit.Must(t, err)
		for _, other := range []int{os.Getpid(), os.Getppid()} {
			if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", other, kind)); err != nil || own == theirs {
				t.Errorf("namespace %s: %s, that of %d is %s, %v", kind, own, other, theirs, err)
			}
		}
	}
	kit.Must(t, unix.Kill(pid, unix.SIGKILL))
	const message = "the gateway's kernel has ended, so the interface does not work any more"
	kit.WaitFor(t, "the message", kit.Limit, func() bool {
		_, errs := k.Proc.Output()
		return strings.Contains(errs, message)
	})
	k.End()
}

//go:embed testdata/gatewaylate.py
var gatewayLate string

// TestGatewayLate checks the kernel that starts with the first connection: it starts only then,
// and neither connections nor datagrams are lost or delayed meanwhile.
func TestGatewayLate(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	for _, engine := range []string{"supervise", "preload"} {
		name := kit.NewName()
		cmd := host.Command(kit.Bin("lklrun"), "--name", name, "--engine", engine, "--", "/usr/bin/python3", "-uc", gatewayLate, nearPeer)
		stdin, err := cmd.StdinPipe()
		kit.Must(t, err)
		p := kit.Start(t, cmd)
		output := func(want string) {
			kit.WaitFor(t, want, 2*kit.Limit, func() bool {
				out, _ := p.Output()
				return out == want || !p.Running()
			})
		}
		output("datagrams\n")
		if n := gatewayCount(t, name, "eth0.gateway.kernel"); n != 0 {
			t.Errorf("%s: the kernel runs without a connection", engine)
		}
		_, err = stdin.Write([]byte("\n"))
		kit.Must(t, err)
		output("datagrams\n300 connections: True\nall datagrams: True\n")
		if n := gatewayCount(t, name, "eth0.gateway.kernel"); n != 1 {
			t.Errorf("%s: the kernel does not run", engine)
		}
		stdin.Close()
		if r := p.Wait(kit.Limit); r.Status != 0 || r.Stdout != "datagrams\n300 connections: True\nall datagrams: True\n" || r.Stderr != "" {
			t.Error(engine, r)
		}
	}
}

// TestGatewayTCP checks the key that says where TCP connections end.
func TestGatewayTCP(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	for flags, want := range map[string]struct {
		status int
		stderr string
	}{
		"--if user,tcp=lklrun": {0, ""},
		"--if user,tcp=linux":  {0, ""},
		"--if user,tcp=other":  {2, "expected linux or lklrun"},
	} {
		args := slices.Concat([]string{kit.Bin("lklrun"), "-q", "--name", kit.NewName()}, strings.Fields(flags), []string{"--", "/usr/bin/python3", "-c", "import socket; socket.create_connection(('" + nearPeer + "', 7))"})
		r := kit.Run(t, kit.Limit, host.Command(args...))
		if r.Status != want.status || !strings.Contains(r.Stderr, want.stderr) || strings.Count(r.Stderr, "\n") != min(want.status, 1) {
			t.Error(flags, r)
		}
	}
	// Without shared memory, connections end in lklrun, unless that is not permitted.
	for iface, status := range map[string]int{"user": 0, "user,tcp=linux": 2} {
		r := kit.Run(t, kit.Limit, host.Command("prlimit", "--fsize=1000000", kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--if", iface, "--",
			"/usr/bin/python3", "-c", "import socket; socket.create_connection(('"+nearPeer+"', 7))"))
		if r.Status != status || strings.Count(r.Stderr, "\n") != min(status, 1) {
			t.Error(iface, r)
		}
	}
}

//go:embed testdata/gatewaysegments.py
var gatewaySegments string

// TestGatewaySegments checks that segments of unknown connections are answered by RST, and that
// those of a connection are not.
func TestGatewaySegments(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	for _, iface := range gateways {
		r := kit.Run(t, 2*kit.Limit, host.Command(kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--if", iface+",mtu=1400", "--",
			"/usr/bin/python3", "-uc", gatewaySegments, nearPeer, nearPeer6))
		if r.Status != 0 || r.Stdout != "ACK: RST 7000\nSYN ACK: RST 7000\ndata: RST 7000\nFIN: RST ACK 1001\nRST: none\nIPv6: RST 7000\nfragments: RST 7000\nconnection: True\n" {
			t.Errorf("%s: %v", iface, r)
		}
	}
}

// kernelOf returns the process of the gateway's kernel of a run.
func kernelOf(t *testing.T, run string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	kit.Must(t, err)
	for _, f := range all {
		b, err := os.ReadFile(f)
		if args := strings.Split(string(b), "\x00"); err == nil && len(args) > 2 && args[1] == "--run" && strings.HasSuffix(args[2], "/"+run+"/gateway-eth0") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			kit.Must(t, err)
			return pid
		}
	}
	t.Fatal("there is no process of the gateway's kernel")
	return 0
}
