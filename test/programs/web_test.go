// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// webServer is nginx with four workers. It serves hello and file, accepts uploads to
// /up/, and speaks TLS and HTTP/2 on port 443.
func webServer(t *testing.T) func(dir string) []string {
	cert := certificate(t)
	return func(dir string) []string {
		for name, size := range map[string]int64{"www/file": 20 << 20, "www/small": 4096} {
			if err := os.MkdirAll(filepath.Join(dir, "www/up"), 0o755); err != nil {
				t.Fatal(err)
			}
			kit.Random(t, filepath.Join(dir, name), size)
		}
		kit.WriteFile(t, dir+"/www/hello", "hello\n")
		conf := fmt.Sprintf(`daemon off; worker_processes 4; user root; pid %[1]s/nginx.pid; error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
	access_log off; sendfile on; client_max_body_size 0;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen 80; listen [::]:80; listen 443 ssl http2;
		ssl_certificate %[2]s/cert.pem; ssl_certificate_key %[2]s/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
		root %[1]s/www;
		location /up/ { dav_methods PUT; }
	}
}
`, dir, cert)
		kit.WriteFile(t, dir+"/nginx.conf", conf)
		return []string{"nginx", "-e", dir + "/error.log", "-c", dir + "/nginx.conf"}
	}
}

// certificate creates a certificate for all addresses of the tests' servers. It returns
// the directory of cert.pem and key.pem.
func certificate(t *testing.T) string {
	t.Helper()
	kit.Need(t, "openssl")
	dir := kit.Dir(t)
	kit.Host.Run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
		"-subj", "/CN=test", "-addext", fmt.Sprintf("subjectAltName=IP:%s,IP:%s,IP:127.0.0.1", kit.ServerAddr, kit.StackAddr),
		"-keyout", dir+"/key.pem", "-out", dir+"/cert.pem")
	return dir
}

// sum returns the SHA-256 of a file.
func sum(t *testing.T, path string) string {
	t.Helper()
	return strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", path)))[0]
}

// TestProgWeb runs nginx with four workers. Its clients are curl with each version of
// HTTP and TLS, wget and aria2.
func TestProgWeb(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs:  []string{"wget", "aria2c", "ab"},
		port:   80,
		server: webServer(t),
		client: func(c *client) {
			file, small := sum(c.T, c.dir+"/www/file"), sum(c.T, c.dir+"/www/small")
			fetched := func(name, want string) {
				c.Helper()
				if sum(c.T, c.tmp+"/"+name) != want {
					c.Errorf("%s is not what the server has", name)
				}
			}
			cert := filepath.Dir(regexp.MustCompile(`ssl_certificate (\S*)cert.pem`).FindStringSubmatch(kit.ReadFile(c.T, c.dir+"/nginx.conf"))[1] + "x")
			c.says("hello\n1.1", "curl", "-sS", "--http1.1", "-w", "%{http_version}", "http://"+c.addr+"/hello")
			c.says("hello\n2", "curl", "-sS", "--cacert", cert+"/cert.pem", "-w", "%{http_version}", "https://"+c.addr+"/hello")
			// Use twenty streams on one connection.
			c.ok("curl", "-sSZ", "--cacert", cert+"/cert.pem", "-o", c.tmp+"/many#1", "https://"+c.addr+"/small?[1-20]")
			for i := range 20 {
				fetched(fmt.Sprintf("many%d", i+1), small)
			}
			c.ok("curl", "-sS", "--cacert", cert+"/cert.pem", "-o", c.tmp+"/tls", "https://"+c.addr+"/file")
			fetched("tls", file)
			c.ok("curl", "-sSf", "-T", c.dir+"/www/file", "http://"+c.addr+"/up/put")
			if sum(c.T, c.dir+"/www/up/put") != file {
				c.Error("what nginx took is not what curl sent")
			}
			c.ok("wget", "-q", "-O", c.tmp+"/wget", "http://"+c.addr+"/file")
			fetched("wget", file)
			if err := os.Truncate(c.tmp+"/wget", 5000001); err != nil {
				c.Fatal(err)
			}
			c.ok("wget", "-q", "-c", "-O", c.tmp+"/wget", "http://"+c.addr+"/file")
			fetched("wget", file)
			c.ok("aria2c", "-q", "--no-conf", "-x", "8", "-s", "8", "-k", "1M", "-d", c.tmp, "-o", "aria", "http://"+c.addr+"/file")
			fetched("aria", file)
			for _, keep := range []string{"-k", "-q"} {
				said := c.ok("ab", "-q", keep, "-n", "1000", "-c", "40", "http://"+c.addr+"/small")
				if !regexp.MustCompile(`Complete requests: +1000\n`).MatchString(said) || !regexp.MustCompile(`Failed requests: +0\n`).MatchString(said) {
					c.Errorf("ab %s: %s", keep, said)
				}
			}
		},
	})
}

// TestProgNginxReload reloads nginx again and again while wrk sends requests as fast as
// it can. All requests must succeed.
func TestProgNginxReload(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "wrk")
	server := webServer(t)
	for _, stack := range stacks(t) {
		t.Run(stack, func(t *testing.T) {
			dir := kit.Dir(t)
			r := startOn(s.In(t), stack, server(dir)...)
			r.listens(80)
			reload := func() {
				// Each request has a connection of its own. nginx closes idle connections
				// on reload, so a request on one of them could arrive too late, on any
				// stack.
				load := kit.Start(t, exec.Command("wrk", "-t2", "-c50", "-d2s", "-H", "Connection: close", "http://"+kit.StackAddr+"/small"))
				reloads := 0
				for load.Running() {
					old := workers(t, dir)
					kit.OK(t, kit.Limit, exec.Command("nginx", "-e", dir+"/error.log", "-c", dir+"/nginx.conf", "-s", "reload"))
					kit.WaitFor(t, "new workers", kit.Limit, func() bool { return disjoint(old, workers(t, dir)) })
					reloads++
				}
				said := load.Wait(kit.Limit)
				t.Logf("%d reloads; %s", reloads, said.Stdout)
				if said.Status != 0 || strings.Contains(said.Stdout, "errors") || strings.Contains(said.Stdout, "Non-2xx") || reloads < 2 {
					t.Errorf("%d reloads: %v", reloads, said)
				}
			}
			r.keepsNothing(reload)
			r.stands(reload)
			r.proc.Signal(15)
			r.proc.Wait(kit.Limit)
		})
	}
}

// workers returns the process ids of nginx's workers that are not shutting down.
func workers(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range kit.Lines(kit.Host.Run(t, "ps", "-eo", "pid,ppid,args")) {
		f := strings.Fields(line)
		if f[1] == strings.TrimSpace(kit.ReadFile(t, dir+"/nginx.pid")) && strings.HasSuffix(line, "nginx: worker process") {
			all[f[0]] = true
		}
	}
	return all
}

// disjoint reports whether b has four entries, none of them in a.
func disjoint(a, b map[string]bool) bool {
	for k := range b {
		if a[k] {
			return false
		}
	}
	return len(b) == 4
}

// TestHTTP3 checks downloads over HTTP/3 by quic-go, which uses recvmmsg(), UDP_SEGMENT
// and ancillary data. QUIC itself detects wrong bytes. The client is on the stack, and
// then the server.
func TestHTTP3(t *testing.T) {
	s := kit.NewSite(t)
	program := kit.Program("http3")
	const size = "30000000"
	check := func(got string) {
		t.Helper()
		if !strings.HasSuffix(got, " Gbit/s\n") {
			t.Errorf("the client: %q", got)
		}
	}
	for _, address := range []string{kit.ServerAddr, kit.ServerAddr6} {
		server := kit.Start(t, s.Server.Command(program, "serve", address, "5443"))
		kit.WaitFor(t, "the server", kit.Limit, func() bool { return s.Server.Listening(t, "u", 5443) })
		check(kit.OK(t, 4*kit.Limit, s.OnTap(program, "get", address, "5443", size)))
		server.Signal(15)
		server.Wait(kit.Limit)
	}
	// The client repeats its first datagram until the server answers.
	server := kit.Start(t, s.OnTap(program, "serve", kit.StackAddr, "5443"))
	check(kit.OK(t, 4*kit.Limit, s.Server.Command(program, "get", kit.StackAddr, "5443", size)))
	server.Signal(15)
	server.Wait(kit.Limit)
}
