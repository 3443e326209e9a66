// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// The ends of a tunnel: on the stack, and on the server.
const tunnelOurs, tunnelTheirs = "10.69.0.2", "10.69.0.1"

// TestTunnels fetches a file through a tunnel of a VPN program on the stack, whose peer
// runs on the server.
func TestTunnels(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, dir string) (ours, theirs string){
		"openvpn": openvpn,
	} {
		t.Run(name, func(t *testing.T) {
			kit.Need(t, name)
			s := kit.NewSite(t)
			ours, theirs := begin(t, kit.Dir(t))
			s.Web(kit.Nginx{})
			kit.Start(t, s.Server.Command("sh", "-c", theirs))
			for _, engine := range []string{"supervise", "trace"} {
				r := kit.Run(t, kit.TransferLimit, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--if", s.TapIf(), "--", "sh", "-c",
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
	line := func(remote, a, b string) string {
		return fmt.Sprintf("exec openvpn --dev tun --proto udp --secret %s --cipher AES-256-CBC --remote %s --ifconfig %s %s", key, remote, a, b)
	}
	return line(kit.ServerAddr, tunnelOurs, tunnelTheirs), line(kit.StackAddr, tunnelTheirs, tunnelOurs)
}

//go:embed testdata/tun.py
var tunRequests string

// TestTun checks the requests of tun devices while the target keeps one, and that none
// appears in the target's own network namespace, which the host's kernel serves.
func TestTun(t *testing.T) {
	kit.Need(t, "nsenter")
	for _, engine := range []string{"supervise", "trace"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			cmd := kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", tunRequests)
			in, err := cmd.StdinPipe()
			kit.Must(t, err)
			p := kit.Start(t, cmd)
			pid := 0
			kit.WaitFor(t, "the end of the requests", kit.TransferLimit, func() bool {
				out, errs := p.Output()
				if !p.Running() {
					t.Fatalf("%s%s", out, errs)
				}
				n, _ := fmt.Sscanf(out, "done %d\n", &pid)
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
