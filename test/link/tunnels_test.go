// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// The ends of a tunnel: on the stack, and on the server.
const tunnelOurs, tunnelTheirs = "10.69.0.2", "10.69.0.1"

// TestTunnels fetches a file through a tunnel of a VPN program on the stack, whose peer
// runs on the server. With the engine trace, an ordinary user runs the program, except
// wireguard-go, whose control socket is in a folder of root.
func TestTunnels(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, dir string) (ours, theirs string){
		"openvpn": openvpn, "wg": wireguard,
	} {
		t.Run(name, func(t *testing.T) {
			kit.Need(t, name)
			s := kit.NewSite(t)
			ours, theirs := begin(t, kit.Dir(t))
			s.Web(kit.Nginx{})
			kit.Start(t, s.Server.Command("sh", "-c", theirs))
			for engine, user := range map[string]string{"supervise": "0", "trace": map[string]string{"openvpn": "65534", "wg": "0"}[name]} {
				r := kit.Run(t, kit.TransferLimit, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--user", user, "--if", s.TapIf(), "--", "sh", "-c",
					"("+ours+") >&2 & curl -sS --retry 60 --retry-delay 1 --retry-all-errors --connect-timeout 2 http://"+tunnelTheirs+"/hello; kill $!"))
				if r.Stdout != "hello\n" {
					t.Errorf("%s: %v", engine, r)
				}
			}
		})
	}
}

// openvpn uses a static key.
func openvpn(t *testing.T, dir string) (ours, theirs string) {
	key := filepath.Join(dir, "key")
	kit.OK(t, kit.Limit, exec.Command("openvpn", "--genkey", "secret", key))
	kit.Must(t, os.Chmod(key, 0o644)) // for a user, too
	line := func(remote, a, b string) string {
		return fmt.Sprintf("exec openvpn --dev tun --proto udp --secret %s --cipher AES-256-CBC --remote %s --ifconfig %s %s", key, remote, a, b)
	}
	return line(kit.ServerAddr, tunnelOurs, tunnelTheirs), line(kit.StackAddr, tunnelTheirs, tunnelOurs)
}

// wireguard runs wireguard-go. Its devices have different names, because their control
// sockets are files.
func wireguard(t *testing.T, dir string) (ours, theirs string) {
	program := wireguardGo(t, dir)
	ourKey, ourPublic := wireguardKey(t, dir, "ours")
	theirKey, theirPublic := wireguardKey(t, dir, "theirs")
	line := func(dev, file, public, remote, a, b string) string {
		return fmt.Sprintf("LOG_LEVEL=error WG_PROCESS_FOREGROUND=1 "+program+" %[1]s & trap 'kill $!' TERM; "+wireguardReady+"; wg set %[1]s listen-port 5555 private-key %[2]s peer %[3]s endpoint %[4]s:5555 allowed-ips 10.69.0.0/24; "+
			"ip addr add %[5]s peer %[6]s dev %[1]s; ip link set %[1]s up; wait", dev, file, public, remote, a, b)
	}
	name := kit.NewName()
	name = name[max(0, len(name)-8):]
	return line("a"+name, ourKey, theirPublic, kit.ServerAddr, tunnelOurs, tunnelTheirs),
		line("b"+name, theirKey, ourPublic, kit.StackAddr, tunnelTheirs, tunnelOurs)
}

// wireguardReady waits until the wireguard-go of the first device of a script takes commands.
// A wg that tries earlier, after bind() and before listen(), removes the socket.
const wireguardReady = "until socat /dev/null UNIX-CONNECT:/var/run/wireguard/%[1]s.sock 2>/dev/null; do :; done"

// wireguardGo builds wireguard-go.
func wireguardGo(t *testing.T, dir string) string {
	program := filepath.Join(dir, "wireguard-go")
	kit.OK(t, kit.TransferLimit, exec.Command("go", "build", "-C", kit.Root(), "-o", program, "golang.zx2c4.com/wireguard"))
	return program
}

// wireguardKey creates the file of a private key.
func wireguardKey(t *testing.T, dir, name string) (file, public string) {
	private := kit.OK(t, kit.Limit, exec.Command("wg", "genkey"))
	file = kit.WriteFile(t, filepath.Join(dir, name), private)
	kit.Must(t, os.Chmod(file, 0o600))
	cmd := exec.Command("wg", "pubkey")
	cmd.Stdin = strings.NewReader(private)
	return file, strings.TrimSpace(kit.OK(t, kit.Limit, cmd))
}

//go:embed testdata/tun.py
var tunRequests string

// TestTun checks the requests of tun devices while the target keeps one, and that none
// appears in the target's own network namespace, which the host's kernel serves. A user
// who may not open the host's file makes them, too.
func TestTun(t *testing.T) {
	kit.Need(t, "nsenter")
	for _, name := range []string{"supervise/0", "trace/0", "supervise/65534", "trace/65534"} {
		engine, user, _ := strings.Cut(name, "/")
		t.Run(name, func(t *testing.T) {
			s := kit.NewSite(t)
			cmd := kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--user", user, "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", tunRequests)
			if user != "0" { // the host's file is for root
				cmd = exec.Command("unshare", append([]string{"-m", "sh", "-c", `mknod -m 600 $0 c 10 200 && mount --bind $0 /dev/net/tun && exec "$@"`, filepath.Join(s.Dir, "tun")}, cmd.Args...)...)
			}
			in, err := cmd.StdinPipe()
			kit.Must(t, err)
			p := kit.Start(t, cmd)
			pid := 0
			kit.WaitFor(t, "the end of the requests", kit.TransferLimit, func() bool {
				out, errs := p.Output()
				if !p.Running() {
					t.Fatalf("%s%s", out, errs)
				}
				_, done, _ := strings.Cut(out, "done ")
				n, _ := fmt.Sscanf(done, "%d\n", &pid)
				return n == 1
			})
			links := kit.OK(t, kit.Limit, exec.Command("nsenter", "-t", fmt.Sprint(pid), "-n", "ip", "-br", "link"))
			if len(kit.Lines(links)) != 1 {
				t.Errorf("devices of the host beside lo:\n%s", links)
			}
			kit.Must(t, in.Close())
			if r := p.Wait(kit.Limit); r.Status != 0 || len(kit.Lines(r.Stdout)) != 1 {
				t.Errorf("%v", r)
			}
		})
	}
}
