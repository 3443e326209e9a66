// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestProgHTTP2 runs nghttpd with two threads, and sends thousands of streams over a few
// connections.
func TestProgHTTP2(t *testing.T) {
	s := kit.NewSite(t)
	cert := certificate(t)
	testPair(s, pair{
		needs:  []string{"nghttpd", "h2load", "nghttp"},
		inside: asServer | asClient,
		port:   7000,
		server: func(dir string) []string {
			kit.Random(t, dir+"/file", 2<<20)
			kit.WriteFile(t, dir+"/hello", "hello\n")
			return []string{"nghttpd", "-n", "2", "-d", dir, "7000", cert + "/key.pem", cert + "/cert.pem"}
		},
		client: func(c *client) {
			for path, n := range map[string]int{"/hello": 3000, "/file": 60} {
				got := c.ok("h2load", "-n", fmt.Sprint(n), "-c", "15", "-m", "20", "https://"+c.addr+":7000"+path)
				if !strings.Contains(got, fmt.Sprintf("%d succeeded, 0 failed, 0 errored", n)) {
					c.Errorf("h2load %s: %s", path, got)
				}
			}
			if got := c.ok("nghttp", "https://"+c.addr+":7000/file"); got != kit.ReadFile(c.T, c.dir+"/file") {
				c.Errorf("nghttp got another file, of %d bytes", len(got))
			}
		},
	})
}

// TestProgPHP runs php-fpm behind nginx, by a unix socket and by TCP over lo. php-fpm
// replaces its processes after some requests. The processes also fetch pages from their
// own nginx.
func TestProgPHP(t *testing.T) {
	s := kit.NewSite(t)
	const fpm = "/usr/sbin/php-fpm8.2"
	testPair(s, pair{
		needs: []string{fpm, "nginx", "ab", "curl"},
		heavy: true,
		port:  80,
		server: func(dir string) []string {
			kit.Random(t, dir+"/file", 3<<20)
			kit.WriteFile(t, dir+"/i.php", `<?php
if (isset($_GET["u"])) die(hash("sha256", file_get_contents($_GET["u"])));
echo $_SERVER["REQUEST_METHOD"], " ", hash("sha256", file_get_contents("php://input")), "\n";
`)
			pool := "[%s]\nuser=root\ngroup=root\nlisten=%s\npm=static\npm.max_children=3\npm.max_requests=50\n"
			kit.WriteFile(t, dir+"/fpm", fmt.Sprintf("[global]\nerror_log=%[1]s/fpm.log\npid=%[1]s/fpm.pid\n", dir)+
				fmt.Sprintf(pool, "unix", dir+"/sock")+fmt.Sprintf(pool, "tcp", "127.0.0.1:9000"))
			location := "location /%s/ { include fastcgi_params; fastcgi_param SCRIPT_FILENAME %s/i.php; fastcgi_pass %s; }\n"
			kit.WriteFile(t, dir+"/nginx", fmt.Sprintf(`daemon off; user root; pid %[1]s/nginx.pid; error_log %[1]s/error.log;
events { }
http {
	access_log off; client_max_body_size 0; client_body_temp_path %[1]s/body; fastcgi_temp_path %[1]s/fastcgi;
	server { listen 80; root %[1]s;
`, dir)+fmt.Sprintf(location, "unix", dir, "unix:"+dir+"/sock")+fmt.Sprintf(location, "tcp", dir, "127.0.0.1:9000")+"}}\n")
			kit.Host.Run(t, "cp", "/etc/nginx/fastcgi_params", dir)
			// nginx is the run's first process, so the run ends when nginx ends.
			return []string{"sh", "-c", fmt.Sprintf(`%[2]s -R -F -y %[1]s/fpm >/dev/null 2>&1 &
				until [ -s %[1]s/fpm.pid ]; do sleep 0.01; done
				exec nginx -e %[1]s/error.log -c %[1]s/nginx`, dir, fpm)}
		},
		client: func(c *client) {
			want := sum(c.T, c.dir+"/file")
			for _, by := range []string{"unix", "tcp"} {
				url := "http://" + c.addr + "/" + by + "/"
				got := c.ok("ab", "-q", "-n", "300", "-c", "10", url)
				if !strings.Contains(got, "Complete requests:      300\n") || strings.Contains(got, "Non-2xx") || !strings.Contains(got, "Failed requests:        0\n") {
					c.Errorf("ab by %s: %s", by, got)
				}
				c.says("POST "+want+"\n", "curl", "-sSf", "-H", "Content-Type: x/y", "--data-binary", "@"+c.dir+"/file", url)
				c.says(want, "curl", "-sSf", url+"?u=http://127.0.0.1/file")
			}
			// A signal interrupts getsockopt() if lklhost has not received it yet
			// (docs/reference/limits.md), and php-fpm gets SIGCHLD.
			got := strings.ReplaceAll(kit.ReadFile(c.T, c.dir+"/fpm.log"), "ERROR: failed to retrieve TCP_INFO for socket: Interrupted system call", "")
			if strings.Contains(got, "ERROR") {
				c.Errorf("php-fpm said: %s", got)
			}
		},
	})
}

//go:embed testdata/activated_listener.py
var activatedListener string

//go:embed testdata/activated_datagrams.py
var activatedDatagrams string

//go:embed testdata/activated_asks.py
var activatedAsks string

// TestProgActivated checks systemd-socket-activate: it listens and starts a program for a
// client. The program inherits the sockets: a listener, a connection, a datagram socket.
func TestProgActivated(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs: []string{"systemd-socket-activate", "nc"},
		port:  7000,
		server: func(dir string) []string {
			listener := kit.WriteFile(t, dir+"/listener.py", activatedListener)
			dgram := kit.WriteFile(t, dir+"/dgram.py", activatedDatagrams)
			return []string{"sh", "-c", fmt.Sprintf(`
				systemd-socket-activate --accept --inetd -l 7001 /usr/bin/sha256sum >/dev/null 2>&1 &
				systemd-socket-activate --datagram -l 7002 /usr/bin/python3 %s >/dev/null 2>&1 &
				exec systemd-socket-activate -l 7000 /usr/bin/python3 %s`, dgram, listener)}
		},
		client: func(c *client) {
			c.says("20 of a listener, 20 datagrams\n", python(activatedAsks, c.addr)...)
			text := kit.WriteFile(c.T, c.tmp+"/text", strings.Repeat("text ", 1e6))
			for range 5 {
				if got := c.sh("until nc -N %s 7001 <%s; do :; done", c.addr, text); !strings.HasPrefix(got, sum(c.T, text)) {
					c.Errorf("sha256sum, activated for a connection, said %q", got)
				}
			}
		},
	})
}

//go:embed testdata/ruby_client.rb
var rubyClient string

// TestProgRuby runs puma with two processes of four threads, and Net::HTTP with
// keep-alive.
func TestProgRuby(t *testing.T) {
	s := kit.NewSite(t)
	dir := kit.Dir(t)
	app := kit.WriteFile(t, dir+"/config.ru", `
require "digest/sha2"
Digest::SHA256.new # what threads do first at the same time goes wrong in Ruby
run ->(env) { [200, { "content-type" => "text/plain" }, [env["REQUEST_METHOD"], " ", Digest::SHA256.hexdigest(env["rack.input"].read)]] }
`)
	asker := kit.WriteFile(t, dir+"/client.rb", rubyClient)
	testPair(s, pair{
		needs:  []string{"puma", "ruby"},
		heavy:  true,
		inside: asClient,
		port:   9292,
		server: func(string) []string {
			return []string{"puma", "-q", "-w", "2", "-t", "4:4", "-b", "tcp://0.0.0.0:9292", app}
		},
		client: func(c *client) { c.says("200\n", "ruby", asker, c.addr) },
	})
}

// TestProgMariaDB runs MariaDB, which has a thread for each connection, and requests
// results of some megabytes.
func TestProgMariaDB(t *testing.T) {
	s := kit.NewSite(t)
	const bin = "/usr/sbin/mariadbd"
	testPair(s, pair{
		needs:  []string{bin, "mariadb", "mariadb-install-db"},
		heavy:  true,
		inside: asServer,
		port:   3306,
		server: func(dir string) []string {
			if err := os.Mkdir(dir+"/data", 0o700); err != nil {
				t.Fatal(err)
			}
			kit.OK(t, kit.Limit, exec.Command("mariadb-install-db", "--no-defaults", "--skip-test-db", "--user=root", "--datadir="+dir+"/data"))
			init := kit.WriteFile(t, dir+"/init", "create database d;\ncreate user u@'%' identified by 'p';\ngrant all on d.* to u@'%';\n")
			return []string{bin, "--no-defaults", "--user=root", "--skip-name-resolve", "--datadir=" + dir + "/data", "--socket=" + dir + "/sock", "--pid-file=" + dir + "/pid", "--init-file=" + init}
		},
		client: func(c *client) {
			mariadb := "mariadb --no-defaults --protocol=tcp -h " + c.addr + " -u u -pp -N d"
			c.sh("until %s -e 'select 1' >/dev/null 2>&1; do sleep 0.1; done", mariadb)
			got := c.sh(`%s -e 'create or replace table t select seq, repeat(char(65 + seq %% 26), 20000) b from seq_1_to_300; select b from t order by seq' | sha256sum`, mariadb)
			if want := kit.OK(c, kit.Limit, exec.Command("/usr/bin/python3", "-c", "import hashlib\nh = hashlib.sha256()\nfor i in range(1, 301): h.update(bytes([65 + i % 26]) * 20000 + b'\\n')\nprint(h.hexdigest(), ' -')")); got != want {
				c.Errorf("300 rows have the sum %s, want %s", got, want)
			}
			if got := c.sh(`seq 60 | xargs -P 20 -I{} %s -e 'select 2 * {}' | sort -n | tail -1`, mariadb); got != "120\n" {
				c.Errorf("the last of 60 connections, 20 at once: %q", got)
			}
		},
	})
}
