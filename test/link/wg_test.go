// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// Addresses of the ends outside of the tunnel.
const (
	wgClient, wgServer, wgServer6, wgMoved = "198.51.100.1", "198.51.100.2", "fd99::2", "198.51.100.3"
	wgName, wgPort                         = "us1.vpn.example", "51820"
)

// A wgSite is an ordinary user's client and a server with WireGuard peers, which are processes
// of wireguard-go, or devices of the kernel of a stack:
//
//	client a0 198.51.100.1 ─── s0 198.51.100.2 server
type wgSite struct {
	*udpSite
	program         string // wireguard-go; empty: the server is a stack
	server          string // the stack's address
	services        string // a script that starts the servers behind the tunnel, and prints "ready"
	ssh             string // a command of the client without its destination
	private, public string // of the client
	capture         *kit.Tcpdump
	peers           int
}

func newWGSite(t *testing.T, kernel bool) *wgSite {
	kit.Need(t, "wg", "tcpdump", "nginx", "dnsmasq", "ssh", "/usr/sbin/sshd", "socat", "setpriv", "ping", "curl")
	s := &wgSite{udpSite: newClient(t), server: wgServer}
	s.dir = kit.Dir(t)
	file, public := wireguardKey(t, s.dir, "client")
	s.private, s.public = strings.TrimSpace(kit.ReadFile(t, file)), public
	kit.Veth(t, s.Host, "a0", s.Server, "s0")
	s.Host.Addr(t, "a0", wgClient+"/24", "fd99::1/64")
	if !kernel {
		s.program = wireguardGo(t, s.dir)
		s.Server.Addr(t, "s0", wgServer+"/24", wgServer6+"/64", wgMoved+"/24")
	}
	s.Host.Run(t, "ip", "route", "add", "default", "via", wgServer) // as any network has it
	s.etc = filepath.Join(kit.Dir(t), "etc")
	kit.Host.Run(t, "cp", "-a", "/etc", s.etc)
	kit.WriteFile(t, filepath.Join(s.etc, "passwd"), kit.ReadFile(t, "/etc/passwd")+fmt.Sprintf("me:x:%d:%[1]d::/nonexistent:/bin/sh\n", kit.OrdinaryUID)) // ssh wants a name
	s.resolve(wgServer)
	return s
}

// serves prepares the servers behind the tunnel: HTTP, ssh, and names that all mean addr.
func (s *wgSite) serves(addr string, names ...string) {
	s.Helper()
	host, key := filepath.Join(s.dir, "host"), filepath.Join(s.dir, "login")
	kit.SSHKey(s.T, host)
	kit.SSHKey(s.T, key)
	kit.Must(s.T, os.Chown(key, kit.OrdinaryUID, kit.OrdinaryUID))
	s.ssh = "ssh -F none -o IPQoS=none -i " + key + " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@"
	config := kit.WriteFile(s.T, filepath.Join(s.dir, "sshd"), "HostKey "+host+"\nAuthorizedKeysFile "+key+".pub\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nPidFile none\n")
	dnsmasq := "dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --pid-file= --user=root"
	for _, name := range names {
		dnsmasq += " --host-record=" + name + "," + addr
	}
	nginx := strings.Join(kit.Nginx{Port: 80, Root: s.served()}.Config(s.T, kit.Dir(s.T)), " ")
	s.services = fmt.Sprintf("mkdir -p /run/sshd; %s & %s & /usr/sbin/sshd -D -f %s & ", nginx, dnsmasq, config)
	for _, port := range []int{22, 53, 80} {
		s.services += fmt.Sprintf("until socat /dev/null TCP:127.0.0.1:%d 2>/dev/null; do :; done; ", port)
	}
	s.services += "echo ready; wait"
}

// resolve sets the address of the endpoint's name on the host.
func (s *wgSite) resolve(addr string) {
	kit.WriteFile(s.T, filepath.Join(s.etc, "hosts"), addr+" "+wgName+"\n")
}

// wgPeer is a peer of the server.
type wgPeer struct {
	public, device, script string
	proc                   *kit.Proc
}

// newPeer makes a peer, whose end of the tunnel has the addresses addrs. Its answers from the
// first of them go into the tunnel.
func (s *wgSite) newPeer(port, preshared string, addrs ...string) *wgPeer {
	s.Helper()
	s.peers++
	p := &wgPeer{device: fmt.Sprintf("w%d%s", s.peers, kit.NewName())}
	key, public := wireguardKey(s.T, s.dir, p.device)
	p.public = public
	if preshared != "" {
		preshared = "preshared-key " + kit.WriteFile(s.T, filepath.Join(s.dir, p.device+".psk"), preshared)
	}
	create := "ip link add %[1]s type wireguard; "
	if s.program != "" {
		create = "LOG_LEVEL=error WG_PROCESS_FOREGROUND=1 %[6]s %[1]s & trap 'kill $!' TERM; " + wireguardReady + "; "
	}
	p.script = fmt.Sprintf(create+"wg set %[1]s listen-port %[2]s private-key %[3]s peer %[4]s %[5]s allowed-ips 0.0.0.0/0,::/0; ",
		p.device, port, key, s.public, preshared, s.program)
	for _, a := range addrs {
		p.script += fmt.Sprintf("ip addr add %s dev %s nodad || ip addr add %[1]s dev %[2]s; ", a, p.device)
	}
	own, _, _ := strings.Cut(addrs[0], "/")
	p.script += fmt.Sprintf("ip link set %s up; ip rule add from %s lookup %d; ip route replace default dev %[1]s table %[3]d; ", p.device, own, 100+s.peers)
	return p
}

// startPeers starts peers and the servers behind them.
func (s *wgSite) startPeers(peers ...*wgPeer) {
	s.Helper()
	started := func(p *kit.Proc) {
		s.Helper()
		ready := kit.Within(kit.Limit, func() bool {
			out, _ := p.Output()
			return strings.Contains(out, "ready") || !p.Running()
		})
		if _, errs := p.Output(); !ready || !p.Running() {
			s.Fatalf("the peer does not start: %s", errs)
		}
	}
	all := ""
	for _, p := range peers {
		if s.program != "" {
			p.proc = kit.Start(s, s.Server.Command("sh", "-c", p.script+"echo ready; wait"))
			started(p.proc)
		}
		all += p.script
	}
	if s.program == "" {
		at := "macvtap:s0,ip=" + s.server + "/24,ip6=" + wgServer6 + "/64"
		peers[0].proc = kit.Start(s, s.Server.Command(kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--if", at, "--", "sh", "-c", all+s.services))
		started(peers[0].proc)
	} else if s.services != "" {
		started(kit.Start(s, s.Server.Command("sh", "-c", s.services)))
		s.services = "" // they outlive the peers
	}
}

// file writes a provider's file, which only the client's user may read.
func (s *wgSite) file(name, text string) string {
	s.Helper()
	path := kit.WriteFile(s.T, filepath.Join(s.dir, name), text)
	kit.Must(s.T, os.Chown(path, kit.OrdinaryUID, kit.OrdinaryUID), os.Chmod(path, 0o600))
	return path
}

// watch captures the packets that leave the client's host and are no messages of WireGuard to
// the server.
func (s *wgSite) watch() {
	s.Helper()
	const (
		neighbours = "arp or (ip6 and (ip6[6] == 0 or (ip6[6] == 58 and ip6[40] >= 133)))"
		four       = "ip and udp and udp[8] <= 4 and udp[9] == 0 and udp[10:2] == 0"
		six        = "ip6 and udp and ip6[48] <= 4 and ip6[49] == 0 and ip6[50:2] == 0"
		// The host's answer to a message of the peer that arrives when the run has ended.
		late = "icmp and icmp[0] == 3 and icmp[1] == 3 and icmp[28:2] == 51820"
	)
	s.capture = kit.StartTcpdump(s.T, s.Host.Command("tcpdump", "-nlU", "--immediate-mode", "-Q", "out", "-i", "a0",
		fmt.Sprintf("not (%s) and not (%s) and not (dst portrange 51820-51821 and (dst host %s or dst host %s or dst host %s) and ((%s) or (%s)))", neighbours, late, wgServer, wgServer6, wgMoved, four, six)))
}

// sealed checks that no other packet was on the network. A datagram shows that the capture
// works.
func (s *wgSite) sealed() {
	s.Helper()
	s.Host.Run(s, "sh", "-c", "echo end | nc -u -w1 "+wgServer+" 9")
	for _, line := range s.capture.Until(1) {
		if !strings.Contains(line, wgServer+".9: UDP") {
			s.Errorf("outside of the tunnel: %s", line)
		}
	}
}

// wgFiles are files in the styles of five providers. PRIVATE, PUBLIC0, PUBLIC1 and SHARED stand
// for keys. get are commands of a
// shell, where SSH begins a command of ssh, or a Python program for the engine preload. want is
// what they print.
var wgFiles = []struct {
	name, engine, text string
	peers              [][]string // addresses of each peer
	resolv, get, want  string
	note               string
}{
	{
		"mullvad", "supervise", `[Interface]
# Device: Happy Otter
PrivateKey = PRIVATE
Address = 10.64.3.7/32,fc00:bbbb:bbbb:bb01::3:306/128
DNS = 10.64.0.1

[Peer]
PublicKey = PUBLIC0
AllowedIPs = 0.0.0.0/0,::0/0
Endpoint = 198.51.100.2:51820
`, [][]string{{"10.64.0.1/16", "fc00:bbbb:bbbb:bb01::1/64"}},
		"nameserver 10.64.0.1", "curl -s http://web.example/hello; curl -s 'http://[fc00:bbbb:bbbb:bb01::1]/hello'; ping -qc1 -W9 10.64.0.1 >&2 && echo ping; SSHweb.example echo ssh", "hello\nhello\nping\nssh\n", "",
	},
	{
		"proton", "preload", `[Interface]
# Key for laptop
# Bouncing = 8
# NetShield = 1
# VPN Accelerator = on
PrivateKey = PRIVATE
Address = 10.2.0.2/32
DNS = 10.2.0.1

[Peer]
# CH-DE#1
PublicKey = PUBLIC0
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = 198.51.100.2:51820
PersistentKeepalive = 25
`, [][]string{{"10.2.0.1/24"}},
		"nameserver 10.2.0.1", "import urllib.request as u\nprint(u.urlopen('http://web.example/hello').read().decode(), end='')\ntry: u.urlopen('http://[fd99::2]/hello')\nexcept OSError: print('no IPv6')", "hello\nno IPv6\n", "",
	},
	{
		"ivpn", "trace", "[Interface]\r\nPrivateKey = PRIVATE\r\nAddress = 172.27.2.3/32,fd00:4956:504e:ffff::ac1b:203/128\r\nDNS = 172.16.0.1\r\n\r\n" +
			"[Peer]\r\nPresharedKey = SHARED\r\nPublicKey = PUBLIC0\r\nAllowedIPs = 0.0.0.0/0, ::/0\r\nEndpoint = us1.vpn.example:51820\r\n",
		[][]string{{"172.16.0.1/12", "fd00:4956:504e:ffff::1/64"}},
		"nameserver 172.16.0.1", "curl -s http://web.example/hello; curl -s 'http://[fd00:4956:504e:ffff::1]/hello'; ping -qc1 -W9 fd00:4956:504e:ffff::1 >&2 && echo ping; SSHfd00:4956:504e:ffff::1 echo ssh", "hello\nhello\nping\nssh\n", "",
	},
	{
		"wg-quick", "supervise", "\ufeff[interface]\nprivatekey=PRIVATE\naddress=10.99.0.2/24\naddress = fd00:99::2/64\nlistenport = 51999\nmtu = 1380\nSaveConfig = true\nTable = off\n" +
			"PostUp = iptables -A FORWARD -i %i -j ACCEPT; touch /tmp/owned\nPostDown = iptables -D FORWARD -i %i -j ACCEPT\n" +
			"[peer]\npublickey=PUBLIC0\npresharedkey=SHARED\nendpoint=[fd99::2]:51820\nallowedips=0.0.0.0/1,128.0.0.0/1,::/1,8000::/1\npersistentkeepalive=off\n",
		[][]string{{"10.99.0.1/24", "fd00:99::1/64"}},
		"", "curl -s http://10.99.0.1/hello; curl -s 'http://[fd00:99::1]/hello'; ping -qc1 -W9 -M do -s 1352 10.99.0.1 >&2 && echo ping; SSH10.99.0.1 echo ssh", "hello\nhello\nping\nssh\n", "ignored in FILE: SaveConfig, Table, PostUp, PostDown",
	},
	{
		"company", "supervise", `[Interface]
Address = 10.10.99.2/32
PrivateKey = PRIVATE
DNS = 10.10.0.53, corp.example

# office
[Peer]
PublicKey = PUBLIC0
Endpoint = 198.51.100.2:51820
AllowedIPs = 10.10.0.0/16

# lab, which also has a client without a fixed address
[Peer]
PublicKey = PUBLIC1
Endpoint = 198.51.100.2:51821
AllowedIPs = 10.20.0.0/16, 10.30.7.1/32
`, [][]string{{"10.10.0.53/16"}, {"10.20.0.1/16"}},
		"search corp.example", "curl -s http://web/hello; SSHweb echo ssh; ping -qc1 -W9 10.20.0.1 >&2 && echo ping; ping -qc1 -W9 10.30.0.1 2>&1 | grep -o unreachable; curl -s http://198.51.100.2/hello || echo split", "hello\nssh\nping\nunreachable\nsplit\n", "",
	},
}

// TestWGFiles uses the files of five providers without change, with peers of both kinds. No
// packet is outside of a tunnel.
func TestWGFiles(t *testing.T) {
	for _, c := range wgFiles {
		for _, kernel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s-%v", c.name, kernel), func(t *testing.T) {
				s := newWGSite(t, kernel)
				shared := ""
				if strings.Contains(c.text, "SHARED") {
					shared = strings.TrimSpace(kit.OK(t, kit.Limit, s.Host.Command("wg", "genpsk")))
				}
				file := strings.NewReplacer("PRIVATE", s.private, "SHARED", shared).Replace(c.text)
				var peers []*wgPeer
				for n, addrs := range c.peers {
					p := s.newPeer(fmt.Sprint(51820+n), shared, addrs...)
					file = strings.ReplaceAll(file, fmt.Sprint("PUBLIC", n), p.public)
					peers = append(peers, p)
				}
				address, _, _ := strings.Cut(c.peers[0][0], "/")
				s.serves(address, "web.example", "web.corp.example")
				s.startPeers(peers...)
				path := s.file(c.name+".conf", file)
				before := kit.Take(t, s.Host)
				s.watch()
				command := []string{"sh", "-c", "grep -o '" + c.resolv + "' /etc/resolv.conf >&2 || echo resolv.conf; " + strings.ReplaceAll(c.get, "SSH", s.ssh)}
				if c.engine == "preload" { // which loses the stack with the shell's first command
					command = []string{"/usr/bin/python3", "-c", c.get}
				}
				r := kit.Run(t, kit.TransferLimit, s.as("lklrun", append([]string{"--engine", c.engine, "--if", "wg:" + path, "--"}, command...)...))
				if r.Status != 0 || r.Stdout != c.want {
					t.Errorf("%v\nwant %s", r, c.want)
				}
				if want := strings.Replace(c.note, "FILE", path, 1); !strings.Contains(r.Stderr, want) || strings.Count(r.Stderr, "lklrun:") > strings.Count(c.note, "FILE") {
					t.Errorf("the notes are %q, want %q", r.Stderr, want)
				}
				s.sealed()
				before.Same()
			})
		}
	}
}

// served returns a directory with the file hello.
func (s *wgSite) served() string {
	dir := kit.Dir(s.T)
	kit.WriteFile(s.T, filepath.Join(dir, "hello"), "hello\n")
	return dir
}

//go:embed testdata/wgleak.py
var wgLeak string

// simple starts a peer, and returns its file with the given endpoint, and the addresses of the
// peer's end.
func (s *wgSite) simple(endpoint string) (p *wgPeer, file string) {
	p = s.newPeer(wgPort, "", "10.2.0.1/24")
	s.serves("10.2.0.1")
	s.startPeers(p)
	return p, s.file("simple.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.2.0.2/32\nDNS = 10.2.0.1\n[Peer]\nPublicKey = %s\nEndpoint = %s\nAllowedIPs = 0.0.0.0/0, ::/0\n", s.private, p.public, endpoint))
}

// TestWGSealed has a program try to get around the tunnel in many ways, from the start to the end
// of the run, while the peer dies, and while its endpoint moves to another address.
func TestWGSealed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine             string
		kernel, namespaces bool // of the peer, and whether the client may create some
	}{{"supervise", false, true}, {"supervise", true, true}, {"preload", true, true}, {"preload", false, false}, {"trace", false, true}, {"trace", true, false}} {
		t.Run(fmt.Sprintf("%s-%v-%v", c.engine, c.kernel, c.namespaces), func(t *testing.T) {
			t.Parallel()
			s := newWGSite(t, c.kernel)
			p, file := s.simple(wgName + ":" + wgPort)
			s.watch()
			flags := []string{"--name", s.Instance, "--engine", c.engine, "--if", "wg:" + file, "--", "/usr/bin/python3", "-c", wgLeak, wgServer, wgServer6, wgClient}
			var target *kit.Proc
			if c.namespaces {
				target = kit.Start(t, s.as("lklrun", flags...))
			} else {
				target = s.startWithoutNamespaces(flags...)
			}
			answers := func(what string) {
				t.Helper()
				out, _ := target.Output()
				was := strings.Count(out, "answer\n")
				s.Until(what, target, func() bool {
					out, _ := target.Output()
					return strings.Count(out, "answer\n") > was
				})
			}
			answers("an answer")
			s.keysHidden(p)
			s.Host.Run(t, "ip", "addr", "del", wgClient+"/24", "dev", "a0")
			s.Host.Addr(t, "a0", "198.51.100.77/24")
			s.Host.Run(t, "ip", "route", "add", "default", "via", wgServer)
			answers("an answer to the client's new address")
			p.proc.Signal(syscall.SIGTERM)
			p.proc.Wait(kit.Limit)
			s.says(target, "eth0: the peer "+wgName+":"+wgPort+" does not answer: the last handshake was at ")
			if s.server = wgMoved; !c.kernel {
				s.Server.Run(t, "ip", "addr", "del", wgServer+"/24", "dev", "s0") // which deletes the second address, too
				s.Server.Addr(t, "s0", wgMoved+"/24")
			}
			s.startPeers(p)
			s.resolve(wgMoved)
			s.says(target, "answers again")
			answers("an answer at the new address")
			target.Signal(syscall.SIGTERM)
			r := target.Wait(kit.Limit)
			out := r.Stdout
			if !c.namespaces { // the program then sees the host's /proc
				out = strings.ReplaceAll(out, "leak: the host's devices\n", "")
			}
			if strings.Contains(out, "leak") || strings.Count(r.Stderr, "does not answer") != 1 {
				t.Errorf("%v", r)
			}
			s.Server.Addr(t, "s0", wgServer+"/24")
			s.sealed()
		})
	}
}

// startWithoutNamespaces starts lklrun of the client's user where nobody can create namespaces.
func (s *wgSite) startWithoutNamespaces(args ...string) (p *kit.Proc) {
	s.Helper()
	as := s.as("lklrun", args...)
	at := slices.Index(as.Args, "setpriv")
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount -n --bind "$0" /etc && echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"`, s.etc}, as.Args[at:]...)...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = as.Env, as.Dir, kit.InUserNamespace()
	s.Host.Do(s.T, func() error {
		p = kit.Start(s, cmd)
		return nil
	})
	return p
}

// TestWGSplit has a file with only the company's networks, and a second interface, which the stack
// has from the start or gets later. If the peer dies, nothing for the company takes the other path.
func TestWGSplit(t *testing.T) {
	t.Parallel()
	s := newWGSite(t, false)
	p := s.newPeer(wgPort, "", "10.10.0.53/16")
	s.serves("10.10.0.53", "web.example")
	s.startPeers(p)
	file := s.file("split.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.10.9.2/32\nDNS = 10.10.0.53\n[Peer]\nPublicKey = %s\nEndpoint = %s:%s\nAllowedIPs = 10.10.0.0/16\n", s.private, p.public, wgServer, wgPort))
	for name, ifs := range map[string][]string{"first": {"wg:" + file, "user"}, "second": {"user", "wg:" + file}, "later": {"wg:" + file}} {
		target := s.start("supervise", ifs, "sleep", "600")
		kit.WaitFor(t, "the run", kit.Limit, func() bool { return s.as("lklctl", "-n", s.Instance, "link").Run() == nil })
		if len(ifs) == 1 {
			s.lklctl("link", "add", "user")
		}
		curl := []string{"exec", "--", "curl", "-sS", "--max-time", "20"}
		for _, url := range []string{"http://web.example/hello", "http://10.10.0.53/hello", "http://" + wgServer + "/hello"} {
			if got := s.lklctl(append(curl, url)...); got != "hello\n" {
				t.Errorf("%s: %s: %q", name, url, got)
			}
		}
		if got := s.lklctl("exec", "--", "grep", "^nameserver", "/etc/resolv.conf"); got != "nameserver 10.10.0.53\n" {
			t.Errorf("%s: the name servers are %q", name, got)
		}
		target.Signal(syscall.SIGTERM)
		target.Wait(kit.Limit)
	}
	outside := kit.StartTcpdump(t, s.Host.Command("tcpdump", "-nlU", "--immediate-mode", "-Q", "out", "-i", "a0", "net 10.10.0.0/16 or port 53 or (host "+wgServer+" and port 9)"))
	p.proc.Signal(syscall.SIGTERM)
	p.proc.Wait(kit.Limit)
	r := kit.Run(t, kit.Limit, s.as("lklrun", "--if", "wg:"+file, "--if", "user", "--", "curl", "-sS", "--max-time", "10", "http://10.10.0.53/hello", "http://web.example/hello"))
	if r.Status != 28 || strings.Count(r.Stderr, "eth0: the peer "+wgServer+":"+wgPort+" does not answer: ") != 1 {
		t.Errorf("%v", r)
	}
	s.capture = outside
	s.sealed()
}

// keysHidden checks that no secret is in the run directory, in an argument or in the environment
// of a process, or in lklctl's output, which shows the state of the peer.
func (s *wgSite) keysHidden(p *wgPeer) {
	s.Helper()
	raw, err := base64.StdEncoding.DecodeString(s.private)
	kit.Must(s.T, err)
	texts := map[string]string{}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			b, _ := os.ReadFile(f) // the process may have ended
			texts[f] = string(b)
		}
	}
	kit.Must(s.T, filepath.WalkDir(s.run, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			texts[path] = kit.ReadFile(s.T, path)
		}
		return err
	}))
	if len(texts) < 10 {
		s.Errorf("only %d files", len(texts))
	}
	texts["link"] = s.lklctl("link", "-o", "json")
	var rows []struct {
		Name  string
		Peers []struct {
			PublicKey     string    `json:"public_key"`
			LastHandshake time.Time `json:"last_handshake"`
			Endpoint      string
			Received      int `json:"received_bytes"`
			Sent          int `json:"sent_bytes"`
		}
	}
	kit.Must(s.T, json.Unmarshal([]byte(texts["link"]), &rows))
	shown := false
	for _, r := range rows {
		for _, of := range r.Peers {
			shown = r.Name == "eth0" && of.PublicKey == p.public && of.Endpoint == wgServer+":"+wgPort &&
				time.Since(of.LastHandshake) < time.Hour && of.Received > 0 && of.Sent > 0
		}
	}
	if !shown {
		s.Errorf("lklctl link shows %s", texts["link"])
	}
	texts["table"] = s.lklctl("link")
	if !strings.Contains(texts["table"], p.public) || !strings.Contains(texts["table"], "s ago") {
		s.Errorf("lklctl link shows %s", texts["table"])
	}
	texts["list"] = s.lklctl("list", "-o", "json")
	for name, text := range texts {
		if strings.Contains(text, s.private) || strings.Contains(text, hex.EncodeToString(raw)) || strings.Contains(text, string(raw)) {
			s.Errorf("%s has the private key", name)
		}
	}
}

// TestWGErrors checks the lines about wrong files, and about a peer that does not know the key.
func TestWGErrors(t *testing.T) {
	t.Parallel()
	s := newWGSite(t, false)
	_, file := s.simple(wgServer + ":" + wgPort)
	good := kit.ReadFile(t, file)
	run := func(args ...string) kit.Result {
		return kit.Run(t, kit.TransferLimit, s.as("lklrun", args...))
	}
	for name, c := range map[string]struct{ old, to, want string }{
		"key":     {"PrivateKey = ", "PrivateKey = x", "line 2: PrivateKey: expected a key of 32 bytes in base64"},
		"word":    {"Address", "Adress", "line 3: Adress: unknown key in [interface]"},
		"allowed": {"AllowedIPs = 0.0.0.0/0,", "AllowedIPs =", "no [Peer] has AllowedIPs of a family of Address"},
		"port":    {"DNS = 10.2.0.1", "ListenPort = 53", "ListenPort: this user may not bind port 53"},
	} {
		path := s.file(name+".conf", strings.Replace(good, c.old, c.to, 1))
		r := run("--if", "wg:"+path, "--", "echo", "started")
		kit.OneLine(t, r, 2, regexp.QuoteMeta(c.want))
		if !strings.Contains(r.Stderr, path) || strings.Contains(r.Stderr, s.private) || r.Stdout != "" {
			t.Errorf("%s: %v", name, r)
		}
	}
	for want, args := range map[string][]string{
		"does not exist":                   {"--if", "wg:/none.conf"},
		"no file; expected wg:FILE":        {"--if", "wg:"},
		"is already used by eth0":          {"--if", "wg:" + file, "--if", "wg:" + file},
		"ip: the file assigns the address": {"--if", "wg:" + file + ",ip=10.0.0.1/24"},
		"leaves 1440 for the tunnel":       {"--if", "wg:" + file + ",mtu=1450"},
	} {
		kit.OneLine(t, run(append(args, "--", "echo", "started")...), 2, want)
	}
	kit.Must(t, os.Chmod(file, 0o644))
	r := run("--if", "wg:"+file, "--dry-run", "--", "true")
	if want := "other users can read the keys in " + file + "; run `chmod 600"; r.Status != 0 || !strings.Contains(r.Stderr+r.Stdout, want) {
		t.Errorf("want %q: %v", want, r)
	}
	kit.WriteFile(t, filepath.Join(s.etc, "resolv.conf"), "nameserver 127.0.0.1\n")
	r = run("--if", "wg:"+s.file("later.conf", strings.Replace(good, wgServer, "later.example", 1)), "--", "echo", "ran")
	if r.Status != 0 || r.Stdout != "ran\n" || !strings.Contains(r.Stderr, "connection refused; lklrun tries again") {
		t.Errorf("without a name server: %v", r)
	}
	_, stranger := wireguardKey(t, s.dir, "stranger")
	path := s.file("wrong.conf", good[:strings.Index(good, "PublicKey")]+"PublicKey = "+stranger+"\n"+good[strings.Index(good, "Endpoint"):])
	r = run("--if", "wg:"+path, "--", "sh", "-c", "ping -qc1 -w12 10.2.0.1 >&2; echo ran")
	want := "eth0: the peer " + wgServer + ":" + wgPort + " does not answer: its address or UDP port is unreachable, the keys in the file are wrong, or it does not know the public key " + s.public
	if r.Status != 0 || r.Stdout != "ran\n" || strings.Count(r.Stderr, want) != 1 {
		t.Errorf("want %q once: %v", want, r)
	}
}
