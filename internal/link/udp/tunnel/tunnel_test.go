// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/lklrun/lklrun/internal/diag/rpc"
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
		if err != nil || n < headerSize {
			return
		}
		ip := header.IPv4(bytes.Clone(b[headerSize:n]))
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
		if _, err := r.end.Write(message(ip)); err != nil {
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

// message returns a message on the link to the stack.
func message(packet []byte) []byte { return append(make([]byte, headerSize), packet...) }

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
	if _, err := end.Write(message(want)); err != nil {
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
	if _, err := end.Write(message(want)); err != nil { // the stack uses the path
		t.Fatal(err)
	}
	says(false)
	r.silent.Store(false)
	says(true)
}

// A tunnel with Join starts a new handshake after the machine was suspended, because the peer may
// have forgotten the session.
func TestJoinResumes(t *testing.T) {
	gateway, client := ends(t)
	r, remote := serve(t, gateway)
	c := config(client, remote, nil)
	c.Remote, c.Via, c.Gateway, c.Endpoints, c.Say = netip.AddrPort{}, "", netip.Addr{}, map[string]netip.AddrPort{"": remote}, func(string) {}
	tun, end, err := Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	defer tun.Close()
	to, _ := client.Gateway()
	exchange := func() time.Time {
		t.Helper()
		if _, err := end.Write(message(datagram(c.Own, to, "hello"))); err != nil {
			t.Fatal(err)
		}
		select {
		case <-r.other:
		case <-time.After(limit):
			t.Fatal("the packet does not arrive")
		}
		return tun.Peers()[0].LastHandshake
	}
	first := exchange()
	if again := exchange(); first.IsZero() || !again.Equal(first) {
		t.Fatalf("handshakes at %v and %v", first, again)
	}
	w := &watch{tunnel: tun, peers: []*peer{{key: client.Peers[0].Public}}}
	for total, want := range []bool{false, false, true, false} { // seconds
		if got := w.suspended(time.Duration(total) * time.Second); got != want {
			t.Errorf("suspended for %d s: %v", total, got)
		}
	}
	w.resume() // so soon after the last handshake, the peer ignores the first try
	if again := exchange(); again.Equal(first) {
		t.Error("there is no new handshake")
	}
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

// TestSegments checks that no header of a message makes WireGuard's functions read or write
// outside of their memory.
func TestSegments(t *testing.T) {
	head := func(flags, kind byte, size, start, offset uint16) []byte {
		h := []byte{flags, kind, 0, 0}
		for _, n := range []uint16{size, start, offset} {
			h = binary.NativeEndian.AppendUint16(h, n)
		}
		return h
	}
	packet := func(version byte, size int) []byte {
		b := make([]byte, size)
		if b[0] = version<<4 | 5; size > 52 {
			b[32], b[52] = 5<<4, 5<<4 // the length of TCP's header
		}
		return b
	}
	const tcp4, tcp6, udp = unix.VIRTIO_NET_HDR_GSO_TCPV4, unix.VIRTIO_NET_HDR_GSO_TCPV6, unix.VIRTIO_NET_HDR_GSO_UDP_L4
	for n, c := range []struct {
		head, packet []byte
		want         int
	}{
		{head(0, 0, 0, 0, 0), packet(4, 20), 1},
		{head(0, 0, 0, 0, 0), packet(4, 19), 0},
		{head(0, 0, 0, 0, 0), packet(6, 39), 0},
		{head(0, 0, 0, 0, 0), packet(5, 100), 0},
		{head(0, tcp4, 100, 20, 16), packet(4, 140), 0}, // no checksum is wanted
		{head(1, 0, 0, 20, 16), packet(4, 40), 1},
		{head(1, 0, 0, 20, 19), packet(4, 40), 0},
		{head(1, 0, 0, 65535, 65535), packet(4, 40), 0},
		{head(1, 0, 0, 19, 16), packet(4, 40), 0},
		{head(1, tcp4, 100, 20, 16), packet(4, 340), 3},
		{head(1, tcp4, 100, 20, 16), packet(4, 341), 4},
		{head(1, tcp6, 100, 40, 16), packet(6, 161), 2},
		{head(1, tcp4, 100, 40, 16), packet(6, 161), 0},
		{head(1, tcp4, 0, 20, 16), packet(4, 340), 0},
		{head(1, tcp4, 100, 20, 16), packet(4, 40), 0},
		{head(1, tcp4, 100, 20, 30), packet(4, 340), 0},
		{head(1, tcp4, 100, 330, 6), packet(4, 340), 0},
		{head(1, udp, 100, 20, 6), packet(4, 228), 2},
		{head(1, 77, 100, 20, 16), packet(4, 340), 0},
		{head(1, tcp4, 1, 20, 16), packet(4, 65535), 65495},
	} {
		m := append(c.head, c.packet...)
		got := segments(m)
		if got != c.want {
			t.Errorf("%d: %d packets, want %d", n, got, c.want)
		}
		if got > 0 {
			split(t, m, got)
		}
	}
}

// split has WireGuard split a message, which may fail.
func split(t *testing.T, m []byte, want int) {
	t.Helper()
	bufs := make([][]byte, pipeBatch)
	for n := range bufs {
		bufs[n] = make([]byte, 1<<16)
	}
	n, err := handleVirtioRead(m, bufs, make([]int, pipeBatch), 0)
	if err == nil && n != want || err != nil && want < pipeBatch {
		t.Errorf("%d packets, %v, want %d", n, err, want)
	}
}

func FuzzSegments(f *testing.F) {
	f.Add(append(make([]byte, headerSize), make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, m []byte) {
		if n := segments(m); n > 0 && len(m) <= headerSize+1<<16 {
			split(t, m, n)
		}
	})
}

// TestSilence steps a peer through time: what the peer need not answer is no silence.
func TestSilence(t *testing.T) {
	const keepalive, handshake, data = 32, 148, 96
	var p peer
	var s rpc.TunnelPeer
	at := time.Duration(1)
	steps := func(name string, seconds int, sent, received uint64, failure *error, want change) {
		t.Helper()
		s.Sent, s.Received = s.Sent+sent, s.Received+received
		if got := p.step(&s, failure, at); got != same && seconds != 0 {
			t.Errorf("%s: %v at once", name, got)
		}
		for n := range seconds {
			at += time.Second
			got := p.step(&s, nil, at)
			if last := n == seconds-1; last && got != want || !last && got != same {
				t.Errorf("%s: %v after %d s, want %v", name, got, n+1, want)
			}
		}
	}
	steps("nothing is sent", 60, 0, 0, nil, same)
	steps("a handshake", 6, handshake, 0, nil, silent)
	steps("it is said once", 60, handshake, 0, nil, same)
	if !p.overdue(at) {
		t.Error("nothing is looked up again")
	}
	s.Received += 92
	if got := p.step(&s, nil, at); got != answers || p.overdue(at) {
		t.Errorf("an answer: %v", got)
	}
	s.LastHandshake = time.Unix(1, 0)
	for range 100 {
		steps("keepalives", 1, keepalive, 0, nil, same)
	}
	steps("two keepalives", 60, 2*keepalive, 0, nil, same)
	steps("data in one direction, with a late keepalive of the peer", 12, data, 0, nil, same)
	steps("its keepalive", 60, 0, keepalive, nil, same)
	steps("data without an answer", 18, data, 0, nil, silent)
	steps("an answer", 0, 0, data, nil, answers)
	err := error(unix.ENETUNREACH)
	p, s = peer{}, rpc.TunnelPeer{}
	steps("the host cannot send", 6, 0, 0, &err, silent)
	if p.err == nil {
		t.Error("the cause is lost")
	}
}
