// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/pkg/config"
	"github.com/lklrun/lklrun/test/kit"
	"golang.org/x/sys/unix"
)

const publishLimit = 30 * time.Second

// freePorts returns unused ports of the host's loopback.
func freePorts(t *testing.T, n int) []uint16 {
	t.Helper()
	var all []uint16
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().(*net.TCPAddr).AddrPort().Port())
	}
	return all
}

// Published ports lead into the stack, for both families, and the stack sees
// the client's address.
func TestPublish(t *testing.T) {
	kit.Need(t, "ip")
	kit.Host.Run(t, "ip", "link", "add", "pub0", "type", "bridge")
	defer kit.Host.Run(t, "ip", "link", "del", "pub0")
	kit.Host.Run(t, "ip", "link", "set", "pub0", "up")
	kit.Host.Addr(t, "pub0", "10.94.0.1/24", "10.94.0.2/24")
	ports := freePorts(t, 3)
	cfg := Default(0).WithIPv6(0)
	cfg.Publish = []config.Publish{
		{HostPort: ports[0], Port: 80},
		{HostPort: ports[1], Port: 81}, // without a server
		{HostPort: ports[0], Port: 7, UDP: true, Addr: netip.MustParseAddr("0.0.0.0")},
		{HostPort: ports[2], Port: 80, Addr: netip.MustParseAddr("10.94.0.2")},
	}
	ns := client(t, cfg)
	for _, a := range []string{"0.0.0.0:80", "[::]:80"} {
		serveName(t, ns, a)
	}
	ns.EchoUDP(t, "0.0.0.0:7")
	for at, want := range map[string]string{
		fmt.Sprintf("127.0.0.1:%d", ports[0]): cfg.Host.String(),
		fmt.Sprintf("[::1]:%d", ports[0]):     cfg.Host6.String(),
		fmt.Sprintf("10.94.0.2:%d", ports[2]): "10.94.0.1",
	} {
		c, err := net.DialTimeout("tcp", at, publishLimit)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(publishLimit)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if host, _, _ := net.SplitHostPort(string(got)); host != want || err != nil {
			t.Errorf("%s: the stack sees %q, %v; want %s", at, got, err, want)
		}
		c.Close()
	}
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1]), publishLimit)
	if err == nil {
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(publishLimit)); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
	}
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port where nobody is: %v", err)
	}
	for _, at := range []string{"127.0.0.1", "10.94.0.1", "10.94.0.2"} { // the answer must come from the same address
		u, err := net.Dial("udp", net.JoinHostPort(at, fmt.Sprint(ports[0])))
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		b := make([]byte, 10)
		ok := kit.Within(publishLimit, func() bool {
			if _, err := u.Write([]byte(at)); err != nil {
				return false
			}
			if err := u.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				return false
			}
			n, err := u.Read(b)
			return err == nil && string(b[:n]) == at
		})
		if !ok {
			t.Errorf("no answer to a datagram to %s", at)
		}
	}
}

// serveName sends each client of a TCP port in ns its own address.
func serveName(t *testing.T, ns *kit.Netns, address string) {
	t.Helper()
	network := "tcp4"
	if strings.HasPrefix(address, "[") {
		network = "tcp6"
	}
	var l net.Listener
	ns.Do(t, func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.RemoteAddr().String()) // on an error the client's check fails
			c.Close()
		}
	}()
}

// Ports that cannot be opened are named in the error, and none stays open.
func TestPublishTaken(t *testing.T) {
	kit.Need(t)
	l := kit.Host.Listen(t, "127.0.0.1:0")
	taken, free := l.Addr().(*net.TCPAddr).AddrPort().Port(), freePorts(t, 1)[0]
	for want, p := range map[string]config.Publish{
		fmt.Sprintf("--publish %d:80: port %[1]d of 127.0.0.1 is in use", taken):                       {HostPort: taken, Port: 80},
		fmt.Sprintf("--publish 10.254.254.1:%d:80: 10.254.254.1 is not an address of this host", free): {HostPort: free, Port: 80, Addr: netip.MustParseAddr("10.254.254.1")},
	} {
		err := CheckPublish([]config.Publish{{HostPort: free, Port: 79}, p})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := CheckPublish([]config.Publish{{HostPort: free, Port: 79}}); err != nil {
		t.Error(err)
	}
}
