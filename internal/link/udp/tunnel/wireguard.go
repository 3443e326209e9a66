// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/host/netdev"
)

// Available reports whether this lklrun includes tunnels.
const Available = true

// Tunnel is one end of a tunnel.
type Tunnel struct {
	Blind bool // the gateway answers no echo requests, so a cut path is not noticed

	dev    *device.Device
	cancel context.CancelFunc // ends the monitor; nil: there is none
	ended  chan struct{}      // closed when the monitor has ended
}

// connectTries are the waits for an answer to each handshake.
var connectTries = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}

const (
	handshakePoll = 10 * time.Millisecond // WireGuard reports no event
	echoLimit     = 2 * time.Second       // for the gateway's first answer to an echo request
)

// Connect connects to a gateway. It returns the stack's end of the link, which
// carries one IP packet per message.
func Connect(ctx context.Context, c Config) (*Tunnel, *os.File, error) {
	p, end, err := newPipe(c)
	if err != nil {
		return nil, nil, err
	}
	m := newMonitor(c.Report)
	p.monitor, p.used = m, m.sent
	b := &bind{remote: c.Remote, via: c.Via, failed: m.fail}
	t := &Tunnel{dev: device.NewDevice(p, b, logger(c))}
	fail := func(err error) (*Tunnel, *os.File, error) {
		t.Close()
		end.Close()
		return nil, nil, err
	}
	public := c.Keys.Peers[0].Public
	if err := t.up(c); err != nil {
		return fail(err)
	}
	peer := t.dev.LookupPeer(device.NoisePublicKey(public))
	if err := t.handshake(ctx, peer); err != nil {
		if ctx.Err() != nil {
			return fail(context.Cause(ctx))
		}
		return fail(&NoAnswerError{Remote: c.Remote, Key: c.Keys.Path, Err: m.lastError()})
	}
	if p.echo == nil || !m.answers(ctx, p.sendEcho) {
		t.Blind = true
		return t, end, nil
	}
	m.probe = p.sendEcho
	m.rebind = func(long bool) {
		if long { // the gateway may have restarted, or the keys may be too old
			peer.ExpireCurrentKeypairs()
		}
		if err := t.dev.BindUpdate(); err != nil {
			c.Log.Debug("opening the tunnel's socket", "error", err)
		}
	}
	t.start(ctx, m.run)
	return t, end, nil
}

// start runs the tunnel's watch until Close.
func (t *Tunnel) start(ctx context.Context, run func(context.Context)) {
	ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.ended = make(chan struct{})
	go func() {
		defer close(t.ended)
		run(ctx)
	}()
}

// Listen accepts the tunnels of all peers in the key file. It returns the stack's
// end of the link.
func Listen(c Config) (*Tunnel, *os.File, error) {
	p, end, err := newPipe(c)
	if err != nil {
		return nil, nil, err
	}
	t, err := listen(c, p)
	if err != nil {
		end.Close()
		return nil, nil, err
	}
	return t, end, nil
}

// ListenTun is like Listen, for a new tun device of the host.
func ListenTun(c Config, name string) (*Tunnel, error) {
	d, err := tun.CreateTUN(name, c.MTU)
	if err != nil {
		return nil, fmt.Errorf("creating tun %s: %w", name, err)
	}
	return listen(c, d)
}

func listen(c Config, d tun.Device) (*Tunnel, error) {
	t := &Tunnel{dev: device.NewDevice(d, &bind{port: c.Port}, logger(c))}
	if err := t.up(c); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// up configures the device and opens its sockets.
func (t *Tunnel) up(c Config) error {
	var b strings.Builder
	set := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	set("private_key=%s", c.Keys.Private.Hex())
	set("listen_port=%d", c.Port)
	for _, p := range c.Keys.Peers {
		set("public_key=%s", p.Public.Hex())
		set("preshared_key=%s", p.Shared.Hex())
		if to := cmp.Or(c.Endpoints[p.Endpoint], c.Remote); to.IsValid() {
			set("endpoint=%s", to)
		}
		if c.Say != nil { // the monitor of other tunnels keeps the path
			set("persistent_keepalive_interval=%d", p.Keepalive)
		}
		for _, a := range p.Allowed {
			set("allowed_ip=%s", a)
		}
	}
	if err := t.dev.IpcSet(b.String()); err != nil {
		return fmt.Errorf("configuring the tunnel: %w", err)
	}
	if err := t.dev.Up(); err != nil {
		return fmt.Errorf("opening the tunnel's socket: %w", err)
	}
	return nil
}

// handshake connects to the peer. WireGuard itself would wait 5 s before it
// repeats a lost message.
func (t *Tunnel) handshake(ctx context.Context, peer *device.Peer) error {
	poll := time.NewTicker(handshakePoll)
	defer poll.Stop()
	for _, wait := range connectTries {
		peer.ExpireCurrentKeypairs()
		_ = peer.SendHandshakeInitiation(false) // the bind keeps the error
		limit := time.After(wait)
	waiting:
		for {
			select {
			case <-poll.C:
				if t.connected() {
					return nil
				}
			case <-limit:
				break waiting
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return errors.New("no answer")
}

// connected reports whether a handshake has succeeded.
func (t *Tunnel) connected() bool {
	return slices.ContainsFunc(t.Peers(), func(p rpc.TunnelPeer) bool { return !p.LastHandshake.IsZero() })
}

// Peers returns the state of the peers, sorted by their keys.
func (t *Tunnel) Peers() (all []rpc.TunnelPeer) {
	state, err := t.dev.IpcGet()
	if err != nil {
		return nil
	}
	var p *rpc.TunnelPeer
	var sec, nsec int64
	for s := bufio.NewScanner(strings.NewReader(state)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "=")
		if name == "public_key" {
			public, err := hex.DecodeString(value)
			if err != nil {
				return nil
			}
			all = append(all, rpc.TunnelPeer{PublicKey: base64.StdEncoding.EncodeToString(public)})
			p = &all[len(all)-1]
		}
		if p == nil { // before the first peer
			continue
		}
		switch name {
		case "endpoint":
			p.Endpoint = value
		case "last_handshake_time_sec":
			sec, _ = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			if nsec, _ = strconv.ParseInt(value, 10, 64); sec != 0 {
				p.LastHandshake = time.Unix(sec, nsec)
			}
		case "rx_bytes":
			p.Received, _ = strconv.ParseUint(value, 10, 64)
		case "tx_bytes":
			p.Sent, _ = strconv.ParseUint(value, 10, 64)
		case "allowed_ip":
			if a, err := netip.ParsePrefix(value); err == nil {
				p.AllowedIPs = append(p.AllowedIPs, a)
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].PublicKey < all[j].PublicKey })
	return all
}

// Close ends the tunnel.
func (t *Tunnel) Close() {
	if t.cancel != nil {
		t.cancel()
		<-t.ended
	}
	t.dev.Close()
}

// Done returns a channel that is closed when the tunnel has ended.
func (t *Tunnel) Done() <-chan struct{} { return t.dev.Wait() }

func logger(c Config) *device.Logger {
	return &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf:   func(format string, args ...any) { c.Log.Debug("tunnel: " + fmt.Sprintf(format, args...)) },
	}
}

// isUnreachable reports whether the host has no way to the gateway now.
func isUnreachable(err error) bool {
	for _, no := range []error{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENODEV, unix.ENXIO, unix.EADDRNOTAVAIL, unix.EPERM, unix.EACCES,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// newPipe creates the link to the stack.
func newPipe(c Config) (*pipe, *os.File, error) {
	ours, end, err := netdev.Pair("tunnel")
	if err != nil {
		return nil, nil, err
	}
	p := &pipe{conn: ours, mtu: c.MTU, events: make(chan tun.Event), tcp: newTCPTable(), udp: newUDPTable()}
	if p.raw, err = ours.SyscallConn(); err == nil && c.Gateway.IsValid() {
		if p.echo, err = newEcho(c.Own, c.Gateway); err == nil {
			p.inject, err = dup(end)
		}
	}
	if err != nil {
		p.Close()
		end.Close()
		return nil, nil, err
	}
	return p, end, nil
}
