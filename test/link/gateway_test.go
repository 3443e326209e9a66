// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// TestGatewayPlain checks that the user-mode gateway carries the same data over shared memory
// and over a socket, which it uses if the host does not allow a file of the memory's size.
func TestGatewayPlain(t *testing.T) {
	t.Parallel()
	kit.Need(t, "nginx", "curl", "prlimit")
	host := kit.NewNetns(t, "host")
	dir := kit.Dir(t)
	content := bytes.Repeat([]byte("0123456789abcdef-"), 4<<20/17)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "file"), content, 0o644))
	host.Nginx(t, kit.Nginx{Root: dir})
	const message = "the gateway uses a socket instead of shared memory"
	for limit, plain := range map[string]bool{"unlimited": false, "1000000": true} {
		r := kit.Run(t, kit.Limit, host.Command("prlimit", "--fsize="+limit, kit.Bin("lklrun"), "-v", "--",
			"curl", "-sS", "http://192.168.127.254/file"))
		if r.Status != 0 || r.Stdout != string(content) {
			t.Errorf("file size %s: status %d, %d bytes of %d\n%s", limit, r.Status, len(r.Stdout), len(content), r.Stderr)
		}
		if strings.Contains(r.Stderr, message) != plain {
			t.Errorf("file size %s: standard error:\n%s", limit, r.Stderr)
		}
	}
}

//go:embed testdata/sends_once.py
var sendsOnce string

// TestGatewayIPv6Connected checks that the user-mode gateway offers IPv6 if the host has
// only a connected IPv6 network and no default route. When the host loses its address, a
// connect fails at once. When the host has an address again, a connect works again.
func TestGatewayIPv6Connected(t *testing.T) {
	t.Parallel()
	kit.Need(t, "ip", "nginx", "curl", "/usr/bin/python3")
	const server, ours = "fd71:9::1", "fd71:9::2/64"
	host, far := kit.NewNetns(t, "host"), kit.NewNetns(t, "server")
	kit.Veth(t, host, "v0", far, "s0")
	far.Addr(t, "s0", server+"/64")
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	far.Nginx(t, kit.Nginx{Root: dir})
	far.EchoUDP(t, "["+server+"]:9")
	name := kit.NewName()
	run := kit.Start(t, host.Command(kit.Bin("lklrun"), "--name", name, "--if", "user", "--", "sleep", "1000"))
	exec1 := func(args ...string) kit.Result {
		return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"-n", name, "exec", "--"}, args...)...))
	}
	kit.WaitFor(t, "the instance", kit.Limit, func() bool { return exec1("true").Status == 0 || !run.Running() })
	curl := func() kit.Result {
		return exec1("curl", "-6", "-sS", "-m", "20", fmt.Sprintf("http://[%s]/hello", server))
	}
	unreachable := func(when string) {
		t.Helper()
		r := curl()
		if r.Status != 7 || r.Took > 10*time.Second {
			t.Errorf("%s: %v after %v", when, r, r.Took)
		}
		// The engine supervise reports errors this way (docs/reference/limits.md).
		if r := exec1("/usr/bin/python3", "-c", sendsOnce, server); r.Stdout != "Connection reset by peer\n" {
			t.Errorf("%s, a datagram: %v", when, r)
		}
	}
	works := func(when string) {
		t.Helper()
		if r := curl(); r.Status != 0 || r.Stdout != "hello\n" {
			t.Errorf("%s: %v", when, r)
		}
		if r := exec1("/usr/bin/python3", "-c", sendsOnce, server); r.Stdout != "x\n" {
			t.Errorf("%s, a datagram: %v", when, r)
		}
	}
	unreachable("without an address")
	for range 2 {
		host.Addr(t, "v0", ours)
		works("with a connected network")
		host.Run(t, "ip", "addr", "del", ours, "dev", "v0")
		unreachable("after it has gone")
	}
	if out, errs := run.Output(); out != "" || strings.Count(errs, "\n") > 1 {
		t.Errorf("%s%s", out, errs)
	}
}

//go:embed testdata/floods_udp.py
var floodsUDP string

//go:embed testdata/floods_tcp.py
var floodsTCP string

// TestFinding10GatewayLimits checks a program that uses up the gateway's pairs of UDP
// ports, or its pending connections. The gateway must still serve other programs, and
// report the limit in one line and a counter.
func TestFinding10GatewayLimits(t *testing.T) {
	t.Parallel()
	kit.Need(t, "ip", "nginx", "prlimit", "/usr/bin/python3")
	const server, silent = "10.71.9.1", "10.71.9.2"
	for _, tc := range []struct{ name, iface, script, counter, warning, done string }{
		{"udp", "user", floodsUDP, "eth0.gateway.udp_evicted", "UDP port pairs at once", "alive\n"},
		{"tcp", "user,tcp=lklrun", floodsTCP, "eth0.gateway.connecting_evicted", "connections wait for an answer", "connected "},
		{"kernel", "user", floodsTCP, "eth0.gateway.connecting_evicted", "connections wait for an answer", "connected "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			host := kit.NewNetns(t, "host")
			host.Run(t, "ip", "link", "set", "lo", "up")
			kit.Veth(t, host, "v0", kit.NewNetns(t, "silent"), "s0")
			host.Addr(t, "v0", server+"/24")
			// No device has this Ethernet address, so packets to it are dropped.
			host.Run(t, "ip", "neigh", "add", silent, "lladdr", "02:00:00:00:00:02", "dev", "v0")
			dir := kit.Dir(t)
			kit.WriteFile(t, dir+"/hello", "hello\n")
			host.Nginx(t, kit.Nginx{Root: dir})
			host.EchoUDP(t, server+":9")
			name := kit.NewName()
			cmd := host.Command("prlimit", "--nofile=20000:20000", kit.Bin("lklrun"), "--name", name, "--if", tc.iface, "--",
				"/usr/bin/python3", "-c", tc.script, server, silent)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			p := kit.Start(t, cmd)
			kit.WaitFor(t, "the program", 2*kit.Limit, func() bool {
				out, _ := p.Output()
				return strings.Contains(out, tc.done) || !p.Running()
			})
			out, _ := p.Output()
			if tc.name != "udp" {
				took, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(out, tc.done)), 64)
				if err != nil || took > 1 {
					t.Errorf("a connection took %v s: %v\n%s", took, err, out)
				}
			}
			if n := gatewayCount(t, name, tc.counter); n == 0 {
				t.Errorf("%s is 0", tc.counter)
			}
			stdin.Close()
			r := p.Wait(kit.Limit)
			if r.Status != 0 || !strings.Contains(r.Stdout, tc.done) || strings.Count(r.Stderr, tc.warning) != 1 {
				t.Error(r)
			}
		})
	}
}

// gatewayCount returns one of the gateway counters of a run.
func gatewayCount(t *testing.T, name, counter string) int {
	t.Helper()
	var all map[string]int
	out := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "counters", "-o", "json", counter)).Stdout
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Errorf("lklctl counters: %v\n%s", err, out)
	}
	return all[counter]
}

// TestLoopbackHint checks the line about a server that listens on the host's loopback
// interface, and not on the stack's: it appears once and names only what works.
func TestLoopbackHint(t *testing.T) {
	kit.Need(t, "curl")
	host := kit.NewNetns(t, "host")
	host.Tap(t, "tap0")
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	host.Nginx(t, kit.Nginx{Root: dir, Port: 8080})
	const (
		start   = "nothing listens on the stack's own 127.0.0.1:8080; to reach the host's server there, "
		gateway = "connect to 192.168.127.254:8080"
		hostNet = "use --host-net 127.0.0.1:8080"
		four    = "http://127.0.0.1:8080/hello"
	)
	get := func(urls ...string) []string { return append([]string{"curl", "-sm", "20"}, urls...) }
	blocking := []string{"/usr/bin/python3", "-c", `import socket; socket.socket().connect_ex(("127.0.0.1", 8080))`}
	for name, c := range map[string]struct {
		flags   string
		command []string
		want    string // the line; "" if there must be none
		stdout  string
	}{
		"gateway":           {"", get(four, four), start + gateway + " or " + hostNet, ""},
		"any address":       {"", get("http://0.0.0.0:8080/hello", four), start + gateway + " or " + hostNet, ""},
		"IPv6":              {"", get("http://[::1]:8080/hello"), "nothing listens on the stack's own [::1]:8080; to reach the host's server there, " + gateway + " or use --host-net [::1]:8080", ""},
		"blocking":          {"", blocking, start + gateway + " or " + hostNet, ""},
		"preload":           {"--engine preload", get(four, four), start + gateway, ""},
		"blocking, preload": {"--engine preload", blocking, start + gateway, ""},
		"tap":               {"--if tap:tap0,ip=192.0.2.2/24", get(four), start + hostNet, ""},
		"tap, preload":      {"--engine preload --if tap:tap0,ip=192.0.2.2/24", get(four), "", ""},
		"quiet":             {"-q", get(four), "", ""},
		"nobody listens":    {"", get("http://127.0.0.1:8081/"), "", ""},
		"first advice":      {"", get("http://192.168.127.254:8080/hello"), "", "hello\n"},
		"second advice":     {"--host-net 127.0.0.1:8080", get(four), "", "hello\n"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{kit.Bin("lklrun"), "--name", kit.NewName()}, strings.Fields(c.flags)...)
			r := kit.Run(t, kit.Limit, host.Command(append(append(args, "--"), c.command...)...))
			var got []string
			for line := range strings.Lines(r.Stderr) {
				if strings.Contains(line, "the stack's own") {
					got = append(got, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "lklrun: "))
				}
			}
			if strings.Join(got, "\n") != c.want || r.Stdout != c.stdout {
				t.Errorf("%v\nwant %q", r, c.want)
			}
		})
	}
}
