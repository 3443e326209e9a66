// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/link/udp/keys"
)

// How long a peer may be silent although packets were sent to it. WireGuard repeats
// a handshake after 5 s. In an existing session, it tries a handshake after 15 s
// without an answer. Before, the peer may have nothing to say.
const (
	firstLimit   = 6 * time.Second
	sessionLimit = 18 * time.Second
)

const (
	tick       = time.Second
	idleAfter  = sessionLimit + 2*tick // without a packet of the stack, nothing has to be watched
	findFirst  = 5 * time.Second       // between lookups of an endpoint; doubles
	findMost   = 2 * time.Minute
	sleepLeast = 2 * time.Second // a shorter suspension of the machine does not matter

	// A peer does not answer keepalives. Between two looks, there are two at most.
	keepalives = 2 * device.MessageKeepaliveSize
)

// Join opens a tunnel to several peers, as wg-quick(8) does. It waits for no
// answer. It returns the stack's end of the link.
func Join(ctx context.Context, c Config) (*Tunnel, *os.File, error) {
	p, end, err := newPipe(c)
	if err != nil {
		return nil, nil, err
	}
	w := &watch{say: c.Say, log: c.Log, wake: make(chan struct{}, 1)}
	p.used = w.use
	t := &Tunnel{dev: device.NewDevice(p, conn.NewStdNetBind(), w.logger())}
	w.tunnel = t
	for _, p := range c.Keys.Peers {
		if !slices.ContainsFunc(w.peers, func(other *peer) bool { return other.key == p.Public }) {
			w.peers = append(w.peers, &peer{key: p.Public, endpoint: p.Endpoint})
		}
		if every := time.Duration(p.Keepalive) * time.Second; every > 0 && (w.keepalive == 0 || every < w.keepalive) {
			w.keepalive = every
		}
	}
	public, err := c.Keys.Private.Public()
	if err == nil {
		w.own = public
		err = t.up(c)
	}
	if err != nil {
		t.Close()
		end.Close()
		return nil, nil, err
	}
	t.start(ctx, w.run)
	return t, end, nil
}

// watch notices peers that do not answer, and finds their endpoints again. It
// never lowers the carrier of the link: the stack would then send the packets
// through another interface, in the clear.
type watch struct {
	tunnel    *Tunnel
	say       func(string)
	log       *slog.Logger
	own       keys.Key // our public key
	peers     []*peer
	keepalive time.Duration // the shortest interval of keepalives, which the stack does not send; 0: none

	asleep time.Duration // how long the machine was suspended, at the last call of suspended

	lastUsed atomic.Int64  // when the stack last sent a packet, in nanoseconds of now
	idle     atomic.Bool   // the next packet of the stack must wake the watch
	wake     chan struct{} // capacity 1
}

// peer is what the watch knows about a peer.
type peer struct {
	key      keys.Key
	endpoint string // HOST:PORT of the file; "": none
	last     rpc.TunnelPeer

	since    time.Duration // when packets were first sent without an answer; 0: the peer answers
	silent   bool          // the user was told
	found    time.Duration // when the endpoint was last looked up
	interval time.Duration // until the next lookup

	failure atomic.Pointer[error] // the latest datagram could not be sent
	err     error                 // the same, when the user is told
}

// now returns the time of a clock. CLOCK_BOOTTIME includes the time during which
// the machine was suspended.
func now(clock int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts)
	return time.Duration(ts.Nano())
}

// use records a packet of the stack.
func (w *watch) use() {
	w.lastUsed.Store(int64(now(unix.CLOCK_MONOTONIC)))
	if w.idle.CompareAndSwap(true, false) {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// logger returns a log of WireGuard that notices datagrams that could not be sent.
func (w *watch) logger() *device.Logger {
	return &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf: func(format string, args ...any) {
			w.log.Debug("tunnel: " + fmt.Sprintf(format, args...))
			if len(args) != 2 {
				return
			}
			to, isPeer := args[0].(*device.Peer)
			err, isError := args[1].(error)
			for _, p := range w.peers {
				if key := p.key.String(); isPeer && isError && to.String() == "peer("+key[:4]+"…"+key[39:43]+")" {
					p.failure.Store(&err)
				}
			}
		},
	}
}

// run watches the peers until ctx ends.
func (w *watch) run(ctx context.Context) {
	w.suspended(now(unix.CLOCK_BOOTTIME) - now(unix.CLOCK_MONOTONIC))
	for {
		var timer <-chan time.Time
		wait := tick
		if quiet := now(unix.CLOCK_MONOTONIC) - time.Duration(w.lastUsed.Load()); quiet > idleAfter {
			if wait = w.keepalive; !w.idle.Swap(true) {
				wait = tick // a packet may have come before
			}
		}
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		if w.suspended(now(unix.CLOCK_BOOTTIME) - now(unix.CLOCK_MONOTONIC)) {
			w.resume()
		}
		w.look(ctx)
	}
}

// suspended reports whether the machine was suspended since the last call. total is
// the time that it was suspended since it booted.
func (w *watch) suspended(total time.Duration) bool {
	was := w.asleep
	if w.asleep = total; total-was < sleepLeast {
		w.asleep = was
		return false
	}
	return true
}

// resume makes the next packet start a handshake. Peers have dropped sessions that
// were too old during the suspension of the machine, which WireGuard does not
// notice.
func (w *watch) resume() {
	for _, p := range w.peers {
		if of := w.tunnel.dev.LookupPeer(device.NoisePublicKey(p.key)); of != nil {
			of.ExpireCurrentKeypairs()
		}
	}
}

// look examines the peers.
func (w *watch) look(ctx context.Context) {
	states := w.tunnel.Peers()
	for _, p := range w.peers {
		n := slices.IndexFunc(states, func(s rpc.TunnelPeer) bool { return s.PublicKey == p.key.String() })
		if n < 0 {
			continue
		}
		at := now(unix.CLOCK_MONOTONIC)
		switch p.step(&states[n], p.failure.Swap(nil), at) {
		case silent:
			w.say(fmt.Sprintf("the peer %s does not answer: %s; lklrun keeps trying", p.name(), w.cause(p)))
		case answers:
			w.say(fmt.Sprintf("the peer %s answers again", p.name()))
		case same:
		}
		if p.due(at) {
			w.find(ctx, p)
		}
	}
}

// change is what the user must know.
type change int

const (
	same change = iota
	silent
	answers
)

// step updates what is known about a peer. failure is the reason why a datagram
// could not be sent since the last step; nil: none.
func (p *peer) step(s *rpc.TunnelPeer, failure *error, at time.Duration) change {
	sent, heard := s.Sent-p.last.Sent > keepalives, s.Received != p.last.Received
	if p.last = *s; sent {
		p.err = nil
	}
	if failure != nil {
		sent, p.err = true, *failure
	}
	switch {
	case heard:
		p.since, p.interval = 0, 0
		if p.silent {
			p.silent = false
			return answers
		}
	case sent && p.since == 0:
		p.since = at
	case p.overdue(at) && !p.silent:
		p.silent = true
		return silent
	}
	return same
}

// overdue reports whether the peer is silent for too long.
func (p *peer) overdue(at time.Duration) bool {
	limit := sessionLimit
	if p.last.LastHandshake.IsZero() {
		limit = firstLimit
	}
	return p.since != 0 && at-p.since >= limit
}

// due reports whether the endpoint must be looked up now.
func (p *peer) due(at time.Duration) bool {
	if p.endpoint == "" || !p.overdue(at) || at-p.found < p.interval {
		return false
	}
	p.found, p.interval = at, min(max(findFirst, 2*p.interval), findMost)
	return true
}

// name names the peer for the user.
func (p *peer) name() string { return cmp.Or(p.endpoint, p.key.String()) }

// cause returns the usual causes of silence.
func (w *watch) cause(p *peer) string {
	switch {
	case p.last.Endpoint == "" && p.endpoint == "":
		return "the file has no Endpoint for it, and it has not called"
	case p.last.Endpoint == "":
		return "the host has found no address of it"
	case p.err != nil && isUnreachable(p.err):
		return fmt.Sprintf("the host cannot send to %s (%v)", p.last.Endpoint, errno.Errno(p.err))
	case !p.last.LastHandshake.IsZero():
		return "the last handshake was at " + p.last.LastHandshake.Format(time.TimeOnly)
	}
	return fmt.Sprintf("its address or UDP port is unreachable, the keys in the file are wrong, or it does not know the public key %s", w.own)
}

// find looks up the endpoint again, and sends a handshake to it.
func (w *watch) find(ctx context.Context, p *peer) {
	ways, err := Find(ctx, p.endpoint, "")
	if err != nil {
		w.log.Debug("looking up an endpoint", "error", err)
		return
	}
	// If the name has several addresses, the next one may work.
	present, _ := netip.ParseAddrPort(p.last.Endpoint)
	at := slices.IndexFunc(ways, func(way Way) bool { return way.Remote == present })
	to := ways[(at+1)%len(ways)].Remote
	if to == present {
		return
	}
	err = w.tunnel.dev.IpcSet(fmt.Sprintf("public_key=%s\nupdate_only=true\nendpoint=%s\n", p.key.Hex(), to))
	if err == nil {
		err = w.tunnel.dev.LookupPeer(device.NoisePublicKey(p.key)).SendHandshakeInitiation(false)
	}
	w.log.Debug("the endpoint of a peer", "name", p.endpoint, "address", to, "error", errors.Join(err))
}
