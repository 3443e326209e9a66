// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// The address of the stack on the first path.
const stackAddr = "10.74.1.2"

// command is a command line of lklrun on the first path.
func (k kernel) command(p *kit.PathSite, args ...string) *exec.Cmd {
	return p.Host.Command(append([]string{
		kit.Bin("lklrun"), "--name", p.Instance, "--stack", k.stack, "--engine", k.engine, "--if", p.Ifs[0], "--",
	}, args...)...)
}

// serve starts a server on the stack and waits until it listens.
func (k kernel) serve(p *kit.PathSite, port int, args ...string) *kit.Proc {
	p.Helper()
	server := kit.Start(p, k.command(p, args...))
	up := kit.Within(kit.Limit, func() bool { return !server.Running() || kit.StackListens(p.T, p.Instance, port) })
	if out, errs := server.Output(); !up || !server.Running() {
		p.Fatalf("%s does not listen on port %d:\n%s%s", args[0], port, out, errs)
	}
	return server
}

// stop ends a server, which must have served until then.
func stop(p *kit.PathSite, server *kit.Proc) {
	p.Helper()
	server.Signal(syscall.SIGTERM)
	if r := server.Wait(kit.Limit); r.Status != 0 && r.Signal != syscall.SIGTERM {
		p.Errorf("the server: %v", r)
	}
}

// files makes a directory with a file, and returns the file's checksum.
func files(t *testing.T) (dir, sum string) {
	t.Helper()
	dir = kit.Dir(t)
	kit.Random(t, filepath.Join(dir, "file"), 5<<20)
	return dir, checksum(t, filepath.Join(dir, "file"))
}

func checksum(t *testing.T, file string) string {
	t.Helper()
	return strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", file)))[0]
}

// curl fetches from a server that speaks MPTCP.
func curl(t *testing.T, k kernel) {
	kit.Need(t, "curl", "nginx", "mptcpize")
	p := kit.NewPathSite(t)
	dir, want := files(t)
	p.Server.Nginx(t, kit.Nginx{Root: dir, MPTCP: true})
	got := filepath.Join(dir, "got")
	kit.OK(t, kit.Limit, k.command(p, "curl", "-sSf", "-o", got, "http://"+p.Addr+"/file"))
	if checksum(t, got) != want {
		t.Error("curl has received other bytes")
	}
}

// nginx serves a client of plain TCP, and one of MPTCP.
func nginx(t *testing.T, k kernel) {
	kit.Need(t, "curl", "nginx", "mptcpize")
	p := kit.NewPathSite(t)
	dir, want := files(t)
	server := k.serve(p, 80, kit.Nginx{Root: dir}.Config(t, kit.Dir(t))...)
	for _, client := range [][]string{{"curl"}, {"mptcpize", "run", "curl"}} {
		got := filepath.Join(dir, "got")
		kit.OK(t, kit.Limit, p.Server.Command(append(client, "-sSf", "-o", got, "http://"+stackAddr+"/file")...))
		if checksum(t, got) != want {
			t.Errorf("%s has received other bytes", strings.Join(client, " "))
		}
	}
	stop(p, server)
}

// static runs a static Go program, which no library can be loaded into.
func static(t *testing.T, k kernel) {
	kit.Need(t, "nginx")
	p := kit.NewPathSite(t)
	dir := kit.Dir(t)
	kit.WriteFile(t, filepath.Join(dir, "hello"), "hello\n")
	p.Server.Nginx(t, kit.Nginx{Root: dir})
	r := kit.Run(t, kit.Limit, k.command(p, kit.Probe(), "get", "http://"+p.Addr+"/hello"))
	if k.engine == "preload" {
		kit.OneLine(t, r, 2, "static program.*--engine supervise")
		return
	}
	if r.Status != 0 || r.Stdout != "hello\n" {
		t.Errorf("%v", r)
	}
}

// redis serves many clients. Meanwhile a capture shows their packets, and lklctl netstat
// a connection that waits for messages.
func redis(t *testing.T, k kernel) {
	kit.Need(t, "redis-server", "redis-benchmark", "redis-cli", "tshark")
	p := kit.NewPathSite(t)
	dir := kit.Dir(t)
	server := k.serve(p, 6379, "redis-server", "--save", "", "--dir", dir, "--bind", "0.0.0.0", "--protected-mode", "no")
	file := filepath.Join(dir, "redis.pcapng")
	capture := kit.Start(t, exec.Command(kit.Bin("lklctl"), "-n", p.Instance, "capture", "-i", "eth0", "-w", file, "tcp port 6379"))
	kit.WaitFor(t, "the capture", kit.Limit, func() bool {
		_, errs := capture.Output()
		return strings.Contains(errs, "capturing on") || !capture.Running()
	})
	said := kit.OK(t, kit.Limit, p.Server.Command("redis-benchmark", "-h", stackAddr, "-c", "50", "-P", "16", "-n", "10000", "-t", "set,get", "--csv"))
	if n := len(kit.Lines(said)); n != 3 { // a header, set and get
		t.Errorf("redis-benchmark: %s", said)
	}
	subscriber := kit.Start(t, p.Server.Command("redis-cli", "-h", stackAddr, "subscribe", "news"))
	kit.WaitFor(t, "the subscriber", kit.Limit, func() bool {
		out, _ := subscriber.Output()
		return strings.Contains(out, "news")
	})
	if got := connections(t, p.Instance); len(got) != 1 || !strings.HasPrefix(got[0], stackAddr+":6379 "+p.Addr+":") {
		t.Errorf("lklctl netstat shows the connections %q", got)
	}
	capture.Signal(syscall.SIGINT)
	if r := capture.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("the capture: %v", r)
	}
	syns := map[string]int{}
	for _, f := range kit.PacketFields(t, false, file, "tcp.flags.syn", "ip.src") {
		if f[0] == "1" || f[0] == "True" {
			syns[f[1]]++
		}
	}
	// redis-benchmark opens one more connection, and so does redis-cli.
	if syns[p.Addr] < 101 || syns[stackAddr] < 101 {
		t.Errorf("the capture has these SYNs: %v", syns)
	}
	stop(p, server)
}

// connections returns the established connections of a stack, as lklctl netstat shows them.
func connections(t *testing.T, name string) (list []string) {
	t.Helper()
	var sockets []struct{ State, Local, Remote string }
	text := kit.Lklctl(t, "-n", name, "-o", "json", "netstat")
	if err := json.Unmarshal([]byte(text), &sockets); err != nil {
		t.Fatalf("lklctl netstat: %v\n%s", err, text)
	}
	for _, s := range sockets {
		if s.State == "ESTAB" {
			list = append(list, s.Local+" "+s.Remote)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// paths moves data in both directions over two paths at once. At last, the program ends
// before its data has left: lklrun must still deliver it.
func paths(t *testing.T, k kernel) {
	const size = 20 << 20
	for _, what := range []string{"get", "put", "part"} {
		p := kit.NewPathSite(t)
		peer := p.Serve(what, size)
		target := kit.Start(t, p.Host.Command(
			kit.Bin("lklrun"), "--name", p.Instance, "--stack", k.stack, "--engine", k.engine, "--if", p.Ifs[0], "--if", p.Ifs[1], "--",
			"/usr/bin/python3", "-c", kit.TransferClient, p.Addr, peer.Port, what, fmt.Sprint(size)))
		p.Ended(target, peer, what, size)
		for n := range 2 {
			if carried := p.Carried(n); carried < size/8 {
				t.Errorf("%s: path %d has carried %d of %d bytes", what, n, carried, size)
			}
		}
	}
}
