// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"encoding/json"
	"fmt"
	stdnet "net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/egress.py
var egressTricks string

const egressGood, egressEvil, egressHost = "10.71.8.2", "10.71.8.3", "10.71.8.1"

// egressSite is a host and a network with a name server. command is a command line of
// the host, whose name server is the network's.
func egressSite(t *testing.T, names map[string]string) (host, net *kit.Netns, command func(args ...string) *exec.Cmd) {
	t.Helper()
	kit.Need(t, "ip", "dnsmasq", "unshare", "/usr/bin/python3")
	host, net = kit.NewNetns(t, "host"), kit.NewNetns(t, "net")
	host.Run(t, "ip", "link", "set", "lo", "up")
	net.Run(t, "ip", "link", "set", "lo", "up")
	kit.Veth(t, host, "v0", net, "n0")
	host.Addr(t, "v0", egressHost+"/24")
	net.Addr(t, "n0", egressGood+"/24", egressEvil+"/24")
	net.Dnsmasq(t, names)
	conf := kit.WriteFile(t, filepath.Join(kit.Dir(t), "resolv.conf"), "nameserver "+egressGood+"\n")
	return host, net, func(args ...string) *exec.Cmd {
		return host.Command(append([]string{"unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}, args...)...)
	}
}

// tricks maps the number of each trick of testdata/egress.py to its line for the user. The
// page docs/how-to/egress.md lists these and those of other tests.
var tricks = map[int]string{
	1:  `refused tcp 10\.71\.8\.3:80: no allowed name has resolved`,
	2:  `refused udp 10\.71\.8\.3:443: no allowed name has resolved`,
	3:  `refused udp 10\.71\.8\.3:53: only the gateway resolves names`,
	4:  `refused tcp 10\.71\.8\.3:53: only the gateway resolves names`,
	5:  `refused tcp 10\.71\.8\.3:853: only the gateway resolves names`,
	6:  `refused tcp 10\.71\.8\.3:443: no allowed name has resolved`,
	7:  `refused tcp 10\.71\.8\.2:8080: good\.test is only allowed on port 80`,
	8:  `refused the name evil\.test: --allow does not name it`,
	9:  `refused the name secret\.evil\.test: --allow does not name it`,
	10: `refused the name good\.test: only addresses`,
	11: `refused the name n\.wild\.test: only addresses`,
	12: `refused the name any\.wild\.test: only addresses`,
	13: `refused the name \(malformed query\): the query is malformed`,
	14: `refused the name good\.test\.evil2\.test: --allow does not name it`,
	15: `refused the name a\?b\.wild\.test: --allow does not name it`,
	16: `refused tcp 192\.168\.127\.254:7777: it stands for a loopback address`,
	17: `refused tcp 10\.71\.8\.1:7777: no allowed name has resolved`,
	18: `ignored the address 127\.0\.0\.1 in the answer for rebind\.wild\.test: it is an address of this machine`,
	19: `ignored the address 10\.71\.8\.1 in the answer for self\.wild\.test: it is an address of this machine`,
	20: `refused tcp 169\.254\.169\.254:80: it is a link-local address`,
	21: `refused icmp 10\.71\.8\.3: only TCP and UDP can be allowed`,
	22: `refused tcp 10\.71\.8\.3:81: no allowed name has resolved`,
	23: `refused tcp \[2001:db8::3\]:80: no allowed name has resolved`,
	24: `refused tcp 10\.71\.8\.3:82: no allowed name has resolved`,
	25: `refused udp 255\.255\.255\.255:67: it is a multicast or broadcast address`,
	26: `refused tcp \[64:ff9b::a47:803\]:80: no allowed name has resolved`,
	27: `refused tcp \[2002:a47:803::1\]:80: no allowed name has resolved`,
	28: `refused udp 169\.254\.169\.254:123: it is a link-local address`,
	29: `refused udp \[2001:db8::53\]:53: only the gateway resolves names`,
	30: `refused IP protocol 47 10\.71\.8\.3: only TCP and UDP can be allowed`,
	31: `refused IP protocol 132 10\.71\.8\.3: only TCP and UDP can be allowed`,
	32: `refused udp 10\.71\.8\.3:444: no allowed name has resolved`,
	33: `refused the name chaos\.wild\.test: only addresses`,
	34: `refused tcp 10\.71\.8\.3:85: no allowed name has resolved`,
	35: `refused IP protocol 136 10\.71\.8\.3: only TCP and UDP can be allowed`,
	36: `ignored the address 169\.254\.169\.254 in the answer for meta\.wild\.test: it is a link-local address`,
	37: `ignored the address 224\.0\.0\.9 in the answer for multi\.wild\.test: it is a multicast or broadcast address`,
	38: `ignored the address 192\.168\.127\.254 in the answer for alias\.wild\.test: it stands for a loopback address`,
	51: `refused udp 10\.71\.8\.3:446: no allowed name has resolved`,
	52: `refused udp 10\.71\.8\.3:447: no allowed name has resolved`,
	53: `refused udp 10\.71\.8\.3:853: only the gateway resolves names`,
	54: `refused icmp \[?2001:db8::3\]?: only TCP and UDP can be allowed`,
	55: `refused IP protocol 41 10\.71\.8\.3: only TCP and UDP can be allowed`,
	56: `refused IP protocol 4 10\.71\.8\.3: only TCP and UDP can be allowed`,
	57: `refused IP protocol 50 10\.71\.8\.3: only TCP and UDP can be allowed`,
	58: `refused IP protocol 33 10\.71\.8\.3: only TCP and UDP can be allowed`,
}

// TestEgressTricks tries to get around --allow. No trick works, and each is reported in one
// line. The account names all of them.
func TestEgressTricks(t *testing.T) {
	t.Parallel()
	host, net, command := egressSite(t, map[string]string{
		"good.test": egressGood, "evil.test": egressEvil, "secret.evil.test": egressEvil, "good.test.evil2.test": egressEvil,
		"rebind.wild.test": "127.0.0.1", "self.wild.test": egressHost,
		"meta.wild.test": "169.254.169.254", "multi.wild.test": "224.0.0.9", "alias.wild.test": "192.168.127.254",
	})
	for _, port := range []int{80, 8080, 81, 82, 85, 443, 853} {
		net.EchoTCP(t, fmt.Sprintf("0.0.0.0:%d", port))
	}
	net.EchoUDP(t, egressEvil+":443")
	for _, port := range []int{444, 446, 447, 853} {
		net.EchoUDP(t, fmt.Sprintf("%s:%d", egressEvil, port))
	}
	net.EchoUDP(t, egressGood+":80")
	host.EchoTCP(t, "0.0.0.0:7777")
	host.EchoTCP(t, "0.0.0.0:7778")
	for _, iface := range gateways {
		t.Run(iface, func(t *testing.T) { egressTricked(t, command, iface) })
	}
}

func egressTricked(t *testing.T, command func(args ...string) *exec.Cmd, iface string) {
	name := kit.NewName()
	cmd := command(kit.Bin("lklrun"), "--name", name, "--if", iface, "--allow", "Good.test.:80", "--allow", "*.wild.test", "--",
		"/usr/bin/python3", "-c", egressTricks, egressEvil, egressGood, egressHost)
	stdin, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	kit.WaitFor(t, "the program", 2*kit.Limit, func() bool {
		out, _ := p.Output()
		return strings.Contains(out, "done\n") || !p.Running()
	})
	var a egress.Account
	kit.Must(t, json.Unmarshal([]byte(kit.Lklctl(t, "-n", name, "egress", "-o", "json")), &a))
	table := kit.Lklctl(t, "-n", name, "egress")
	add := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "link", "add", "user"))
	if add.Status != 2 || !strings.Contains(add.Stderr, "only interface") {
		t.Errorf("lklctl link add: %v", add)
	}
	stdin.Close()
	r := p.Wait(kit.Limit)
	if r.Status != 0 || r.Stdout != "done\n" {
		t.Errorf("a trick worked: %v", r)
	}
	for n, line := range tricks {
		if found := regexp.MustCompile(`(?m)^lklrun: eth0: `+line).FindAllString(r.Stderr, -1); len(found) != 1 {
			t.Errorf("trick %d: %d lines, want 1", n, len(found))
		}
	}
	if a.Allowed.Connections != 3 || a.Refused.Connections < 14 || a.Refused.Queries < 8 || !strings.Contains(table, "tcp 10.71.8.3:80") || len(a.Rules) != 2 || a.Rules[0].Rule != "good.test:80" || a.Rules[0].Connections != 3 || a.Rules[0].Queries == 0 || a.Rules[1].Connections != 0 {
		t.Errorf("account: %+v\n%s", a, table)
	}
	if !strings.Contains(r.Stderr, "lklrun: eth0: allowed: ") || t.Failed() {
		t.Errorf("standard error:\n%s", r.Stderr)
	}
	page := kit.ReadFile(t, filepath.Join(kit.Root(), "docs/how-to/egress.md"))
	for n := 1; n <= 75; n++ {
		if !strings.Contains(page, "\n| "+strconv.Itoa(n)+" | ") {
			t.Errorf("docs/how-to/egress.md does not list trick %d", n)
		}
	}
}

// TestEgressOptions checks that options that lead around the gateway are refused, and that a
// rule permits the address of its name in --add-host.
func TestEgressOptions(t *testing.T) {
	t.Parallel()
	conf := kit.WriteFile(t, filepath.Join(kit.Dir(t), "config.json"), `{"allow": "good.test", "interfaces": ["tap:tap0,ip=10.0.0.1/24"]}`)
	for names, args := range map[string][]string{
		"use --if user":      {"--allow", "good.test", "--if", "tap:tap0,ip=10.0.0.1/24"},
		"--config|use --if":  {"--config", conf},
		"one interface":      {"--allow", "good.test", "--if", "user", "--if", "user"},
		"remove --host-net":  {"--allow", "good.test", "--host-net", "127.0.0.1"},
		"remove --publish":   {"--allow", "good.test", "--publish", "8080:80"},
		"remove --dns":       {"--allow", "good.test", "--dns", "192.0.2.1"},
		"dns: with --allow":  {"--allow", "good.test", "--if", "user,dns=192.0.2.1"},
		"host's own kernel":  {"--allow", "good.test", "--stack", "host"},
		"neither a host":     {"--allow", "127.1"},
		"--iface lo":         {"--allow", "good.test", "--iface", "lo"},
		"is not a port; exp": {"--allow", "good.test:http"},
		`localhost:18099: .*; .*, allow 192\.168\.127\.254:18099 and connect`: {"--allow", "localhost:18099"},
	} {
		kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun(append(args, "--", "true")...)), 2, names)
	}
	_, net, command := egressSite(t, nil)
	net.EchoTCP(t, egressGood+":80")
	for _, name := range []string{"db", "localhost"} {
		r := kit.Run(t, kit.Limit, command(kit.Bin("lklrun"), "--name", kit.NewName(), "--add-host", name+"="+egressGood, "--allow", name+":80", "--",
			"/usr/bin/python3", "-c", "import socket, sys; print(socket.create_connection((sys.argv[1], 80)).getpeername()[0])", name))
		if r.Status != 0 || r.Stdout != egressGood+"\n" {
			t.Errorf("--add-host %s: %v", name, r)
		}
	}
	out := kit.OK(t, kit.Limit, kit.Lklrun("--dry-run", "--allow", "*.Test:80", "--", "true"))
	if !strings.Contains(out, "allow     *.test:80\n") || !strings.Contains(out, "only to allowed destinations") {
		t.Error(out)
	}
}

// egressServer writes a package index with one package, and a git repository.
const egressServer = `
import os, zipfile
os.makedirs("www/simple/demo")
wheel = "demo-1.0-py3-none-any.whl"
with zipfile.ZipFile("www/" + wheel, "w") as z:
    z.writestr("demo.py", "answer = 42\n")
    z.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    z.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n")
open("www/simple/demo/index.html", "w").write(f'<a href="../../{wheel}">{wheel}</a>')
os.system("git init -q git/repo && cd git/repo && git -c user.name=t -c user.email=t@test commit -q --allow-empty -m first")
`

// TestEgressPrograms checks that pip and git work with two allowed names, for an ordinary
// user, and that a third name does not.
func TestEgressPrograms(t *testing.T) {
	t.Parallel()
	kit.Need(t, "git", "setpriv")
	if kit.Run(t, kit.Limit, exec.Command("/usr/bin/python3", "-m", "pip", "--version")).Status != 0 {
		t.Skip("python3 has no pip")
	}
	_, net, command := egressSite(t, map[string]string{"index.test": egressGood, "git.test": egressGood, "evil.test": egressEvil})
	dir, bin := kit.Dir(t), kit.PublicBin(t)
	build := exec.Command("/usr/bin/python3", "-c", egressServer)
	build.Dir = dir
	kit.OK(t, kit.Limit, build)
	net.PythonHTTP(t, 80, filepath.Join(dir, "www"))
	daemon := kit.Start(t, net.Command("git", "-c", "safe.directory=*", "daemon", "--reuseaddr", "--export-all", "--base-path="+filepath.Join(dir, "git"), "--port=9418"))
	kit.WaitFor(t, "git daemon", kit.Limit, func() bool { return net.Listening(t, "t", 9418) || !daemon.Running() })
	script := `set -e
d=$(mktemp -d); export HOME=$d TMPDIR=$d
/usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --target $d/lib --index-url http://index.test/simple --trusted-host index.test demo
PYTHONPATH=$d/lib /usr/bin/python3 -c 'import demo; print(demo.answer)'
git clone -q git://git.test/repo $d/repo
git -C $d/repo log --format=%s
! git clone -q git://evil.test/repo $d/other 2>/dev/null
rm -rf $d`
	r := kit.Run(t, 2*kit.Limit, command("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", filepath.Join(bin, "lklrun"),
		"--name", kit.NewName(), "--allow", "index.test:80", "--allow", "git.test:9418", "--", "sh", "-c", script))
	if r.Status != 0 || r.Stdout != "42\nfirst\n" || strings.Count(r.Stderr, "refused the name evil.test:") != 1 {
		t.Error(r)
	}
}

// senders sends its arguments to port 9 of themselves by UDP and TCP.
const senders = `
import socket, sys
for to in sys.argv[1:]:
    for kind in socket.SOCK_DGRAM, socket.SOCK_STREAM:
        s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, kind)
        s.settimeout(5)
        try:
            if kind == socket.SOCK_DGRAM:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            s.connect((to, 9))
            s.send(to.encode())
        except OSError:
            pass
        s.close()
`

// recorder returns a function that tells whether a server on all addresses of a namespace has
// got text by a protocol.
func recorder(t *testing.T, n *kit.Netns) func(protocol, text string) bool {
	t.Helper()
	var heard sync.Map
	var datagrams stdnet.PacketConn
	n.Do(t, func() (err error) {
		datagrams, err = stdnet.ListenPacket("udp", ":9")
		return err
	})
	t.Cleanup(func() { datagrams.Close() })
	read := func(protocol string, from func([]byte) (int, error)) {
		b := make([]byte, 100)
		for {
			k, err := from(b)
			if err != nil {
				return
			}
			heard.Store(protocol+string(b[:k]), true)
		}
	}
	go read("udp", func(b []byte) (int, error) { k, _, err := datagrams.ReadFrom(b); return k, err })
	l := n.Listen(t, ":9")
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go read("tcp", c.Read)
		}
	}()
	return func(protocol, text string) bool { _, found := heard.Load(protocol + text); return found }
}

// TestSecondFinding06Routes checks that a rule for all addresses opens neither this machine
// nor a whole network: finding 6 of the second review.
func TestSecondFinding06Routes(t *testing.T) {
	t.Parallel()
	host, net, command := egressSite(t, map[string]string{"broad.wild.test": "10.71.8.255", "local.wild.test": "10.9.1.1"})
	host.Addr(t, "v0", "fd71::1/64")
	net.Addr(t, "n0", "fd71::2/64")
	host.Run(t, "sh", "-ec", "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; ip route add local 10.9.0.0/16 dev lo src "+egressHost)
	onHost, onNet := recorder(t, host), recorder(t, net)
	bad := []string{"10.71.8.255", "10.9.1.1", egressHost, "fd71::", "fd71::1", "64:ff9b::" + egressHost, "0.0.0.0", "::ffff:127.0.0.1", "192.168.127.254"}
	good := []string{egressGood, "fd71::2"}
	args := []string{kit.Bin("lklrun"), "--name", kit.NewName(), "--allow", "0.0.0.0/0:9", "--allow", "[::/0]:9", "--allow", "*.wild.test", "--", "/usr/bin/python3", "-c", senders, "broad.wild.test", "local.wild.test"}
	r := kit.Run(t, 2*kit.Limit, command(slices.Concat(args, bad, good)...))
	if r.Status != 0 {
		t.Fatal(r)
	}
	for _, protocol := range []string{"udp", "tcp"} {
		for _, to := range append(bad, "broad.wild.test", "local.wild.test") {
			if onHost(protocol, to) || onNet(protocol, to) {
				t.Errorf("%s reached %s", protocol, to)
			}
		}
		for _, to := range good {
			kit.WaitFor(t, protocol+" to "+to, kit.Limit, func() bool { return onNet(protocol, to) })
		}
	}
	for _, line := range []string{
		"refused udp 10.71.8.255:9: it is a multicast or broadcast address", "refused tcp 10.9.1.1:9: it is an address of this machine", "refused udp [fd71::]:9: it is an anycast address",
		"ignored the address 10.71.8.255 in the answer for broad.wild.test", "ignored the address 10.9.1.1 in the answer for local.wild.test",
	} {
		if !strings.Contains(r.Stderr, line) {
			t.Errorf("no line %q:\n%s", line, r.Stderr)
		}
	}
}

// TestSecondFinding11Owner checks that the host's firewall sees the user of the target as the
// owner of the gateway's sockets: finding 11 of the second review.
func TestSecondFinding11Owner(t *testing.T) {
	t.Parallel()
	kit.Need(t, "nft")
	host, net, command := egressSite(t, map[string]string{"good.wild.test": egressGood})
	onHost, onNet := recorder(t, host), recorder(t, net)
	user := []string{kit.Bin("lklrun"), "--name", kit.NewName(), "--user", "54321:54321", "--", "/usr/bin/python3", "-c", senders, "192.168.127.254", "good.wild.test"}
	for _, tc := range []struct {
		owner   string
		reached bool
	}{{"54321", false}, {"0", true}} {
		host.Run(t, "nft", "flush ruleset; table inet t { chain c { type filter hook output priority 0; th dport { 9, 53 } meta skuid "+tc.owner+" reject; }; }")
		r := kit.Run(t, 2*kit.Limit, command(user...))
		for _, protocol := range []string{"udp", "tcp"} {
			for to, heard := range map[string]func(protocol, text string) bool{"192.168.127.254": onHost, "good.wild.test": onNet} {
				if got := tc.reached && kit.Within(kit.Limit, func() bool { return heard(protocol, to) }) || heard(protocol, to); got != tc.reached || r.Status != 0 {
					t.Errorf("%s to %s, packets of user %s are rejected: reached %v; %v", protocol, to, tc.owner, got, r)
				}
			}
		}
	}
}
