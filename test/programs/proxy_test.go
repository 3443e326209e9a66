// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestProgHaproxy runs haproxy between clients on the host and a server on the other side
// of the wire. haproxy splices and checks its server's health. On a reload under load, it
// passes its listeners to its successor over a unix socket. All requests must succeed.
func TestProgHaproxy(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "haproxy", "wrk")
	kit.Random(t, s.Dir+"/file", 20<<20)
	s.Web(kit.Nginx{Workers: 2})
	for _, stack := range stacks(t) {
		t.Run(stack, func(t *testing.T) {
			dir := kit.Dir(t)
			conf := fmt.Sprintf(`global
  maxconn 500
  stats socket %s/sock mode 600 level admin expose-fd listeners
defaults
  timeout connect 10s
  timeout client 20s
  timeout server 20s
  option splice-auto
listen tcp
  mode tcp
  bind :8000
  server s %[2]s:80
listen http
  mode http
  bind :8001
  http-reuse always
  server s %[2]s:80 check inter 200
`, dir, kit.ServerAddr)
			r := startOn(s.In(t), stack, "haproxy", "-W", "-f", kit.WriteFile(t, dir+"/conf", conf), "-p", dir+"/pid")
			r.listens(8001)
			kit.Answers(t, r.proc, "http://"+kit.StackAddr+":8001/hello")
			use := func() {
				for _, port := range []string{"8000", "8001"} {
					got := kit.OK(t, kit.Limit, shell("curl -sSf http://%s:%s/file | sha256sum", kit.StackAddr, port))
					if !strings.HasPrefix(got, sum(t, s.Dir+"/file")) {
						t.Errorf("by port %s the file has the sum %s", port, got)
					}
				}
				load := kit.Start(t, exec.Command("wrk", "-t2", "-c50", "-d2s", "-H", "Connection: close", "http://"+kit.StackAddr+":8001/hello"))
				reloads := 0
				for load.Running() {
					reloaded := func() int { _, errs := r.proc.Output(); return strings.Count(errs, "Former worker") }
					before := reloaded()
					kit.Host.Run(t, "kill", "-USR2", strings.TrimSpace(kit.ReadFile(t, dir+"/pid")))
					if !kit.Within(kit.Limit/3, func() bool { return reloaded() > before }) {
						_, errs := r.proc.Output()
						t.Fatalf("the former worker is still there after %d reloads: %s", reloads, errs)
					}
					reloads++
				}
				if said := load.Wait(kit.Limit); said.Status != 0 || strings.Contains(said.Stdout, "errors") || strings.Contains(said.Stdout, "Non-2xx") || reloads < 2 {
					t.Errorf("%d reloads: %v", reloads, said)
				}
			}
			use()
			r.stands(use)
			// haproxy sets TCP_QUICKACK for its checks, which must not disable MPTCP.
			if _, errs := r.proc.Output(); strings.Contains(errs, "MPTCP does not support option 12 ") {
				t.Errorf("haproxy said: %s", errs)
			}
			r.proc.Signal(unix.SIGTERM)
			r.proc.Wait(kit.Limit)
		})
	}
}

// TestProgFTP checks FTP, which opens connections in both directions: the client opens
// the passive ones, and the server opens the active ones from its port 20.
func TestProgFTP(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs: []string{"vsftpd", "curl"},
		port:  21,
		server: func(dir string) []string {
			for _, sub := range []string{"/empty", "/pub"} {
				if err := os.Mkdir(dir+sub, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			kit.Random(t, dir+"/pub/file", 10<<20)
			conf := fmt.Sprintf("listen=YES\nlisten_port=21\nbackground=NO\nseccomp_sandbox=NO\nanonymous_enable=YES\nno_anon_password=YES\nftp_username=games\nanon_root=%[1]s/pub\nsecure_chroot_dir=%[1]s/empty\nport_enable=YES\nconnect_from_port_20=YES\nxferlog_enable=NO\n", dir)
			return []string{"vsftpd", kit.WriteFile(t, dir+"/conf", conf)}
		},
		client: func(c *client) {
			for _, how := range []string{"--ftp-pasv", "--ftp-port -"} {
				got := c.sh("curl -sS %s ftp://%s/file | sha256sum", how, c.addr)
				if !strings.HasPrefix(got, sum(c.T, c.dir+"/pub/file")) {
					c.Errorf("curl %s: the file has the sum %s", how, got)
				}
			}
			if got := c.ok("curl", "-sS", "-l", "ftp://"+c.addr+"/"); got != "file\n" {
				c.Errorf("the list of files: %q", got)
			}
		},
	})
}
