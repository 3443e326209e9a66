// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/lklrun/lklrun/internal/link/udp/keys"
)

const limit = 20 * time.Second

// ends are the key files of a gateway and of a client.
func ends(t *testing.T) (gateway, client *keys.File) {
	t.Helper()
	dir := t.TempDir()
	if _, err := keys.Create(dir, keys.Client{Name: "phone", Paths: 1, Net: netip.MustParsePrefix("10.9.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	return read(t, dir, keys.GatewayFile), read(t, dir, "phone-1.conf")
}

func read(t *testing.T, dir, name string) *keys.File {
	t.Helper()
	f, err := keys.Read(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// freePort returns a UDP port of loopback that was free a moment ago.
func freePort(t *testing.T) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// responder answers echo requests at the gateway's end, as a stack does.
type responder struct {
	end    *os.File
	silent atomic.Bool
	other  chan []byte // packets that are no echo requests
}

func (r *responder) run() {
	b := make([]byte, 1<<16)
	for {
		n, err := r.end.Read(b)
		if err != nil || n == 0 {
			return
		}
		ip := header.IPv4(bytes.Clone(b[:n]))
		if ip.TransportProtocol() != header.ICMPv4ProtocolNumber {
			r.other <- ip
			continue
		}
		if r.silent.Load() {
			continue
		}
		from, to := ip.SourceAddress(), ip.DestinationAddress()
		ip.SetSourceAddress(to)
		ip.SetDestinationAddress(from)
		icmp := header.ICMPv4(ip.Payload())
		icmp.SetType(header.ICMPv4EchoReply)
		icmp.SetChecksum(0)
		icmp.SetChecksum(^checksum.Checksum(icmp, 0))
		if _, err := r.end.Write(ip); err != nil {
			return
		}
	}
}

// serve starts a gateway on loopback.
func serve(t *testing.T, file *keys.File) (*responder, netip.AddrPort) {
	t.Helper()
	port := freePort(t)
	g, end, err := Listen(Config{Keys: file, MTU: 1420, Port: port, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := &responder{end: end, other: make(chan []byte, 100)}
	t.Cleanup(func() { g.Close(); end.Close() })
	go r.run()
	return r, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
}

func config(file *keys.File, remote netip.AddrPort, report func(bool)) Config {
	c := Config{Keys: file, MTU: 1420, Remote: remote, Via: "lo", Report: report, Log: slog.New(slog.DiscardHandler)}
	c.Gateway, c.Own = file.Gateway()
	return c
}

// datagram returns an IP packet of the client.
func datagram(from, to netip.Addr, text string) []byte {
	b := make([]byte, header.IPv4MinimumSize+len(text))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: 253, // for experiments
		SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: tcpip.AddrFromSlice(to.AsSlice()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	copy(ip.Payload(), text)
	return b
}

// A tunnel carries packets, reports a cut path, and works again later.
func TestTunnel(t *testing.T) {
	gateway, client := ends(t)
	r, remote := serve(t, gateway)
	news := make(chan bool, 10)
	c := config(client, remote, func(on bool) { news <- on })
	tun, end, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	defer tun.Close()
	if tun.Blind {
		t.Fatal("the gateway answers, and the tunnel does not notice")
	}
	want := datagram(c.Own, c.Gateway, "hello")
	if _, err := end.Write(want); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-r.other:
		if !bytes.Equal(got, want) {
			t.Errorf("received % x, want % x", got, want)
		}
	case <-time.After(limit):
		t.Fatal("the packet does not arrive")
	}
	says := func(want bool) {
		t.Helper()
		select {
		case got := <-news:
			if got != want {
				t.Fatalf("it carries: %v, want %v", got, want)
			}
		case <-time.After(limit):
			t.Fatalf("nobody says that it carries: %v", want)
		}
	}
	r.silent.Store(true)
	if _, err := end.Write(want); err != nil { // the stack uses the path
		t.Fatal(err)
	}
	says(false)
	r.silent.Store(false)
	says(true)
}

// A gateway that does not know the key is as silent as none, and the error says so.
func TestTunnelUnknownKey(t *testing.T) {
	gateway, _ := ends(t)
	_, client := ends(t)
	client.Peers[0].Public = clientsView(t, gateway)
	_, remote := serve(t, gateway)
	_, _, err := Connect(t.Context(), config(client, remote, func(bool) {}))
	var silent *NoAnswerError
	if !errors.As(err, &silent) || silent.Key != client.Path {
		t.Fatalf("%v", err)
	}
}

// clientsView returns the public key of a gateway, as the files of its clients have it.
func clientsView(t *testing.T, gateway *keys.File) keys.Key {
	t.Helper()
	dir := filepath.Dir(gateway.Path)
	return read(t, dir, "phone-1.conf").Peers[0].Public
}

// The wait for an answer ends with the context.
func TestConnectEnds(t *testing.T) {
	_, client := ends(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, _, err := Connect(ctx, config(client, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t)), func(bool) {}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A device that does not exist fails at once.
func TestNoDevice(t *testing.T) {
	if _, err := Route(t.Context(), netip.MustParseAddrPort("127.0.0.1:1"), "none0"); err == nil {
		t.Error("a route through a device that does not exist")
	}
}
