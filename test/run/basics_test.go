// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/terminal"
)

// TestOrdinaryUser checks that an ordinary user needs no set-up: no flag, no root, no
// runtime directory. One line explains that TCP ends at the gateway.
func TestOrdinaryUser(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	bin := kit.PublicBin(t)
	runtime := kit.Dir(t)
	kit.Host.Run(t, "chown", fmt.Sprint(kit.OrdinaryUID), runtime)
	for name, dir := range map[string]string{"without XDG_RUNTIME_DIR": "", "with XDG_RUNTIME_DIR": runtime} {
		for _, engine := range []string{"auto", "preload"} {
			t.Run(name+"/"+engine, func(t *testing.T) {
				before := kit.Take(t, s.Server)
				cmd := kit.AsUser(exec.Command(bin+"/lklrun", "--engine", engine, "--", "curl", "-s", kit.ServerURL+"/hello"), dir)
				r := kit.Run(t, kit.Limit, cmd)
				if r.Status != 0 || r.Stdout != "hello\n" {
					t.Fatalf("curl: %v", r)
				}
				if r.Stderr != "" {
					t.Errorf("lklrun said %q", r.Stderr)
				}
				before.Same()
			})
		}
	}
}

// TestGatewayHint checks that a terminal shows what the gateway cannot do. In the output of
// a script, see TestOrdinaryUser, it would be in the way.
func TestGatewayHint(t *testing.T) {
	kit.NewSite(t)
	terminal.New(t, 120, 10, kit.Lklrun("--", "true")).Has("end at the user-mode gateway")
}

// A program is a command that must work over each kind of interface.
type program struct {
	name string
	args []string
	want string // its standard output
}

//go:embed testdata/asyncio_fetch.py
var asyncioFetch string

//go:embed testdata/udp_sizes.py
var udpSizes string

func simplePrograms(s *kit.Site) []program {
	python := func(program string, args ...string) []string {
		return append([]string{"/usr/bin/python3", "-c", program}, args...)
	}
	get := func(path string) string { return kit.ServerURL + path }
	return []program{
		{"curl", []string{"curl", "-s", get("/hello")}, "hello\n"},
		{"static Go client", []string{kit.Probe(), "get", get("/hello")}, "hello\n"},
		{"three parallel curls", []string{"sh", "-c", fmt.Sprintf("for i in 1 2 3; do curl -s %s & done; wait", get("/hello"))}, "hello\nhello\nhello\n"},
		{"python3 asyncio", python(asyncioFetch, kit.ServerAddr),
			"[" + strings.Repeat("True, ", 9) + "True]\n"},
		{"UDP echo, static Go", []string{kit.Probe(), "udp", kit.ServerAddr + ":7", "ping"}, "ping\n"},
		{"UDP echo, python3 sendto", python(udpSizes, kit.ServerAddr), "ok\n"},
		{"name by curl", []string{"curl", "-s", "http://www.test/hello"}, "hello\n"},
		{"name by static Go", []string{kit.Probe(), "lookup", "www.test"}, kit.ServerAddr + "\n"},
		{"name by python3", python(`import socket; print(socket.gethostbyname("www.test"))`), kit.ServerAddr + "\n"},
		{"a name that is not", []string{"sh", "-c", "curl -s http://nowhere.test/; echo $?"}, "6\n"},
		{"a port nobody listens on", python(fmt.Sprintf(`
import socket
try: socket.create_connection((%q, 9), 10)
except ConnectionRefusedError: print("refused")`, kit.ServerAddr)), "refused\n"},
	}
}

// TestPrograms runs everyday programs, over the gateway and over a tap, with each engine. The
// engine preload runs those that consist of one process with a C library.
func TestPrograms(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	s.Server.Dnsmasq(t, map[string]string{"www.test": kit.ServerAddr})
	s.Server.EchoUDP(t, kit.ServerAddr+":7")
	for _, kind := range []struct{ name, spec string }{{"user", "user"}, {"tap", s.TapIf()}} {
		for _, p := range simplePrograms(s) {
			for _, engine := range []string{"supervise", "preload"} {
				if engine == "preload" && (p.args[0] == kit.Probe() || p.args[0] == "sh") {
					continue
				}
				t.Run(engine+"/"+kind.name+"/"+p.name, func(t *testing.T) {
					before := kit.Take(t, s.Server)
					r := kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"-q", "--engine", engine, "--if", kind.spec, "--dns", kit.ServerAddr, "--"}, p.args...)...))
					if r.Status != 0 || r.Stdout != p.want || r.Stderr != "" {
						t.Errorf("%q: %v\nwant: %s", p.args, r, p.want)
					}
					before.Same()
				})
			}
		}
	}
}

// TestStacks runs the same curl on each stack.
func TestStacks(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	for stack, cc := range map[string]string{"mptcp": "", "bbr": "bbr", "vanilla": "cubic"} {
		t.Run(stack, func(t *testing.T) {
			before := kit.Take(t, s.Server)
			r := kit.Run(t, kit.Limit, kit.Lklrun("--stack", stack, "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", fmt.Sprintf(`
import socket
s = socket.create_connection((%q, 80), 10)
print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode())`, kit.ServerAddr)))
			if r.Status != 0 || cc != "" && r.Stdout != cc+"\n" {
				t.Errorf("congestion control: %v\nwant: %s", r, cc)
			}
			before.Same()
		})
	}
}

// TestChecksum checks that a large file keeps its checksum, over IPv4 and IPv6.
func TestChecksum(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{MPTCP: true})
	kit.Random(t, s.Dir+"/file", 50<<20)
	want := strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", s.Dir+"/file")))[0]
	for _, url := range []string{kit.ServerURL, "http://[" + kit.ServerAddr6 + "]"} {
		r := kit.Run(t, kit.Limit, s.OnTap("sh", "-c", "curl -sf "+url+"/file | sha256sum"))
		if r.Status != 0 || !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("%s: %v, want %s", url, r, want)
		}
	}
}

// TestServers runs servers on the stack: nginx with two workers, and a static Go server.
// The host's own curl fetches files from them over IPv4 and IPv6.
func TestServers(t *testing.T) {
	s := kit.NewSite(t)
	kit.Random(t, s.Dir+"/file", 5<<20)
	want := strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", s.Dir+"/file")))[0]
	hosts := []string{kit.StackAddr, "[" + kit.StackAddr6 + "]"}

	t.Run("nginx with two workers", func(t *testing.T) {
		before := kit.Take(t, s.Server)
		dir := kit.Dir(t)
		p := kit.Start(t, s.OnTap(kit.Nginx{Root: s.Dir, Workers: 2}.Config(t, dir)...))
		kit.Answers(t, p, "http://"+kit.StackAddr+"/hello")
		for i := range 20 {
			got := kit.OK(t, kit.Limit, exec.Command("sh", "-c", "curl -sf http://"+hosts[i%2]+"/file | sha256sum"))
			if !strings.HasPrefix(got, want) {
				t.Fatalf("fetch %d by %s: %s, want %s", i, hosts[i%2], got, want)
			}
		}
		if n := strings.Count(kit.Host.Run(t, "ps", "-eo", "args"), "nginx: worker process"); n != 2 {
			t.Errorf("%d workers, want 2", n)
		}
		p.Signal(15)
		p.Wait(kit.Limit)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		before.Same()
	})
	t.Run("static Go server", func(t *testing.T) {
		before := kit.Take(t, s.Server)
		p := kit.Start(t, s.OnTap(kit.Probe(), "serve", ":80"))
		kit.Answers(t, p, "http://"+kit.StackAddr+"/x")
		got := kit.OK(t, kit.Limit, exec.Command("curl", "-sf", "http://"+kit.StackAddr+"/you"))
		if !strings.HasPrefix(got, "hello you from "+kit.HostAddr+":") {
			t.Errorf("the server saw %q, want the host's address %s", got, kit.HostAddr)
		}
		got = kit.OK(t, kit.Limit, exec.Command("curl", "-sf", "http://["+kit.StackAddr6+"]/you"))
		if !strings.HasPrefix(got, "hello you from ["+kit.HostAddr6+"]:") {
			t.Errorf("the server saw %q, want the host's address %s", got, kit.HostAddr6)
		}
		p.Signal(15)
		if r := p.Wait(kit.Limit); kit.ShellStatus(r) != 143 {
			t.Errorf("SIGTERM to lklrun ended it with %v", r)
		}
		before.Same()
	})
}

//go:embed testdata/udp_server.py
var udpServer string

// TestIPv6AndUDPServer checks a UDP server on the stack, and IPv6 from the stack.
func TestIPv6AndUDPServer(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	s.Server.EchoUDP(t, "["+kit.ServerAddr6+"]:7")
	if r := kit.Run(t, kit.Limit, s.OnTap("curl", "-s", "http://["+kit.ServerAddr6+"]/hello")); r.Stdout != "hello\n" {
		t.Errorf("curl by IPv6: %v", r)
	}
	if r := kit.Run(t, kit.Limit, s.OnTap(kit.Probe(), "udp", "["+kit.ServerAddr6+"]:7", "six")); r.Stdout != "six\n" {
		t.Errorf("UDP by IPv6: %v", r)
	}
	p := kit.Start(t, s.OnTap("/usr/bin/python3", "-uc", udpServer))
	kit.WaitFor(t, "the UDP server", kit.Limit, func() bool { out, _ := p.Output(); return out == "bound\n" })
	for _, text := range []string{"first", "second", "end"} {
		got := kit.OK(t, kit.Limit, exec.Command(kit.Probe(), "udp", kit.StackAddr+":7777", text))
		if got != strings.ToUpper(text)+"\n" {
			t.Errorf("UDP server: %q", got)
		}
	}
	if r := p.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("the UDP server: %v", r)
	}
}

// TestNoBypass checks that no connection bypasses the stack. Servers that only the host
// can reach must be unreachable by TCP, by UDP, and from programs that no library could
// intercept.
func TestNoBypass(t *testing.T) {
	s := kit.NewSite(t)
	// Only the host, not the stack, is connected to this second network.
	hidden := kit.NewNetns(t, "hidden")
	kit.Veth(t, kit.Host, "h0", hidden, "h1")
	kit.Host.Addr(t, "h0", "10.74.0.2/24")
	hidden.Addr(t, "h1", "10.74.0.1/24")
	hidden.Nginx(t, kit.Nginx{Root: s.Dir})
	hidden.EchoUDP(t, "10.74.0.1:7")
	l := kit.Host.Listen(t, "127.0.0.1:8099")
	go func() { _ = http.Serve(l, http.NotFoundHandler()) }() // ends with the listener
	reach := [][]string{
		{"curl", "-s", "-m", "3", "http://10.74.0.1/hello"},
		{"curl", "-s", "-m", "3", "http://127.0.0.1:8099/"},
		{kit.Probe(), "dial", "127.0.0.1:8099"},
		{"timeout", "3", kit.Probe(), "dial", "10.74.0.1:80"},
		{"timeout", "3", kit.Probe(), "udp", "10.74.0.1:7", "x"},
		{"timeout", "3", "/usr/bin/python3", "-c", "import socket; socket.create_connection(('10.74.0.1', 80))"},
	}
	for _, args := range reach[:2] { // the servers exist, because the host reaches them
		if r := kit.Run(t, kit.Limit, exec.Command(args[0], args[1:]...)); r.Status != 0 {
			t.Fatalf("the host itself: %v", r)
		}
	}
	for _, args := range reach {
		if r := kit.Run(t, kit.Limit, s.OnTap(args...)); r.Status == 0 {
			t.Errorf("%s reached the host's network: %v", strings.Join(args, " "), r)
		}
	}
	// The target does not see the host's devices.
	r := kit.Run(t, kit.Limit, s.OnTap("cat", "/proc/net/dev"))
	for _, dev := range []string{" br0:", " h0:", " v0:"} {
		if strings.Contains(r.Stdout, dev) {
			t.Errorf("the target sees the host's %s", dev)
		}
	}
}

// TestTransparency checks, with each engine, that the target keeps its standard streams,
// directory, environment, including a library that it preloads, and descriptors. It must not pass
// a library of lklrun's on to its children.
func TestTransparency(t *testing.T) {
	s := kit.NewSite(t)
	const text = `cat; pwd; echo "$MARK"; echo err >&2; env | grep -E '^(LKL|lkl|LD_)' | grep -v ^LKLRUN_NAME=; umask; ulimit -n; ps -o ni= -p $$`
	for _, engine := range []string{"supervise", "preload"} {
		for _, env := range [][]string{{"MARK=mark"}, {"MARK=x", "LD_PRELOAD=libz.so.1"}} {
			run := func(cmd *exec.Cmd) kit.Result {
				cmd.Stdin, cmd.Dir = strings.NewReader("in\n"), "/usr"
				cmd.Env = append(os.Environ(), env...)
				return kit.Run(t, kit.Limit, cmd)
			}
			want := run(exec.Command("sh", "-c", text))
			got := run(kit.Lklrun("--engine", engine, "--if", s.TapIf(), "--", "sh", "-c", text))
			if got.Stdout != want.Stdout || got.Stderr != want.Stderr || got.Status != want.Status {
				t.Errorf("%s, %v: under lklrun: %v\nwithout: %v", engine, env, got, want)
			}
		}
	}

	// The target has the same descriptors as without lklrun, and none of lklrun's.
	numbers := []string{"sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"}
	wantFDs := kit.OK(t, kit.Limit, exec.Command(numbers[0], numbers[1:]...))
	if gotFDs := kit.OK(t, kit.Limit, s.OnTap(numbers...)); gotFDs != wantFDs {
		t.Errorf("the target has descriptors %s, without lklrun %s", gotFDs, wantFDs)
	}
}

//go:embed testdata/connect_at_once.py
var connectAtOnce string

// TestConnectionsAtOnce makes hundreds of connections at the same moment, repeatedly. No
// connection may hang. A lost event causes a failure in some runs, but not in every run.
func TestConnectionsAtOnce(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{Workers: 2})
	r := kit.Run(t, time.Minute, s.OnTap("/usr/bin/python3", "-c", connectAtOnce, kit.ServerAddr))
	if want := strings.Repeat("400\n", 8); r.Stdout != want {
		t.Errorf("8 times 400 connections at once: %v", r)
	}
}
