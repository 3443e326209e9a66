// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

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
		c, err := ForAddress(netip.MustParsePrefix(tc.addr), gw)
		if err != nil || c.Gateway.String() != tc.wantGW || c.Host.String() != tc.wantHost {
			t.Errorf("%s, gw %q: %+v, %v", tc.addr, tc.gw, c, err)
		}
	}
	if _, err := ForAddress(netip.MustParsePrefix("10.0.0.1/30"), netip.Addr{}); err == nil {
		t.Error("a network without room was accepted")
	}
	if a, b := Default(0), Default(1); a.Address.Overlaps(b.Address) {
		t.Errorf("two gateways share %s", a.Address)
	}
}

// client is the stack's side. It is the host's kernel in a separate namespace,
// with a tap, and the frames are copied between tap and gateway.
func client(t testing.TB, cfg Config) *kit.Netns {
	ns, _ := closable(t, cfg)
	return ns
}

// closable is like client, and also returns a function that ends the stack's
// side and then the gateway.
func closable(t testing.TB, cfg Config) (*kit.Netns, func()) {
	t.Helper()
	g, bell, err := Start(context.Background(), cfg, slog.New(slog.DiscardHandler), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	bell.Close()
	end, err := g.Plain() // the tests of test/link use the shared memory
	if err != nil {
		t.Fatal(err)
	}
	ns := kit.NewNetns(t, "gwclient")
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
	if cfg.Address6.IsValid() {
		ns.Addr(t, "gw0", cfg.Address6.String())
		ns.Run(t, "ip", "route", "add", "default", "via", cfg.Gateway6.String())
	}
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
	stop := sync.OnceFunc(func() {
		tap.Close()
		end.Close()
		g.Close()
		for _, c := range []chan struct{}{up, down} {
			select {
			case <-c:
			case <-time.After(10 * time.Second):
				t.Error("a carrier of frames did not end")
			}
		}
	})
	t.Cleanup(stop)
	return ns, stop
}

// serve serves data over HTTP on address of the host.
func serve(t testing.TB, address string, data []byte) (port int) {
	t.Helper()
	l := kit.Host.Listen(t, net.JoinHostPort(address, "0"))
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
	go func() { _ = srv.Serve(l) }() // it ends with the listener
	t.Cleanup(func() { srv.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// dialer opens its connections in ns, on any goroutine.
func dialer(t testing.TB, ns *kit.Netns) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		ns.Do(t, func() error {
			var d net.Dialer
			conn, err = d.DialContext(ctx, network, address)
			return nil
		})
		return conn, err
	}
}

func httpClient(t testing.TB, ns *kit.Netns) *http.Client {
	return &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(t, ns)},
	}
}

func TestHTTP(t *testing.T) {
	kit.Need(t, "ip")
	kit.Host.Addr(t, "lo", "10.99.0.1/32")
	defer kit.Host.Run(t, "ip", "addr", "del", "10.99.0.1/32", "dev", "lo")
	data := make([]byte, 8<<20)
	rand.Read(data)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	cfg := Default(0)
	ns := client(t, cfg)
	for _, host := range []string{"10.99.0.1", cfg.Host.String()} {
		address := "10.99.0.1"
		if host != address {
			address = "127.0.0.1" // cfg.Host represents this address
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

func TestIPv6(t *testing.T) {
	kit.Need(t, "ip")
	kit.Host.Addr(t, "lo", "fd99::1/128")
	defer kit.Host.Run(t, "ip", "addr", "del", "fd99::1/128", "dev", "lo")
	data := make([]byte, 8<<20)
	rand.Read(data)
	cfg := Default(0).WithIPv6(0)
	ns := client(t, cfg)
	for host, address := range map[string]string{"fd99::1": "fd99::1", cfg.Host6.String(): "::1", cfg.Host.String(): "127.0.0.1"} {
		url := "http://" + net.JoinHostPort(host, fmt.Sprint(serve(t, address, data))) + "/"
		resp, err := httpClient(t, ns).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", url, len(got), err)
		}
	}
}

// Data that the stack has sent before its end reaches the peer, even if the
// peer reads slowly. The end of file shows that the data is complete.
func TestDrain(t *testing.T) {
	kit.Need(t, "ip")
	cfg := Default(0)
	ns, stop := closable(t, cfg)
	l := kit.Host.Listen(t, "127.0.0.1:0")
	conn, err := dialer(t, ns)(t.Context(), "tcp", fmt.Sprintf("%s:%d", cfg.Host, l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	// This is more than the host's two sockets hold if nobody reads, so
	// some data remains in the gateway. The gateway still acknowledges all
	// of it before the end.
	data := make([]byte, 4<<20)
	rand.Read(data)
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetLinger(10); err != nil { // Close returns when everything is acknowledged
		t.Fatal(err)
	}
	conn.Close()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	if err := peer.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(peer)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d: %v", len(got), len(data), err)
	}
	<-stopped
}

// Each direction of a connection can end separately, and a reset on one side
// causes one on the other.
func TestEnds(t *testing.T) {
	kit.Need(t, "ip")
	cfg := Default(0)
	ns := client(t, cfg)
	l := kit.Host.Listen(t, "127.0.0.1:0")
	address := fmt.Sprintf("%s:%d", cfg.Host, l.Addr().(*net.TCPAddr).Port)
	pair := func() (*net.TCPConn, *net.TCPConn) {
		conn, err := dialer(t, ns)(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []net.Conn{conn, peer} {
			if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
		return conn.(*net.TCPConn), peer.(*net.TCPConn)
	}
	conn, peer := pair()
	fmt.Fprint(conn, "question")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(peer); err != nil || string(b) != "question" {
		t.Errorf("%q, %v", b, err)
	}
	fmt.Fprint(peer, "answer")
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
	for range 2 {
		conn, peer = pair()
		reset(peer)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the host's reset: %v", err)
		}
		conn, peer = pair()
		reset(conn)
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the stack's reset: %v", err)
		}
	}
}

// Many connections can start at once, without waiting for a SYN to be
// retransmitted.
func TestMany(t *testing.T) {
	kit.Need(t, "ip")
	cfg := Default(0)
	ns := client(t, cfg)
	url := fmt.Sprintf("http://%s:%d/", cfg.Host, serve(t, "127.0.0.1", []byte("data")))
	began := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			resp, err := httpClient(t, ns).Get(url)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	wg.Wait()
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("a hundred connections took %v", d)
	}
}

// A port of the stack is free as soon as its connection has ended, even if the
// host's side closed it first.
func TestPortAgain(t *testing.T) {
	kit.Need(t, "ip")
	cfg := Default(0)
	ns := client(t, cfg)
	l := kit.Host.Listen(t, "127.0.0.1:0")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "data") // the received data is checked below
			c.Close()
		}
	}()
	peer := net.JoinHostPort(cfg.Host.String(), fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	for i := range 20 {
		var got []byte
		var err error
		ns.Do(t, func() error {
			d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{Port: 40000}}
			var c net.Conn
			// The port is not free until the last segment of the
			// previous connection is acknowledged.
			for end := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
				c, err = d.Dial("tcp", peer)
				if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
					break
				}
			}
			if err != nil {
				return nil
			}
			defer c.Close()
			got, err = io.ReadAll(c)
			return nil
		})
		if err != nil || string(got) != "data" {
			t.Fatalf("connection %d from one port: %q, %v", i, got, err)
		}
	}
}

func TestUDP(t *testing.T) {
	kit.Need(t, "ip")
	cfg := Default(0)
	ns := client(t, cfg)
	echo, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := echo.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(b[:n], from)
		}
	}()
	conn, err := dialer(t, ns)(t.Context(), "udp", fmt.Sprintf("%s:%d", cfg.Host, echo.LocalAddr().(*net.UDPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 1400, 9000, 60000} {
		data := make([]byte, size)
		rand.Read(data)
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1<<16)
		if n, err := conn.Read(b); err != nil || !bytes.Equal(b[:n], data) {
			t.Errorf("%d bytes: %d came back, %v", size, n, err)
		}
	}
}

// The gateway answers pings only for its own addresses.
func TestPing(t *testing.T) {
	kit.Need(t, "ip", "ping")
	cfg := Default(0)
	ns := client(t, cfg)
	ns.Run(t, "ping", "-c1", "-W5", cfg.Gateway.String())
	if out, err := ns.Command("ping", "-c1", "-W1", "192.0.2.77").CombinedOutput(); err == nil {
		t.Errorf("an address that nobody asked answers:\n%s", out)
	}
}

func TestRefused(t *testing.T) {
	kit.Need(t, "ip")
	ns := client(t, Default(1))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := dialer(t, ns)(ctx, "tcp", Default(1).Host.String()+":1")
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a port nobody listens on: %v", err)
	}
}

// The gateway's name server gives the same answers as the host's resolver, even
// if the resolver listens on the host's loopback, which the stack cannot reach.
func TestDNS(t *testing.T) {
	kit.Need(t, "ip", "dnsmasq")
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount("/etc/resolv.conf", 0) }() // the mount is in a namespace that ends with the test
	server := exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
		"--listen-address=127.0.0.1", "--bind-interfaces", "--user=root", "--pid-file=",
		"--host-record=www.lklrun.example,10.99.0.1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }() // it would run forever
	kit.WaitFor(t, "dnsmasq listens", 10*time.Second, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:53")
		if err == nil {
			c.Close()
		}
		return err == nil
	})

	cfg := Default(0)
	dial := dialer(t, client(t, cfg))
	for _, network := range []string{"udp", "tcp"} {
		got := query(t, dial, network, net.JoinHostPort(cfg.Gateway.String(), "53"), "www.lklrun.example.")
		if got != netip.AddrFrom4([4]byte{10, 99, 0, 1}) {
			t.Errorf("over %s: %v", network, got)
		}
	}
}

// query requests the IPv4 address of name.
func query(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), network, server, name string) netip.Addr {
	t.Helper()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip4", name)
	if err != nil || len(addrs) != 1 {
		t.Fatalf("%s over %s: %v, %v", name, network, addrs, err)
	}
	return addrs[0].Unmap()
}
