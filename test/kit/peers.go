// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ServeUp limits the time that a peer needs to start listening.
const ServeUp = 10 * time.Second

// Listening reports whether the namespace has a listening socket on port; proto is
// ss(8)'s letter, "t" or "u".
func (n *Netns) Listening(t testing.TB, proto string, port int) bool {
	t.Helper()
	return strings.TrimSpace(n.Run(t, "ss", "-Hnl"+proto, fmt.Sprintf("( sport = :%d )", port))) != ""
}

// serve starts a peer and waits until it listens.
func (n *Netns) serve(t testing.TB, proto string, port int, args ...string) *Proc {
	t.Helper()
	p := Start(t, n.Command(args...))
	ok := Within(ServeUp, func() bool { return !p.Running() || n.Listening(t, proto, port) })
	if out, errs := p.Output(); !ok || !p.Running() {
		t.Fatalf("%s does not listen on port %d:\n%s%s", strings.Join(args, " "), port, out, errs)
	}
	return p
}

// Nginx describes a web server.
type Nginx struct {
	Port    int    // 80 if 0
	Root    string // the directory it serves
	Workers int    // 0: a single process
	MPTCP   bool   // run with mptcpize
}

// Config writes an nginx configuration to dir and returns the command that runs it in the
// foreground.
func (c Nginx) Config(t testing.TB, dir string) []string {
	t.Helper()
	if c.Port == 0 {
		c.Port = 80
	}
	processes := "master_process off;"
	if c.Workers > 0 {
		processes = fmt.Sprintf("worker_processes %d;", c.Workers)
	}
	if os.Geteuid() == 0 {
		processes += " user root;"
	}
	conf := fmt.Sprintf(`daemon off; %s
pid %[2]s/nginx.pid; error_log %[2]s/error.log;
events { worker_connections 512; }
http {
	access_log off; sendfile on; keepalive_requests 1000000000; keepalive_timeout 1h;
	client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
	server { listen %[3]d; listen [::]:%[3]d; root %[4]s; }
}
`, processes, dir, c.Port, c.Root)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"nginx", "-e", dir + "/error.log", "-c", path}
	if c.MPTCP {
		args = append([]string{"mptcpize", "run"}, args...)
	}
	return args
}

// Nginx starts a web server in the namespace.
func (n *Netns) Nginx(t testing.TB, c Nginx) *Proc {
	t.Helper()
	if c.Port == 0 {
		c.Port = 80
	}
	return n.serve(t, "t", c.Port, c.Config(t, Dir(t))...)
}

// Iperf3 starts an iperf3 server on its port, 5201.
func (n *Netns) Iperf3(t testing.TB) *Proc {
	t.Helper()
	return n.serve(t, "t", 5201, "iperf3", "-s")
}

// Dnsmasq starts a name server that answers only for names and forwards no queries.
func (n *Netns) Dnsmasq(t testing.TB, names map[string]string) *Proc {
	t.Helper()
	args := []string{"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file=", "--user=root", "--log-queries", "--log-facility=-"}
	for name, addr := range names {
		args = append(args, fmt.Sprintf("--host-record=%s,%s", name, addr))
	}
	return n.serve(t, "u", 53, args...)
}

// EchoTCP echoes TCP data until the end of the test. It returns its port.
func (n *Netns) EchoTCP(t testing.TB, address string) int {
	t.Helper()
	l := n.Listen(t, address)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener is closed: the test has ended
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client reports errors
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// EchoUDP returns every datagram to its sender, until the end of the test. It listens on
// one address, so that answers come from the address of the request.
func (n *Netns) EchoUDP(t testing.TB, address string) {
	t.Helper()
	var c net.PacketConn
	n.Do(t, func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			k, from, err := c.ReadFrom(buf)
			if err != nil {
				return // the listener is closed: the test has ended
			}
			_, _ = c.WriteTo(buf[:k], from) // UDP may lose datagrams
		}
	}()
}

// PythonHTTP serves a directory with python3 -m http.server.
func (n *Netns) PythonHTTP(t testing.TB, port int, dir string) *Proc {
	t.Helper()
	return n.serve(t, "t", port, "/usr/bin/python3", "-m", "http.server", "-d", dir, fmt.Sprint(port))
}
