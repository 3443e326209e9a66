// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/testutil"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { testutil.Main(m, nil) }

func TestAround(t *testing.T) {
	for _, tc := range []struct{ addr, gw, wantGW, wantHost string }{
		{"10.9.0.7/24", "", "10.9.0.1", "10.9.0.254"},
		{"10.9.0.1/24", "", "10.9.0.2", "10.9.0.254"},
		{"10.9.0.254/24", "10.9.0.253", "10.9.0.253", "10.9.0.252"},
		{"10.9.0.3/29", "", "10.9.0.1", "10.9.0.6"},
		{"10.200.3.4/8", "", "10.0.0.1", "10.255.255.254"},
	} {
		var gw netip.Addr
		if tc.gw != "" {
			gw = netip.MustParseAddr(tc.gw)
		}
		c, err := Around(netip.MustParsePrefix(tc.addr), gw)
		if err != nil || c.Gateway.String() != tc.wantGW || c.Host.String() != tc.wantHost {
			t.Errorf("%s, gw %q: %+v, %v", tc.addr, tc.gw, c, err)
		}
	}
	if _, err := Around(netip.MustParsePrefix("10.0.0.1/30"), netip.Addr{}); err == nil {
		t.Error("a network without room was accepted")
	}
	if a, b := Default(0), Default(1); a.Address.Overlaps(b.Address) {
		t.Errorf("two gateways share %s", a.Address)
	}
}

// client is the stack's side: here the host's kernel in a namespace of its own,
// a tap there, and the frames carried between tap and gateway.
func client(t testing.TB, cfg Config) *testutil.Netns {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g, end, err := Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ns := testutil.NewNetns(t, "gwclient")
	var tap *os.File
	ns.Do(t, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		req, err := unix.NewIfreq("gw0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return err
		}
		tap = os.NewFile(uintptr(fd), "tap")
		return nil
	})
	ns.Run(t, "ip", "link", "set", "gw0", "mtu", fmt.Sprint(cfg.MTU), "up")
	ns.Run(t, "ip", "addr", "add", cfg.Address.String(), "dev", "gw0")
	ns.Run(t, "ip", "route", "add", "default", "via", cfg.Gateway.String())
	carry := func(to io.Writer, from io.Reader, done chan<- struct{}) {
		defer close(done)
		b := make([]byte, 1<<17)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	up, down := make(chan struct{}), make(chan struct{})
	go carry(end, tap, up)
	go carry(tap, end, down)
	t.Cleanup(func() {
		tap.Close()
		end.Close()
		g.Close()
		cancel()
		for _, c := range []chan struct{}{up, down} {
			select {
			case <-c:
			case <-time.After(10 * time.Second):
				t.Error("a carrier of frames did not end")
			}
		}
	})
	return ns
}

// serve serves data over HTTP on address of the host.
func serve(t testing.TB, address string, data []byte) (port int) {
	t.Helper()
	l := testutil.Host.Listen(t, net.JoinHostPort(address, "0"))
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				fmt.Fprintf(w, "%x", sha256.Sum256(b))
				return
			}
			http.ServeContent(w, r, "data", time.Time{}, bytes.NewReader(data))
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = srv.Serve(l) }() // ends with the listener
	t.Cleanup(func() { srv.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// dialer opens its connections in ns, on whatever goroutine it is called.
func dialer(t testing.TB, ns *testutil.Netns) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		ns.Do(t, func() error {
			var d net.Dialer
			conn, err = d.DialContext(ctx, network, address)
			return nil
		})
		return conn, err
	}
}

func httpClient(t testing.TB, ns *testutil.Netns) *http.Client {
	return &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(t, ns)},
	}
}

func TestHTTP(t *testing.T) {
	testutil.Need(t, "ip")
	testutil.Host.Addr(t, "lo", "10.99.0.1/32")
	data := make([]byte, 8<<20)
	rand.Read(data)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	cfg := Default(0)
	ns := client(t, cfg)
	for _, host := range []string{"10.99.0.1", cfg.Host.String()} {
		address := "10.99.0.1"
		if host != address {
			address = "127.0.0.1" // what the host's alias stands for
		}
		url := fmt.Sprintf("http://%s:%d/", host, serve(t, address, data))
		resp, err := httpClient(t, ns).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes that differ from the %d served", url, len(got), len(data))
		}
		resp, err = httpClient(t, ns).Post(url, "application/octet-stream", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if back, err := io.ReadAll(resp.Body); err != nil || string(back) != sum {
			t.Errorf("posted to %s: %s, %v; want %s", url, back, err, sum)
		}
	}
}

func TestRefused(t *testing.T) {
	testutil.Need(t, "ip")
	ns := client(t, Default(1))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := dialer(t, ns)(ctx, "tcp", Default(1).Host.String()+":1")
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a port nobody listens on: %v", err)
	}
}

// The gateway's name server answers what the host's resolver does, also when
// that is on the host's loopback, out of the stack's reach.
func TestDNS(t *testing.T) {
	testutil.Need(t, "ip", "dnsmasq")
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount("/etc/resolv.conf", 0) }() // in namespaces that end with the test
	server := exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
		"--listen-address=127.0.0.1", "--bind-interfaces", "--user=root", "--pid-file=",
		"--host-record=www.lklrun.example,10.99.0.1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }() // it serves for ever
	testutil.WaitFor(t, "dnsmasq listens", 10*time.Second, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:53")
		if err == nil {
			c.Close()
		}
		return err == nil
	})

	cfg := Default(0)
	dial := dialer(t, client(t, cfg))
	for _, network := range []string{"udp", "tcp"} {
		got := ask(t, dial, network, net.JoinHostPort(cfg.Gateway.String(), "53"), "www.lklrun.example.")
		if got != netip.AddrFrom4([4]byte{10, 99, 0, 1}) {
			t.Errorf("over %s: %v", network, got)
		}
	}
}

// ask sends one query for the IPv4 address of name and returns the answer.
func ask(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), network, server, name string) netip.Addr {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := dial(ctx, network, server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	q := new(dns.Msg).SetQuestion(name, dns.TypeA)
	c := &dns.Conn{Conn: conn}
	if err := c.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	m, err := c.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			return addr
		}
	}
	t.Fatalf("no address in %v", m)
	return netip.Addr{}
}

// As large a frame as is allowed passes, and a link that is busy both ways
// loses nothing.
func BenchmarkDownload(b *testing.B) {
	testutil.Need(b, "ip")
	for _, mtu := range []int{1500, 4000, 9000, 16384, 32768, DefaultMTU} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			cfg := Default(0)
			cfg.MTU = mtu
			ns := client(b, cfg)
			data := make([]byte, 64<<20)
			url := fmt.Sprintf("http://%s:%d/", cfg.Host, serve(b, "127.0.0.1", data))
			b.SetBytes(int64(len(data)))
			b.ResetTimer()
			for range b.N {
				resp, err := httpClient(b, ns).Get(url)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || n != int64(len(data)) {
					b.Fatalf("%d bytes, %v", n, err)
				}
			}
		})
	}
}
