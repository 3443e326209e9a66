// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// A tapped is a router that forwards datagrams between a client and the gateway, and keeps
// those of the client.
type tapped struct {
	toClient, toGateway *net.UDPConn
	gateway             *net.UDPAddr

	mu     sync.Mutex
	client *net.UDPAddr
	kept   [][]byte
}

// tap forwards datagrams on the server's own network, from a new port to the gateway.
func (s *udpSite) tap() (t *tapped, port int) {
	s.Helper()
	t = &tapped{gateway: &net.UDPAddr{IP: net.ParseIP(udpPublic), Port: 7400}}
	s.Server.Do(s, func() (err error) {
		if t.toClient, err = net.ListenUDP("udp4", nil); err != nil {
			return err
		}
		t.toGateway, err = net.ListenUDP("udp4", nil)
		return err
	})
	s.Cleanup(func() { t.toClient.Close(); t.toGateway.Close() })
	go t.relay(t.toClient, func(b []byte, from *net.UDPAddr) {
		t.mu.Lock()
		t.client = from
		t.kept = append(t.kept, b)
		t.mu.Unlock()
		_, _ = t.toGateway.WriteToUDP(b, t.gateway) // datagrams may be lost
	})
	go t.relay(t.toGateway, func(b []byte, _ *net.UDPAddr) {
		t.mu.Lock()
		to := t.client
		t.mu.Unlock()
		_, _ = t.toClient.WriteToUDP(b, to)
	})
	return t, t.toClient.LocalAddr().(*net.UDPAddr).Port
}

func (t *tapped) relay(from *net.UDPConn, do func([]byte, *net.UDPAddr)) {
	for {
		b := make([]byte, 1<<16)
		n, addr, err := from.ReadFromUDP(b)
		if err != nil {
			return // the test has ended
		}
		do(b[:n], addr)
	}
}

func (t *tapped) sent() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([][]byte(nil), t.kept...)
}

// TestUDPAttacks repeats and forges the datagrams of a client, and sends datagrams without a
// key. Nothing of that may reach the other side of the gateway, and the stranger must get no
// answer.
func TestUDPAttacks(t *testing.T) {
	s := newUDPSite(t)
	s.gateway()
	router, port := s.tap()
	inside := s.listenUDP(udpGateway + ":0")
	to := inside.LocalAddr().(*net.UDPAddr).Port
	spec := strings.Replace(s.Ifs[0], ":"+udpPort, fmt.Sprint(":", port), 1)
	s.start("supervise", []string{spec}, "sleep", "600")
	kit.WaitFor(t, "an answer", kit.Limit, func() bool { return s.pings(udpGateway) })
	say := func(text string) {
		t.Helper()
		s.lklctl("exec", "--", "/usr/bin/python3", "-c", "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[1].encode(), (sys.argv[2], int(sys.argv[3])))", text, udpGateway, fmt.Sprint(to))
	}
	for n := range 5 {
		say(fmt.Sprint("before ", n))
	}
	heard := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		kit.Must(t, inside.SetReadDeadline(time.Now().Add(kit.Limit)))
		n, _, err := inside.ReadFromUDP(b)
		if err != nil || string(b[:n]) != want {
			t.Fatalf("received %q, %v; want %q", b[:n], err, want)
		}
	}
	for n := range 5 {
		heard(fmt.Sprint("before ", n))
	}

	stranger := s.listenUDP(udpPublic + ":0")
	attack := func(b []byte) {
		for _, from := range []*net.UDPConn{router.toGateway, stranger} {
			if _, err := from.WriteToUDP(b, router.gateway); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := router.sent()
	if len(kept) < 7 { // a handshake, a ping and five datagrams
		t.Fatalf("only %d datagrams passed the router", len(kept))
	}
	for _, b := range kept {
		if b[0] != 1 { // the gateway may answer a handshake, which proves that its sender has a key
			attack(b)
		}
		for _, at := range []int{0, 4, 8, 16, len(b) / 2, len(b) - 1} {
			forged := append([]byte(nil), b...)
			forged[at] ^= 0x40
			attack(forged)
		}
		attack(b[:len(b)/2])
	}
	for kind := range byte(6) {
		attack(append([]byte{kind, 0, 0, 0}, make([]byte, 144)...))
	}
	say("after")
	heard("after")

	kit.Must(t, stranger.SetReadDeadline(time.Now()))
	b := make([]byte, 1<<16)
	if n, _, err := stranger.ReadFromUDP(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stranger got an answer of %d bytes: %v", n, err)
	}
}

// listenUDP opens a socket on the server.
func (s *udpSite) listenUDP(address string) *net.UDPConn {
	s.Helper()
	var c net.PacketConn
	s.Server.Do(s, func() (err error) {
		c, err = new(net.ListenConfig).ListenPacket(context.Background(), "udp4", address)
		return err
	})
	s.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

// TestUDPForeignAddress lets a client send from an address that belongs to another key. The
// gateway must drop these packets.
func TestUDPForeignAddress(t *testing.T) {
	s := newUDPSite(t)
	s.gateway()
	s.start("supervise", s.Ifs[:1], "sleep", "600")
	kit.WaitFor(t, "an answer", kit.Limit, func() bool { return s.pings(udpGateway) })
	inside := s.listenUDP(udpGateway + ":0")
	to := inside.LocalAddr().(*net.UDPAddr).Port
	send := func(from string) {
		t.Helper()
		s.lklctl("exec", "--", "/usr/bin/python3", "-c",
			"import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 0)); s.sendto(sys.argv[1].encode(), (sys.argv[2], int(sys.argv[3])))",
			from, udpGateway, fmt.Sprint(to))
	}
	for _, from := range []string{"10.86.0.3", "192.0.2.1"} {
		s.lklctl("exec", "--", "ip", "addr", "add", from+"/32", "dev", "eth0")
		send(from)
	}
	send("10.86.0.2")
	b := make([]byte, 100)
	kit.Must(t, inside.SetReadDeadline(time.Now().Add(kit.Limit)))
	if n, _, err := inside.ReadFromUDP(b); err != nil || string(b[:n]) != "10.86.0.2" {
		t.Errorf("received %q, %v", b[:n], err)
	}
}
