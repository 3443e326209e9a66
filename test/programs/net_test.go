// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestProgIperf3 runs iperf3 in both directions, with eight streams, and by UDP.
func TestProgIperf3(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs:  []string{"iperf3"},
		heavy:  true,
		port:   5201,
		server: func(string) []string { return []string{"iperf3", "-s"} },
		client: func(c *client) {
			for _, flags := range []string{"-n 200M", "-R -n 200M", "-P 8 -n 200M", "-R -P 8 -n 200M", "-u -b 50M -n 5M -l 1200", "-u -R -b 50M -n 5M -l 1200"} {
				// Between two clients, iperf3 closes its listener. A client that connects
				// at that moment is refused or reset, on any stack.
				var got string
				kit.WaitFor(c, "iperf3's server", 2*kit.Limit, func() bool {
					got = kit.Run(c, kit.Limit, c.in("sh", "-c", fmt.Sprintf("iperf3 -J -c %s %s", c.addr, flags))).Stdout
					return !strings.Contains(got, `"error":`)
				})
				var report struct {
					End struct {
						Sum  struct{ Bytes, LostPackets float64 }
						Sent struct{ Bytes float64 } `json:"sum_sent"`
						Got  struct{ Bytes float64 } `json:"sum_received"`
					}
				}
				if err := json.Unmarshal([]byte(got), &report); err != nil {
					c.Fatalf("iperf3 %s: %v\n%s", flags, err, got)
				}
				e := report.End
				if strings.Contains(flags, "-u") {
					e.Sent.Bytes, e.Got.Bytes = e.Sum.Bytes, e.Sum.Bytes*(1-e.Sum.LostPackets/(5<<20/1200))
				}
				// The last report does not count the data in flight: up to tcp_rmem's 6
				// MiB per connection.
				if e.Sent.Bytes < 5<<20 || e.Got.Bytes < 0.5*e.Sent.Bytes {
					c.Fatalf("iperf3 %s: sent %.0f, received %.0f bytes: %s", flags, e.Sent.Bytes, e.Got.Bytes, got)
				}
			}
		},
	})
}

//go:embed testdata/listen_again.py
var listenAgain string

// TestProgListenAgain checks a server that closes its listener while clients connect, and
// then listens again. iperf3 does this after each client. The server must get its port
// each time.
func TestProgListenAgain(t *testing.T) {
	s := kit.NewSite(t)
	for _, stack := range []string{"mptcp", "vanilla"} {
		r := startOn(s, stack, python(listenAgain)...)
		hit := kit.Start(t, exec.Command("/usr/bin/python3", "-c", `
import socket, sys
while True:
    try:
        with socket.create_connection((sys.argv[1], 7000), 1) as s: s.recv(1)
    except OSError: pass`, kit.StackAddr))
		if got := r.proc.Wait(2 * kit.Limit); got.Stdout != "ok\n" {
			t.Errorf("%s: %v", stack, got)
		}
		hit.Signal(9)
		hit.Wait(kit.Limit)
	}
}

// retries matches dig's messages about repeated queries.
var retries = regexp.MustCompile(`(?m)^;; communications error.*\n`)

//go:embed testdata/listener_options.py
var listenerOptions string

// TestOptionsOfListener checks options that a program copies from a listener to its
// connections, as Erlang does. One of them is IP_RECVTTL, which MPTCP lacks. If a program
// sets an option to the value that getsockopt returns, this is not an error, and the
// connection still uses MPTCP. Any other value is an error, as on any kernel.
func TestOptionsOfListener(t *testing.T) {
	s := kit.NewSite(t)
	r := kit.Run(t, kit.Limit, s.OnTap("/usr/bin/python3", "-c", listenerOptions))
	if r.Status != 0 || r.Stdout != "still there\nstill there\n" {
		t.Errorf("options of a listener, for its connections: %v", r)
	}
}

// TestProgDNS runs dnsmasq as a name server by UDP and TCP, and dig as its client.
func TestProgDNS(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs: []string{"dnsmasq", "dig"},
		port:  53,
		server: func(dir string) []string {
			conf := "no-resolv\nno-hosts\nuser=root\n"
			for i := range 200 {
				conf += fmt.Sprintf("host-record=h%d.test,192.0.2.%d\n", i, i)
			}
			for i := range 8 { // these answers are too large for a datagram
				conf += fmt.Sprintf("txt-record=big.test,%d%s\n", i, strings.Repeat("x", 200))
			}
			return []string{"dnsmasq", "--keep-in-foreground", "--conf-file=" + kit.WriteFile(t, dir+"/conf", conf), "--pid-file=", "--log-facility=-"}
		},
		client: func(c *client) {
			dig := func(args ...string) []string {
				return append([]string{"dig", "@" + c.addr, "+short", "+time=5"}, args...)
			}
			c.says("192.0.2.7\n", dig("h7.test")...)
			c.says("192.0.2.8\n", dig("+tcp", "h8.test")...)
			c.says("", dig("none.test")...)
			if got := c.ok("dig", "@"+c.addr, "+ignore", "+noedns", "big.test", "txt"); !strings.Contains(got, " tc ") {
				c.Errorf("an answer that is too big has no TC bit: %s", got)
			}
			if got := c.ok(dig("+noedns", "big.test", "txt")...); len(kit.Lines(got)) != 8 {
				c.Errorf("the big answer: %s", got)
			}
			var names, want string
			for i := range 200 {
				names += fmt.Sprintf("h%d.test\n", i)
				want += fmt.Sprintf("192.0.2.%d\n", i)
			}
			f := kit.WriteFile(c.T, c.tmp+"/names", names)
			for _, how := range []string{"+notcp", "+tcp"} {
				// For a TCP query, dnsmasq starts a child, and its SIGCHLD handler has no
				// SA_RESTART (see docs/reference/limits.md). Clients repeat the query.
				if got := retries.ReplaceAllString(c.ok(dig(how, "-f", f)...), ""); got != want {
					c.Errorf("200 names %s: %s", how, got)
				}
			}
		},
	})
}

// TestProgSocat runs each of socat's address types against itself.
func TestProgSocat(t *testing.T) {
	s := kit.NewSite(t)
	cert := certificate(t)
	for _, tt := range []struct {
		name, server, client string
		udp                  bool
	}{
		{"TCP4, fork, pipe", "TCP4-LISTEN:7000,reuseaddr,fork PIPE", "TCP4:%s:7000", false},
		{"TCP6, program", "TCP6-LISTEN:7000,reuseaddr,fork EXEC:cat", "TCP:%s:7000", false},
		{"TCP, program on a terminal", "TCP-LISTEN:7000,reuseaddr,fork EXEC:cat,pty,raw,echo=0", "TCP:%s:7000,nodelay,keepalive", false},
		{"TCP from a port, in chunks", "-b 100 TCP-LISTEN:7000,reuseaddr,fork,backlog=2 SYSTEM:cat", "TCP:%s:7000,sourceport=7001,reuseaddr", false},
		{"OpenSSL", "OPENSSL-LISTEN:7000,reuseaddr,fork,cert=CERT/cert.pem,key=CERT/key.pem,verify=0 PIPE", "OPENSSL:%s:7000,cafile=CERT/cert.pem", false},
		{"UDP4", "-T2 UDP4-LISTEN:7000,reuseaddr,fork PIPE", "UDP4:%s:7000", true},
		{"UDP by datagrams", "UDP4-RECVFROM:7000,fork PIPE", "UDP4-DATAGRAM:%s:7000", true},
		{"UDP6", "UDP6-RECVFROM:7000,fork PIPE", "UDP:%s:7000", true},
		{"OpenSSL by UDP", "OPENSSL-DTLS-SERVER:7000,cert=CERT/cert.pem,key=CERT/key.pem,verify=0 PIPE", "OPENSSL-DTLS-CLIENT:%s:7000,cafile=CERT/cert.pem", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testPair(s.In(t), pair{
				needs: []string{"socat"},
				port:  7000,
				udp:   tt.udp,
				heavy: true,
				once:  strings.Contains(tt.server, "DTLS"),
				server: func(string) []string {
					return append([]string{"socat", "-T20"}, strings.Fields(strings.ReplaceAll(tt.server, "CERT", cert))...)
				},
				client: func(c *client) {
					to := strings.ReplaceAll(fmt.Sprintf(tt.client, c.addr), "CERT", cert)
					size := 100000 // less than the size of all buffers, because one socat process serves both directions
					if tt.udp || strings.Contains(tt.server, "pty") {
						size = 1000
					}
					kit.Random(c, c.tmp+"/sent", int64(size))
					c.sh("socat -T20 '%s' SYSTEM:'cat %s/sent & head -c %d >%[2]s/got'", to, c.tmp, size)
					kit.OK(c, kit.Limit, exec.Command("cmp", c.tmp+"/sent", c.tmp+"/got"))
				},
			})
		})
	}
}

// TestProgOpenSSL runs openssl s_server and s_client, by TCP and by UDP.
func TestProgOpenSSL(t *testing.T) {
	s := kit.NewSite(t)
	cert := certificate(t)
	testPair(s, pair{
		needs:  []string{"openssl"},
		inside: asServer,
		port:   4433,
		server: func(string) []string {
			return []string{"openssl", "s_server", "-quiet", "-rev", "-accept", "4433", "-cert", cert + "/cert.pem", "-key", cert + "/key.pem"}
		},
		client: func(c *client) {
			for range 3 {
				c.says("olleh\n", "sh", "-c", fmt.Sprintf(`(echo hello; until [ -s %[1]s/out ]; do :; done) |
					openssl s_client -quiet -no_ign_eof -verify_return_error -CAfile %[2]s/cert.pem -connect %[3]s:4433 2>%[1]s/err >%[1]s/out
					cat %[1]s/out; rm %[1]s/out`, c.tmp, cert, c.addr))
			}
		},
	})
}

// TestProgHalfClose checks that the end of netcat's input reaches the other side before
// the answer is sent.
func TestProgHalfClose(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs:  []string{"nc", "socat"},
		port:   7000,
		server: func(string) []string { return []string{"socat", "TCP-LISTEN:7000,reuseaddr,fork", "EXEC:sha256sum"} },
		client: func(c *client) {
			kit.Random(c, c.tmp+"/sent", 5<<20)
			got := c.sh("nc -N %s 7000 <%s/sent", c.addr, c.tmp)
			if !strings.HasPrefix(got, sum(c.T, c.tmp+"/sent")) {
				c.Errorf("the sum of what was sent is %q", got)
			}
		},
	})
	testPair(s, pair{
		port: 7000,
		once: true,
		server: func(dir string) []string {
			return []string{"sh", "-c", "nc -l -N 7000 <" + kit.WriteFile(t, dir+"/text", strings.Repeat("text ", 100000))}
		},
		client: func(c *client) {
			if got := c.ok("nc", "-d", c.addr, "7000"); got != strings.Repeat("text ", 100000) {
				c.Errorf("%d bytes came", len(got))
			}
		},
	})
	testPair(s, pair{
		port:   7000,
		udp:    true,
		heavy:  true,
		server: func(dir string) []string { return []string{"sh", "-c", "exec nc -u -l 7000 >" + dir + "/heard"} },
		client: func(c *client) {
			c.sh("printf datagram | nc -u -N -q 0 %s 7000", c.addr)
			kit.WaitFor(c, "what the server heard", kit.Limit, func() bool { return kit.ReadFile(c.T, c.dir+"/heard") == "datagram" })
		},
	})
}
