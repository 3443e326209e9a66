// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

const (
	proxyAddr = "10.71.8.2"
	deepAddr  = "10.72.0.2"
)

// A proxySite is a host, a proxy, and a network that only the proxy reaches and whose names
// only the proxy resolves:
//
//	host v0 10.71.8.1 ─── n0 10.71.8.2 proxy 10.72.0.1 n1 ─── d0 10.72.0.2 deep
type proxySite struct {
	*testing.T
	host, proxy, deep *kit.Netns
	dir               string
}

func newProxySite(t *testing.T) *proxySite {
	kit.Need(t, "ip", "dnsmasq", "dig", "tcpdump", "curl", "java", "microsocks", "danted", "tinyproxy")
	s := &proxySite{t, kit.NewNetns(t, "host"), kit.NewNetns(t, "proxy"), kit.NewNetns(t, "deep"), kit.Dir(t)}
	for _, n := range []*kit.Netns{s.host, s.proxy, s.deep} {
		n.Run(t, "ip", "link", "set", "lo", "up")
	}
	kit.Veth(t, s.host, "v0", s.proxy, "n0")
	kit.Veth(t, s.proxy, "n1", s.deep, "d0")
	s.host.Addr(t, "v0", "10.71.8.1/24")
	s.proxy.Addr(t, "n0", proxyAddr+"/24")
	s.proxy.Addr(t, "n1", "10.72.0.1/24")
	s.deep.Addr(t, "d0", deepAddr+"/24")
	kit.WriteFile(t, filepath.Join(s.dir, "www/hello"), "hello\n")
	s.deep.PythonHTTP(t, 80, filepath.Join(s.dir, "www"))
	s.deep.Dnsmasq(t, map[string]string{"inner.test": "192.0.2.77"})
	kit.WriteFile(t, filepath.Join(s.dir, "hosts"), "127.0.0.1 localhost\n"+deepAddr+" deep.test\n")
	return s
}

// starts starts a proxy on port 1080.
func (s *proxySite) starts(t *testing.T, kind string) *kit.Proc {
	t.Helper()
	command := []string{"microsocks", "-i", proxyAddr, "-p", "1080"}
	switch kind {
	case "login":
		command = append(command, "-u", "me", "-P", "se:cret")
	case "dante":
		command = []string{"danted", "-N", "1", "-f", kit.WriteFile(t, filepath.Join(s.dir, "danted.conf"), `logoutput: stderr
internal: `+proxyAddr+` port = 1080
external: n1
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: root
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`)}
	case "http":
		command = []string{"tinyproxy", "-d", "-c", kit.WriteFile(t, filepath.Join(s.dir, "tinyproxy.conf"), "Port 1080\nListen "+proxyAddr+"\nTimeout 60\nBasicAuth me secret\nConnectPort 80\nConnectPort 81\n")}
	}
	p := kit.Start(t, s.proxy.Command(append([]string{"unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, s.dir + "/hosts"}, command...)...))
	kit.WaitFor(t, "the proxy", kit.Limit, func() bool { return s.proxy.Listening(t, "t", 1080) || !p.Running() })
	return p
}

// command returns a command behind a proxy.
func (s *proxySite) command(proxy string, command ...string) *exec.Cmd {
	return s.host.Command(append([]string{kit.Bin("lklrun"), "--name", kit.NewName(), "-q", "--proxy"}, append(append(strings.Fields(proxy), "--"), command...)...)...)
}

// tryConnect prints the error of a connection.
const tryConnect = `
import errno, socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    print("connected")
except socket.gaierror as e:
    print("EAI_NONAME" if e.errno == socket.EAI_NONAME else e)
except OSError as e:
    print(errno.errorcode[e.errno])
`

// TestProxy checks that programs reach a network through proxies of several kinds, which
// resolve the names, and that the host sends packets only to the proxy.
func TestProxy(t *testing.T) {
	t.Parallel()
	s := newProxySite(t)
	outside := kit.StartTcpdump(t, s.host.Command("tcpdump", "-lni", "v0", fmt.Sprintf("ip and not host %s", proxyAddr)))
	hello := []string{"curl", "-sS", "-m", "20", "http://deep.test/hello"}
	try := func(host string, port int) []string {
		return []string{"/usr/bin/python3", "-c", tryConnect, host, fmt.Sprint(port)}
	}
	dig := func(args ...string) []string {
		return append([]string{"dig", "+short", "+tries=1", "+time=5", "@" + deepAddr}, args...)
	}
	policy := kit.WriteFile(t, filepath.Join(s.dir, "policy.json"), `{"allow": [{"to": "deep.test", "ports": 80}]}`)
	get := kit.WriteFile(t, filepath.Join(s.dir, "Get.java"), `class Get {
    public static void main(String[] a) throws Exception { new java.net.URL(a[0]).openStream().transferTo(System.out); }
}`)
	for _, tt := range []struct {
		name, kind, proxy string
		command           []string
		stdout, stderr    string
		status            int
	}{
		{"a name", "socks", "socks5://10.71.8.2:1080", hello, "hello\n", "", 0},
		{"an address", "socks", "socks5h://10.71.8.2:1080", []string{"curl", "-sS", "http://" + deepAddr + "/hello"}, "hello\n", "", 0},
		{"a static program", "socks", "socks5://10.71.8.2:1080", []string{kit.Probe(), "get", "http://deep.test/hello"}, "hello\n", "", 0},
		{"Java", "socks", "socks5://10.71.8.2:1080", []string{"java", get, "http://deep.test/hello"}, "hello\n", "", 0},
		{"Java by HTTP", "http", "http://me:secret@10.71.8.2:1080", []string{"java", get, "http://deep.test/hello"}, "hello\n", "", 0},
		{"engine preload", "socks", "socks5://10.71.8.2:1080 --engine preload", hello, "hello\n", "", 0},
		{"engine trace", "socks", "socks5://10.71.8.2:1080 --engine trace", hello, "hello\n", "", 0},
		{"a kernel", "socks", "socks5://10.71.8.2:1080 --if user,tcp=linux", hello, "hello\n", "", 0},
		{"a kernel, a closed port", "socks", "socks5://10.71.8.2:1080 --if user,tcp=linux", try("deep.test", 81), "ECONNREFUSED\n", "", 0},
		{"a kernel, the host", "socks", "socks5://10.71.8.2:1080 --if user,tcp=linux", try("192.168.127.254", 80), "EHOSTUNREACH\n", "", 0},
		{"a kernel, a policy", "socks", "socks5://10.71.8.2:1080 --if user,tcp=linux --egress " + policy, []string{"curl", "-sS", "-m", "20", "-H", "Host: other.test", "http://deep.test/hello"}, "", `the program asks HTTP for "other.test"`, 56},
		{"a login", "login", "socks5://me:se%3acret@10.71.8.2:1080", hello, "hello\n", "", 0},
		{"a wrong login", "login", "socks5://me:other@10.71.8.2:1080", hello, "", "the proxy socks5://me:...@10.71.8.2:1080 does not work, so nothing is reached: it wants another user or password", 7},
		{"no login", "login", "socks5://10.71.8.2:1080", hello, "", "it wants another way to log in", 7},
		{"a closed port", "socks", "socks5://10.71.8.2:1080", try("deep.test", 81), "ECONNREFUSED\n", "", 0},
		{"UDP", "dante", "socks5://10.71.8.2:1080", dig("inner.test"), "192.0.2.77\n", "", 0},
		{"DNS over TCP", "dante", "socks5://10.71.8.2:1080", dig("+tcp", "inner.test"), "192.0.2.77\n", "", 0},
		{"no UDP", "socks", "socks5://10.71.8.2:1080", dig("inner.test"), "", "", 9},
		{"HTTP", "http", "http://me:secret@10.71.8.2:1080", hello, "hello\n", "", 0},
		{"HTTP without login", "http", "http://10.71.8.2:1080", hello, "", "it wants another user or password", 7},
		{"HTTP, a closed port", "http", "http://me:secret@10.71.8.2:1080", try("deep.test", 81), "EHOSTUNREACH\n", "", 0},
		{"HTTP, no UDP", "http", "http://me:secret@10.71.8.2:1080", dig("inner.test"), "", "", 9},
		{"another kind", "socks", "http://10.71.8.2:1080", hello, "", "does not work, so nothing is reached: EOF", 7},
		{"a dead proxy", "", "socks5://10.71.8.2:1080", hello, "", "does not work, so nothing is reached", 7},
		{"the host", "socks", "socks5://10.71.8.2:1080", try("192.168.127.254", 80), "EHOSTUNREACH\n", "", 0},
		{"the gateway", "socks", "socks5://10.71.8.2:1080", try("192.168.127.1", 80), "EHOSTUNREACH\n", "", 0},
		{"an address that no name has", "socks", "socks5://10.71.8.2:1080", try("198.18.9.9", 80), "EHOSTUNREACH\n", "", 0},
		{"no host name", "socks", "socks5://10.71.8.2:1080", try("a b.test", 80), "EAI_NONAME\n", "", 0},
		{"an allowed name", "socks", "socks5://10.71.8.2:1080 --allow deep.test", hello, "hello\n", "", 0},
		{"a name that is not allowed", "socks", "socks5://10.71.8.2:1080 --allow other.test", hello, "", "refused the name deep.test", 6},
		{"a policy", "socks", "socks5://10.71.8.2:1080 --egress " + policy, hello, "hello\n", "", 0},
		{"another host than the policy's", "socks", "socks5://10.71.8.2:1080 --egress " + policy, []string{"curl", "-sS", "-m", "20", "-H", "Host: other.test", "http://deep.test/hello"}, "", `the program asks HTTP for "other.test"`, 56},
		{"an audit", "socks", "socks5://10.71.8.2:1080 --egress audit:" + s.dir + "/audit", hello, "hello\n", "", 0},
		{"what the audit wrote", "socks", "socks5://10.71.8.2:1080 --egress " + s.dir + "/audit", hello, "hello\n", "", 0},
		{"ping", "socks", "socks5://10.71.8.2:1080", []string{"ping", "-c", "1", "-W", "1", deepAddr}, "", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.kind != "" {
				s.starts(t, tt.kind)
			}
			r := kit.Run(t, 2*kit.Limit, s.command(tt.proxy, tt.command...))
			if r.Status != tt.status || tt.status == 0 && r.Stdout != tt.stdout || !strings.Contains(r.Stderr, tt.stderr) || strings.Contains(r.Stderr, "cret") {
				t.Errorf("want status %d, %q and %q: %v", tt.status, tt.stdout, tt.stderr, r)
			}
		})
	}
	// The last packet shows that tcpdump has seen the others.
	kit.Run(t, kit.Limit, s.host.Command("arping", "-c", "1", "-I", "v0", "10.71.8.9"))
	s.host.Run(t, "ip", "neigh", "add", "10.71.8.9", "lladdr", "02:00:00:00:00:99", "dev", "v0")
	kit.Run(t, kit.Limit, s.host.Command("ping", "-c", "1", "-W", "1", "10.71.8.9"))
	if lines := outside.Until(1); !strings.Contains(lines[0], "10.71.8.9: ICMP echo request") {
		t.Errorf("packets beside the proxy: %q", lines)
	}
}

// TestProxyDead checks that no packet leaves the host beside those to a proxy that does not
// work.
func TestProxyDead(t *testing.T) {
	t.Parallel()
	host, net, command := egressSite(t, map[string]string{"good.test": egressGood, "evil.test": egressEvil})
	heard := recorder(t, net)
	outside := kit.StartTcpdump(t, host.Command("tcpdump", "-lni", "v0", "ip and not (host 10.71.8.2 and tcp port 1080)"))
	r := kit.Run(t, 2*kit.Limit, command(kit.Bin("lklrun"), "--name", kit.NewName(), "-q", "--proxy", "socks5://"+egressGood+":1080", "--",
		"sh", "-c", `/usr/bin/python3 -c "$@"; dig +tries=1 +time=2 @`+egressGood+` good.test; dig +tcp +tries=1 +time=2 @`+egressGood+` good.test; ping -c 1 -W 1 `+egressGood+"; echo done",
		"sh", senders, egressGood, egressEvil, egressHost, "10.71.8.255", "255.255.255.255", "224.0.0.251", "192.168.127.1", "192.168.127.254", "198.18.0.1", "169.254.169.254",
		"::ffff:"+egressEvil, "64:ff9b::a47:803", "2002:a47:803::1", "fe80::1%eth0", "ff02::1%eth0", "good.test", "evil.test", "localhost"))
	if r.Status != 0 || !strings.HasSuffix(r.Stdout, "done\n") || !strings.Contains(r.Stderr, "does not work, so nothing is reached: dial tcp 10.71.8.2:1080") {
		t.Error(r)
	}
	for _, to := range []string{egressGood, egressEvil, "10.71.8.255", "255.255.255.255", "good.test"} {
		if heard("udp", to) || heard("tcp", to) {
			t.Errorf("a packet to %s left the host", to)
		}
	}
	host.Run(t, "ip", "neigh", "add", "10.71.8.9", "lladdr", "02:00:00:00:00:99", "dev", "v0")
	kit.Run(t, kit.Limit, host.Command("ping", "-c", "1", "-W", "1", "10.71.8.9"))
	if lines := outside.Until(1); !strings.Contains(lines[0], "10.71.8.9: ICMP echo request") {
		t.Errorf("packets beside the proxy: %q", lines)
	}
}

// TestProxyOptions checks that other ways to the network, and malformed proxies, are refused
// in one line, and that no output has the password.
func TestProxyOptions(t *testing.T) {
	t.Parallel()
	const proxy = "socks5://me:hidden@192.0.2.1:1080"
	for want, args := range map[string][]string{
		"use --if user":           {"--proxy", proxy, "--if", "tap:tap0,ip=10.0.0.1/24"},
		"one interface":           {"--proxy", proxy, "--if", "user", "--if", "user"},
		"remove --host-net":       {"--proxy", proxy, "--host-net", "127.0.0.1"},
		"remove --publish":        {"--proxy", proxy, "--publish", "8080:80"},
		"remove --dns":            {"--proxy", proxy, "--dns", "192.0.2.1"},
		"host's own kernel":       {"--proxy", proxy, "--stack", "host"},
		"unknown kind of proxy":   {"--proxy", "ftp://x:1"},
		"the host or the port is": {"--proxy", "socks5://me:hidden@x"},
		"the host or the port":    {"--proxy", "socks5://me:hidden@x:1/path"},
		"need 1 to 255 bytes":     {"--proxy", "socks5://me:hidd%2@x:1"},
		"is missing or malformed": {"--proxy", "socks5://me:hidden@[::1:1"},
		"lookup none.invalid":     {"--proxy", "socks5://me:hidden@none.invalid:1"},
	} {
		r := kit.Run(t, kit.Limit, kit.Lklrun(append(args, "--", "true")...))
		kit.OneLine(t, r, 2, want)
		if strings.Contains(r.Stderr, "hidden") {
			t.Errorf("the line has the password: %s", r.Stderr)
		}
	}
	out := kit.OK(t, kit.Limit, kit.Lklrun("--dry-run", "--proxy", proxy, "--", "true")) +
		kit.OK(t, kit.Limit, kit.Lklrun("--dry-run", "-o", "json", "--proxy", proxy, "--", "true"))
	if !strings.Contains(out, "through the proxy socks5://me:...@192.0.2.1:1080") || strings.Contains(out, "hidden") {
		t.Error(out)
	}
	name := kit.NewName()
	p := kit.Start(t, kit.Lklrun("-q", "--name", name, "--proxy", proxy, "--", "sh", "-c", "echo ready; exec sleep 1000"))
	kit.WaitFor(t, "the program", kit.Limit, func() bool { out, _ := p.Output(); return out == "ready\n" || !p.Running() })
	if r := kit.Run(t, kit.Limit, exec.Command("grep", "-rl", "hidden", "/run/lklrun/"+name)); r.Stdout != "" {
		t.Errorf("files with the password: %s", r.Stdout)
	}
}

// mute accepts connections and does not answer. It prints how many were open at once, when it
// has accepted a number of them or all have ended.
const mute = `
import selectors, socket, sys
l = socket.create_server((sys.argv[1], 1080), backlog=4096)
s = selectors.DefaultSelector()
s.register(l, selectors.EVENT_READ)
accepted = now = most = 0
while accepted < int(sys.argv[2]) and (now or accepted < 20):
    for key, _ in s.select():
        if key.fileobj is l:
            c, _ = l.accept()
            s.register(c, selectors.EVENT_READ)
            accepted, now = accepted + 1, now + 1
            most = max(most, now)
        elif not key.fileobj.recv(100):
            s.unregister(key.fileobj)
            key.fileobj.close()
            now -= 1
print("most", most, flush=True)
`

// TestProxyFlood checks that a program that sends datagrams to many ports makes a limited
// number of connections to a proxy that does not answer.
func TestProxyFlood(t *testing.T) {
	s := newProxySite(t)
	// Of the flows that the gateway gives up, some never connect, and on a busy machine others
	// stay for a moment.
	const flows, enough = 6000, 4000
	server := kit.Start(t, s.proxy.Command("/usr/bin/python3", "-c", mute, proxyAddr, fmt.Sprint(enough)))
	kit.WaitFor(t, "the proxy", kit.Limit, func() bool { return s.proxy.Listening(t, "t", 1080) || !server.Running() })
	cmd := s.command("socks5://"+proxyAddr+":1080", "/usr/bin/python3", "-c", fmt.Sprintf(`
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(%d):
    s.sendto(b"x", (%q, 10000 + i))
sys.stdin.read()
`, flows, deepAddr))
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	kit.Start(t, cmd)
	out := server.Wait(2 * kit.Limit)
	kit.Must(t, in.Close())
	most := 0
	if _, err := fmt.Sscanf(out.Stdout, "most %d", &most); err != nil || most == 0 || most == enough {
		t.Errorf("%d connections at once for %d flows: %v, %v", most, flows, out, err)
	}
}
