// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/link/ring"
	"github.com/lklrun/lklrun/internal/link/user/rules"
	"github.com/lklrun/lklrun/pkg/config"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// Available reports whether this lklrun includes the gateway.
const Available = true

// The gateway's stack would write to the program's standard error, for example about each
// packet to a loopback address that MPTCP tries to send through the gateway. Its packages
// already hold this logger, so a new one (log.SetTarget) would come too late.
func init() { log.Log().Emitter = silent{} }

type silent struct{}

// Emit discards a message of the gateway's stack.
func (silent) Emit(int, log.Level, time.Time, string, ...any) {}

const (
	nic = 1

	// connectLimit is the time for which Linux tries to connect by default
	// (tcp_syn_retries, 6).
	connectLimit = 127 * time.Second

	// drainLimit bounds the final wait for data that the stack has sent and
	// the host's sockets have not yet accepted.
	drainLimit = 3 * time.Second

	// timeWait is zero, because the link neither loses nor reorders frames:
	// no segment of an ended connection can still arrive. With TIME-WAIT,
	// the gateway would drop a SYN from a port in that state. The stack may
	// reuse the port at once if it was the second side to close the
	// connection.
	timeWait = 0
)

// Gateway is a running gateway.
type Gateway struct {
	cfg    Config
	log    *slog.Logger
	warn   func(string)
	counts [kinds]atomic.Uint64 // how often each limit was reached
	// reported holds the errors of the host (unix.Errno) that the user knows of.
	reported sync.Map
	cancel   context.CancelFunc // cancels all work for the stack

	stopStarting context.CancelFunc // cancels the start of the kernel; nil: it cannot start

	link     *link
	stack    *stack.Stack
	dns      *resolver
	doors    []*door
	rules    *rules.Rules  // nil: all destinations are allowed
	proxy    *proxy        // nil: the host connects
	refusing chan struct{} // refused packets for which the log looks for the process

	mu      sync.Mutex
	kernel  *kernel // nil: this process ends TCP connections
	closing bool
	carried int // number of connections so far
	relays  map[*relay]struct{}
	sending sync.WaitGroup                         // relays from the stack to the host
	dialing map[stack.TransportEndpointID]struct{} // connections whose SYN has no answer yet
	pings   map[pingFlow]*ping
}

// Start runs a gateway until Close. It returns the bell of the memory that the gateway
// shares with the stack, for a device of kind CTL_LINK_WIRE, or nil if Plain must be called.
// warn receives messages for the user, one line each.
func Start(ctx context.Context, cfg Config, log *slog.Logger, warn func(string)) (*Gateway, *os.File, error) {
	if (cfg.restricted() || cfg.Proxy != nil) && len(cfg.Publish) > 0 {
		return nil, nil, errors.New("starting the user-mode gateway: allowed destinations or a proxy, and published ports exclude each other")
	}
	var through *proxy
	if cfg.Proxy != nil {
		var err error
		if through, err = newProxy(ctx, &cfg, warn); err != nil {
			return nil, nil, &FlagError{"--proxy", err}
		}
	}
	decisions, err := openLog(cfg.EgressLog, warn)
	if err != nil {
		return nil, nil, &FlagError{"--egress-log", err}
	}
	policy, err := openAudit(cfg.Egress)
	if err != nil {
		return nil, nil, &FlagError{"--egress", err}
	}
	doors, err := open(cfg.Publish)
	if err != nil {
		return nil, nil, &PublishError{err}
	}
	l, bell := newLink(cfg, log)
	g := &Gateway{
		cfg: cfg, log: log, warn: warn, relays: map[*relay]struct{}{}, doors: doors,
		dialing: map[stack.TransportEndpointID]struct{}{}, pings: map[pingFlow]*ping{},
		link: l, dns: newResolver(resolvConf, cfg.dial), proxy: through,
		refusing: make(chan struct{}, maxRefusing),
	}
	if cfg.restricted() {
		g.rules = newRules(cfg, warn, decisions, policy)
		g.link.other = g.rules.Other
	}
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.echo = func(protocol tcpip.NetworkProtocolNumber, packet []byte) { g.echo(ctx, protocol, packet) }
	if err := g.route(ctx); err != nil {
		l.close()
		bell.Close() // nil is no problem
		g.closeDoors()
		g.cancel()
		return nil, nil, fmt.Errorf("starting the user-mode gateway: %w", err)
	}
	starting, stop := context.WithCancel(ctx)
	g.stopStarting = stop
	k := cfg.Kernel
	switch {
	case k == nil:
	case !k.Must && bell == nil: // no shared memory
		k = nil
	case !k.Must && len(cfg.Publish) == 0:
		l.kernel, k = func(stack *ring.End) *ring.End { return g.insertKernel(starting, stack) }, nil
	}
	g.link.start()
	if k != nil {
		if bell, err = g.earlyKernel(starting, bell); err != nil {
			g.Close()
			return nil, nil, err
		}
	}
	g.publish(ctx)
	return g, bell, nil
}

// earlyKernel starts the kernel before the first connection: because it must run, so that its
// errors are reported, or because ports are published. It returns the bell for the stack.
func (g *Gateway) earlyKernel(ctx context.Context, router *os.File) (*os.File, error) {
	if router == nil {
		return nil, &FlagError{"--if user,tcp=linux", errors.New("it needs memory that processes share, which this host does not permit")}
	}
	outer, err := g.startKernel(ctx, router)
	switch {
	case err == nil:
		return outer, nil
	case g.cfg.Kernel.Must:
		router.Close()
		return nil, &FlagError{"--if user,tcp=linux", err}
	}
	g.log.Debug("gateway: lklrun ends TCP connections itself", "error", err)
	return router, nil
}

// theKernel returns the kernel that ends TCP connections, or nil.
func (g *Gateway) theKernel() *kernel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kernel
}

// Plain makes the gateway use a socket with one frame per message instead of shared memory.
// It returns the stack's end. It must be called before the stack uses the link.
func (g *Gateway) Plain() (*os.File, error) {
	if g.theKernel() != nil {
		return nil, &FlagError{"--if user,tcp=linux", errors.New("the stack does not support it; use one of lklrun's own stacks")}
	}
	return g.link.plain()
}

func (g *Gateway) closeDoors() {
	for _, d := range g.doors {
		d.close()
	}
}

// route creates the router, which accepts packets to all addresses and answers
// on behalf of all of them.
func (g *Gateway) route(ctx context.Context) error {
	s := stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{
			tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6,
		},
	})
	sack := tcpip.TCPSACKEnabled(true)
	adapt := tcpip.TCPModerateReceiveBufferOption(true)
	// The link neither loses nor reorders frames. RACK (RFC 8985) would
	// assume a loss after a delay of a few hundred microseconds, although
	// such a delay only means that the machine is busy.
	recovery := tcpip.TCPRecovery(0)
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &adapt, &recovery, &wait} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("setting a TCP option: %v", err)
		}
	}
	connections := func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool { return g.begin(ctx, id, pkt) }
	datagrams := func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		g.associate(ctx, id, pkt)
		return true
	}
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, g.filterRefused("tcp", g.filterUnreachable(connections)))
	s.SetTransportProtocolHandler(udp.ProtocolNumber, g.filterRefused("udp", g.filterUnreachable(datagrams)))
	if err := s.CreateNIC(nic, g.link); err != nil {
		return fmt.Errorf("creating its interface: %v", err)
	}
	var routes []tcpip.Route
	for _, n := range g.cfg.networks() {
		for _, a := range []netip.Addr{n.gateway, n.host} {
			address := tcpip.ProtocolAddress{
				Protocol:          n.protocol,
				AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(a.AsSlice()), PrefixLen: n.address.Bits()},
			}
			if err := s.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
				return fmt.Errorf("adding the address %v: %v", a, err)
			}
		}
		subnet := tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(n.address.Addr().AsSlice()), PrefixLen: n.address.Bits()}
		routes = append(routes, tcpip.Route{Destination: subnet.Subnet(), NIC: nic})
	}
	if err := s.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("accepting packets to all addresses: %v", err)
	}
	if err := s.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("answering for all addresses: %v", err)
	}
	s.SetRouteTable(routes)
	g.stack = s
	return nil
}

// network is the part of a Config for one address family.
type network struct {
	protocol      tcpip.NetworkProtocolNumber
	address       netip.Prefix
	gateway, host netip.Addr
}

func (c *Config) networks() []network {
	all := []network{{ipv4.ProtocolNumber, c.Address, c.Gateway, c.Host}}
	if c.Address6.IsValid() {
		all = append(all, network{ipv6.ProtocolNumber, c.Address6, c.Gateway6, c.Host6})
	}
	return all
}

// own reports whether a is one of the gateway's addresses.
func (c *Config) own(a netip.Addr) bool {
	for _, n := range c.networks() {
		if a == n.gateway || a == n.host {
			return true
		}
	}
	return false
}

// onHost translates an address of the stack to the host's address.
func (g *Gateway) onHost(addr tcpip.Address) netip.Addr {
	switch a := peer(addr); a {
	case g.cfg.Host:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case g.cfg.Host6:
		return netip.IPv6Loopback()
	default:
		return a
	}
}

// peer converts an address of the stack.
func peer(addr tcpip.Address) netip.Addr {
	a, _ := netip.AddrFromSlice(addr.AsSlice())
	return a
}

// isDNS reports whether addr:port is the gateway's own name server.
func (g *Gateway) isDNS(addr tcpip.Address, port uint16) bool {
	a, _ := netip.AddrFromSlice(addr.AsSlice())
	return port == dnsPort && (a == g.cfg.Gateway || a == g.cfg.Gateway6)
}

// Close ends the gateway after the stack has ended. Within drainLimit, it first
// passes the data that the stack has already sent on to the host's sockets.
func (g *Gateway) Close() {
	g.closeDoors()
	g.stopStarting()
	early := g.theKernel()
	early.close()
	g.link.close()
	if late := g.theKernel(); late != early {
		late.close()
	}
	if k := g.cfg.Kernel; k != nil {
		_ = os.RemoveAll(k.Dir) // otherwise it remains until the end of the run
	}
	g.mu.Lock()
	g.closing = true
	for r := range g.relays {
		r.lastCall()
	}
	g.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		g.sending.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(drainLimit):
		g.log.Debug("the gateway could not send all data before its timeout")
	}
	count := g.stack.Stats().TCP
	g.mu.Lock()
	g.log.Debug("gateway traffic", "connections", g.carried,
		"segments", count.SegmentsSent.Value(), "retransmitted", count.Retransmits.Value())
	g.mu.Unlock()
	g.cancel()
	g.stack.Close()
	if g.rules != nil {
		g.rules.Close()
	}
}

// Egress returns what the program asked for, or nil if the gateway has no rules.
func (g *Gateway) Egress() *egress.Account {
	if g.rules == nil {
		return nil
	}
	a := g.rules.Account()
	return &a
}

// NameProcesses sets the function that finds the processes of sockets for the log.
func (g *Gateway) NameProcesses(find egress.Finder) {
	if g.rules != nil {
		g.rules.NameProcesses(find)
	}
}

// ChangeEgress adds and removes rules.
func (g *Gateway) ChangeEgress(add, remove []config.Allow) error {
	if g.rules == nil {
		return egress.ErrNoRules
	}
	return g.rules.Change(add, remove)
}

// EgressRules returns some of the rules, from an index on.
func (g *Gateway) EgressRules(from int) (p egress.Policy) {
	if g.rules != nil {
		p = g.rules.Part(from)
		p.File = g.cfg.Egress
	}
	return p
}
