// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	limit      = 30 * time.Second  // of one measurement, and of one wait
	shapedMbit = 100               // rate of the shaped links
	gateway    = "192.168.127.254" // the host's loopback, seen through lklrun's gateway
	nginxPort  = "8080"
	wgPeer     = "10.9.40.1" // behind WireGuard
)

// A lab is two namespaces, joined by three links for the host's kernel and three for a stack. The
// first of each is fast, the others carry shapedMbit towards the client:
//
//	namespace peer                               namespace client
//	tapN 10.9.(10+N).1 ─ 10.9.(10+N).2 the stack
//	pN   10.9.(20+N).1 ──────── veth ─────────── cN 10.9.(20+N).2 the host's kernel
//
// A lab also has the other ends of the measurements: servers in peer.
type lab struct {
	ctx     context.Context //nolint:containedctx // ends with the process; every row would pass it on unchanged
	cancel  context.CancelFunc
	dir     string
	bin     string
	servers []*exec.Cmd
	slirp   string // the command that enters the namespace behind slirp4netns
}

// A way is how a program gets its network: a column of a table.
type way struct {
	name  string
	wrap  []string // what comes before the program
	peer  string   // the peer's address, as the program sees it
	own   string   // the program's address, as the peer sees it
	dev   string   // the peer's device of the first path, if there is a second path
	cc    string   // congestion control of streams; "" for the default
	mptcp bool     // the peer's server must be one of MPTCP
	serve []string // the command of a server of its own
}

func (w way) command(argv ...string) []string {
	return append(append([]string(nil), w.wrap...), argv...)
}

// newLab makes the namespaces and starts the servers.
func newLab(ctx context.Context) (*lab, error) {
	bin, err := filepath.Abs("bin/lklrun")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lklrun-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, bin: bin}
	l.ctx, l.cancel = context.WithCancel(ctx)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/flags", 0o755), os.Chmod(dir+"/flags", 0o777), l.links(), l.serve()); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() {
	l.cancel()
	for _, s := range l.servers {
		_ = s.Wait() // it was killed
	}
	_ = os.Remove("/run/wireguard") // of wireguard-go; fails if others use it
	_ = os.RemoveAll(l.dir)         // a leftover below /tmp is harmless
}

// links makes the namespaces and their devices.
func (l *lab) links() error {
	lines := []string{"ip link set lo up"}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, ns := range []string{"peer", "client"} {
		add("ip netns add %s", ns)
		add("ip -n %s link set lo up", ns)
		add("ip netns exec %s sysctl -qw net.mptcp.enabled=1", ns)
	}
	for n := range 3 {
		add("ip -n peer tuntap add tap%d mode tap", n)
		add("ip -n peer link add p%d type veth peer name c%d netns client", n, n)
		for _, d := range [][]any{{"peer", "tap", n, 10 + n, 1}, {"peer", "p", n, 20 + n, 1}, {"client", "c", n, 20 + n, 2}} {
			add("ip -n %s addr add 10.9.%d.%d/24 dev %s%d", d[0], d[3], d[4], d[1], n)
			add("ip -n %s link set %s%d up", d[0], d[1], n)
			if n > 0 && d[0] == "peer" {
				add("tc -n peer qdisc add dev %s%d root tbf rate %dmbit burst 128k latency 50ms", d[1], n, shapedMbit)
			}
		}
		// The second subflow has the address of the first server.
		add("ip -n client rule add from 10.9.%d.2 lookup %d", 20+n, 100+n)
		add("ip -n client route add default via 10.9.%d.1 table %d", 20+n, 100+n)
	}
	add("ip -n client mptcp endpoint add 10.9.22.2 dev c2 subflow")
	add("ip -n client mptcp limits set subflow 2 add_addr_accepted 0")
	add("ip -n peer mptcp limits set subflow 2 add_addr_accepted 2")
	add("ip -n peer route add default via 10.9.20.2") // pasta copies it
	return errors.Join(os.MkdirAll("/run/netns", 0o755), syscall.Mount("none", "/run/netns", "tmpfs", 0, ""), l.sh(lines...))
}

// serve starts the peer's servers.
func (l *lab) serve() error {
	config := strings.ReplaceAll(`daemon off; master_process off; pid DIR/pid; error_log DIR/log;
events { worker_connections 1024; }
http {
	access_log off; keepalive_requests 1000000;
	client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
	server { listen `+nginxPort+`; location / { return 200 "0123456789abcdef"; } }
}
`, "DIR", l.dir)
	if err := os.WriteFile(l.dir+"/nginx.conf", []byte(config), 0o644); err != nil {
		return err
	}
	peer := way{wrap: inNetns("peer")}
	for _, s := range []struct {
		port string
		argv []string
	}{
		{"5201", []string{"iperf3", "-s"}},
		{"5202", []string{"mptcpize", "run", "iperf3", "-s", "-p", "5202"}},
		{"11111", []string{"sockperf", "server", "--tcp", "-i", "0.0.0.0", "-p", "11111"}},
		{nginxPort, l.nginx()},
	} {
		if _, err := l.start(peer.command(s.argv...)); err != nil {
			return err
		}
		if err := l.wait(func() error {
			return l.shows(peer.command("ss", "-ltnH", "sport", "=", s.port)...)
		}); err != nil {
			return err
		}
	}
	return errors.Join(l.startSlirp(), l.startWireGuard())
}

// startWireGuard joins peer and client by two processes of wireguard-go, and writes a file for
// a second client.
func (l *lab) startWireGuard() error {
	program := l.dir + "/wireguard-go"
	if _, err := l.output("go", "build", "-o", program, "golang.zx2c4.com/wireguard"); err != nil {
		return err
	}
	keys := map[string][2]string{}
	for _, name := range []string{"peer", "client", "stack"} {
		private, err := l.output("sh", "-c", "umask 077; wg genkey | tee "+l.dir+"/"+name+".key")
		if err != nil {
			return err
		}
		public, err := l.output("sh", "-c", "wg pubkey < "+l.dir+"/"+name+".key")
		if err != nil {
			return err
		}
		keys[name] = [2]string{strings.TrimSpace(private), strings.TrimSpace(public)}
	}
	config := fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.9.40.3/24\n[Peer]\nPublicKey = %s\nEndpoint = 10.9.20.1:51820\nAllowedIPs = 10.9.40.0/24\n", keys["stack"][0], keys["peer"][1])
	if err := os.WriteFile(l.dir+"/wg.conf", []byte(config), 0o600); err != nil {
		return err
	}
	for n, name := range []string{"peer", "client"} {
		dev := "wg-" + name
		if _, err := l.start(append(inNetns(name), program, "-f", dev)); err != nil {
			return err
		}
		if err := l.wait(func() error { // wg removes a socket that does not answer yet
			return l.sh("socat /dev/null UNIX-CONNECT:/var/run/wireguard/" + dev + ".sock")
		}); err != nil {
			return err
		}
		if err := l.sh("ip netns exec "+name+" wg set "+dev+" private-key "+l.dir+"/"+name+".key", fmt.Sprintf("ip -n %s addr add 10.9.40.%d/24 dev %s", name, n+1, dev), fmt.Sprintf("ip -n %s link set %s up", name, dev)); err != nil {
			return err
		}
	}
	return l.sh(
		"ip netns exec peer wg set wg-peer listen-port 51820 peer "+keys["client"][1]+" allowed-ips 10.9.40.2/32 peer "+keys["stack"][1]+" allowed-ips 10.9.40.3/32",
		"ip netns exec client wg set wg-client peer "+keys["peer"][1]+" endpoint 10.9.20.1:51820 allowed-ips 10.9.40.0/24",
	)
}

// startSlirp puts slirp4netns before a new namespace.
func (l *lab) startSlirp() error {
	holder, err := l.start(append(inNetns("peer"), "unshare", "--net", "sleep", "infinity"))
	if err != nil {
		return err
	}
	l.slirp = "/proc/" + strconv.Itoa(holder.Process.Pid) + "/ns/net"
	if err := l.wait(func() error {
		return l.shows("pgrep", "-x", "--ns", strconv.Itoa(holder.Process.Pid), "--nslist", "net", "sleep")
	}); err != nil {
		return err
	}
	if _, err := l.start(append(inNetns("peer"), "slirp4netns", "--configure", "--mtu=65520", strconv.Itoa(holder.Process.Pid), "tap0")); err != nil {
		return err
	}
	return l.wait(func() error { return l.shows("nsenter", "--net="+l.slirp, "ip", "route", "show", "default") })
}

func inNetns(name string) []string { return []string{"ip", "netns", "exec", name} }

// clientRun returns the line of a run in client.
func (l *lab) clientRun(engine, link string, flags ...string) []string {
	line := append(inNetns("client"), l.bin, "--quiet", "--engine", engine, "--stack", "vanilla", "--if", link)
	return append(append(line, flags...), "--")
}

// lklrun returns a way over lklrun.
func (l *lab) lklrun(engine, stack string, flags ...string) []string {
	line := append(inNetns("peer"), l.bin, "--quiet", "--engine", engine, "--stack", stack)
	return append(append(line, flags...), "--")
}

func (l *lab) nginx() []string { return []string{"/usr/sbin/nginx", "-c", l.dir + "/nginx.conf"} }

// start starts a command in the background. It ends with the lab.
func (l *lab) start(argv []string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(l.ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = limit
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l.servers = append(l.servers, cmd)
	return cmd, nil
}

// output runs a command and returns its output.
func (l *lab) output(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w; %.400s%.400s", strings.Join(argv, " "), err, stderr.String(), out)
	}
	return string(out), err
}

// sh runs command lines whose words contain no spaces.
func (l *lab) sh(lines ...string) error {
	for _, line := range lines {
		if _, err := l.output(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// shows fails if a command prints nothing.
func (l *lab) shows(argv ...string) error {
	out, err := l.output(argv...)
	if err == nil && out == "" {
		err = fmt.Errorf("%s prints nothing", strings.Join(argv, " "))
	}
	return err
}

// wait waits until f succeeds.
func (l *lab) wait(f func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-end:
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-tick.C:
		}
	}
}
