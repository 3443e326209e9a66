// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

const (
	own    = "10.71.1.2"
	second = "10.71.2.2"
	peer   = "10.71.0.1"
)

var addr = netip.MustParseAddr

func subflow(from string, state sockdiag.State, flags sockdiag.SubflowFlags) sockdiag.Socket {
	return sockdiag.Socket{
		State: state, Local: netip.AddrPortFrom(addr(from), 4000), Remote: netip.AddrPortFrom(addr(peer), 80),
		Subflow: &sockdiag.Subflow{Flags: flags}, TCP: &sockdiag.TCPInfo{},
	}
}

// twoPaths returns a stack with an endpoint on each of two interfaces, and a connection
// with a subflow over the first one.
func twoPaths() (*stack, *sockdiag.Connection) {
	link := func(index int, name, a string) Link {
		return Link{
			LinkState: stacknet.LinkState{Index: index, Name: name, Flags: unix.IFF_UP | unix.IFF_LOWER_UP},
			Addrs:     []netip.Addr{addr(a)},
		}
	}
	s := &stack{
		Links: []Link{link(2, "eth0", own), link(3, "eth1", second)},
		Endpoints: []stacknet.Endpoint{
			{ID: 1, Addr: addr(own), Ifindex: 2, Flags: stacknet.EndpointSubflow},
			{ID: 2, Addr: addr(second), Ifindex: 3, Flags: stacknet.EndpointSubflow},
		},
		Counters: map[string]int64{}, Past: &mptcpevent.Past{}, Listens: map[uint16]bool{}, MPTCPPeers: map[netip.Addr]bool{}, NoRoute: map[Route]bool{},
	}
	known := sockdiag.Known
	c := &sockdiag.Connection{
		Socket: sockdiag.Socket{
			State: sockdiag.Established, Local: netip.AddrPortFrom(addr(own), 4000), Remote: netip.AddrPortFrom(addr(peer), 80),
			MPTCP: &sockdiag.MPTCPInfo{Token: known(7), RemoteKey: true, Subflows: known(0), SubflowsMax: known(2)},
		},
		Subflows: []sockdiag.Socket{subflow(own, sockdiag.Established, sockdiag.FlagCapableLocal|sockdiag.FlagCapableRemote|sockdiag.FlagFullyEstablished)},
	}
	return s, c
}

// happened adds an event for a subflow from the second address.
func (s *stack) happened(kind mptcpevent.Kind, after time.Duration, change func(*mptcpevent.Event)) {
	id := 2
	e := mptcpevent.Event{
		Time: time.Unix(1000, 0).Add(after), Kind: kind, Token: 7, LocalID: &id,
		Local: netip.AddrPortFrom(addr(second), 5000), Remote: netip.AddrPortFrom(addr(peer), 80),
	}
	if change != nil {
		change(&e)
	}
	s.Past.Events = append(s.Past.Events, e)
}

func failed(no syscall.Errno) func(*mptcpevent.Event) {
	return func(e *mptcpevent.Event) { e.Errno = no }
}

func reset(reason int) func(*mptcpevent.Event) {
	return func(e *mptcpevent.Event) { e.ResetReason, e.Errno = &reason, syscall.ECONNRESET }
}

func TestMissing(t *testing.T) {
	six := func(s *stack, _ *sockdiag.Connection) { s.Links[1].Addrs = []netip.Addr{addr("fd71::2")} }
	joining := func(retrans uint64) func(*stack, *sockdiag.Connection) {
		return func(_ *stack, c *sockdiag.Connection) {
			f := subflow(second, sockdiag.SynSent, sockdiag.FlagJoinLocal)
			f.TCP.TotalRetrans = sockdiag.Known(retrans)
			c.Subflows = append(c.Subflows, f)
		}
	}
	closed := func(change func(*mptcpevent.Event)) func(*stack, *sockdiag.Connection) {
		return func(s *stack, _ *sockdiag.Connection) { s.happened(mptcpevent.SubClosed, 0, change) }
	}
	lived := func(d time.Duration, change func(*mptcpevent.Event)) func(*stack, *sockdiag.Connection) {
		return func(s *stack, _ *sockdiag.Connection) {
			s.happened(mptcpevent.SubEstablished, 0, nil)
			s.happened(mptcpevent.SubClosed, d, change)
		}
	}
	passive := func(flags uint32) func(*stack, *sockdiag.Connection) {
		return func(s *stack, c *sockdiag.Connection) {
			s.Listens[4000] = true
			c.Subflows[0].Subflow.Flags = sockdiag.FlagCapableRemote | sockdiag.FlagFullyEstablished
			s.Endpoints[1].Flags = flags
		}
	}
	for name, c := range map[string]struct {
		change func(*stack, *sockdiag.Connection)
		code   Code // "": no reason
		text   string
	}{
		"both": {func(_ *stack, c *sockdiag.Connection) {
			c.Subflows = append(c.Subflows, subflow(second, sockdiag.Established, sockdiag.FlagJoinLocal))
		}, "", ""},
		"a backup": {func(_ *stack, c *sockdiag.Connection) {
			c.Subflows = append(c.Subflows, subflow(second, sockdiag.Established, sockdiag.FlagJoinLocal|sockdiag.FlagBackupLocal))
		}, "", ""},
		"ending":      {func(_ *stack, c *sockdiag.Connection) { c.State = sockdiag.TimeWait }, "", ""},
		"loopback":    {func(_ *stack, c *sockdiag.Connection) { c.Remote = netip.MustParseAddrPort("127.0.0.1:80") }, "", ""},
		"down":        {func(s *stack, _ *sockdiag.Connection) { s.Links[1].Flags = 0 }, Down, "down"},
		"no carrier":  {func(s *stack, _ *sockdiag.Connection) { s.Links[1].Flags = unix.IFF_UP }, NoCarrier, "carrier"},
		"no address":  {func(s *stack, _ *sockdiag.Connection) { s.Links[1].Addrs = nil }, NoAddress, "no usable address"},
		"IPv6 only":   {six, OtherFamily, "uses IPv4"},
		"user space":  {func(s *stack, _ *sockdiag.Connection) { s.Userspace = true }, Userspace, "pm_type=1"},
		"no endpoint": {func(s *stack, _ *sockdiag.Connection) { s.Endpoints = s.Endpoints[:1] }, NoEndpoint, "not an MPTCP endpoint"},
		"implicit":    {func(s *stack, _ *sockdiag.Connection) { s.Endpoints[1].Flags = stacknet.EndpointImplicit }, NoEndpoint, ""},
		"deleted":     {func(s *stack, c *sockdiag.Connection) { lived(time.Hour, nil)(s, c); s.Endpoints = s.Endpoints[:1] }, EndpointGone, "deleted"},
		"signal":      {func(s *stack, _ *sockdiag.Connection) { s.Endpoints[1].Flags = stacknet.EndpointSignal }, SignalOnly, "announces"},
		"limit":       {func(_ *stack, c *sockdiag.Connection) { c.MPTCP.SubflowsMax = sockdiag.Known(0) }, Limit, "is 0"},
		"no data yet": {func(_ *stack, c *sockdiag.Connection) { c.Subflows[0].Subflow.Flags &^= sockdiag.FlagFullyEstablished }, NotYet, ""},
		"no route":    {func(s *stack, _ *sockdiag.Connection) { s.NoRoute[Route{addr(second), addr(peer), 3}] = true }, NoRoute, "from 10.71.2.2 to 10.71.0.1"},
		"joins":       {joining(0), Joining, "in progress"},
		"unanswered":  {joining(2), Unanswered, "3 times"},
		"refused":     {closed(failed(syscall.ECONNREFUSED)), Refused, "closed its listening socket, or a firewall"},
		"timed out":   {closed(failed(syscall.ETIMEDOUT)), TimedOut, "timed out"},
		"unreachable": {closed(failed(syscall.EHOSTUNREACH)), Unreachable, "no route to host"},
		"stripped":    {closed(nil), JoinStripped, "without MP_JOIN"},
		"HMAC":        {func(s *stack, c *sockdiag.Connection) { s.Counters["MPJoinSynAckHMacFailure"] = 1; closed(nil)(s, c) }, BadHMAC, "HMAC"},
		"prohibited":  {lived(time.Hour, reset(3)), PeerLimit, "administratively prohibited"},
		"at once":     {lived(time.Millisecond, nil), PeerLimit, "immediately"},
		"later":       {lived(time.Hour, nil), Ended, "closed"},
		"reset":       {lived(time.Hour, reset(6)), Ended, "middlebox"},
		"DSS":         {lived(time.Hour, failed(syscall.EBADMSG)), Corrupt, "mapping"},
		"dead":        {lived(time.Hour, failed(syscall.ETIMEDOUT)), Ended, "timed out"},
		"another token": {func(s *stack, c *sockdiag.Connection) {
			closed(failed(syscall.ECONNREFUSED))(s, c)
			s.Past.Events[0].Token = 8
		}, Unknown, ""},
		"flag C": {func(s *stack, _ *sockdiag.Connection) {
			s.happened(mptcpevent.Established, 0, func(e *mptcpevent.Event) { e.DenyJoinID0, e.Local = true, netip.AddrPort{} })
		}, DenyID0, "announced"},
		"counters":         {func(s *stack, _ *sockdiag.Connection) { s.Counters["MPJoinSynTxConnectErr"] = 3 }, ConnectError, "3 joins could not be sent"},
		"nothing":          {func(*stack, *sockdiag.Connection) {}, Unknown, "no record of a join"},
		"nobody listened":  {func(s *stack, _ *sockdiag.Connection) { s.Past = nil }, Unknown, "is unknown"},
		"gateway":          {func(s *stack, _ *sockdiag.Connection) { s.Links[1].Gateway = true }, Gateway, "lklrun's gateway"},
		"gateway, down":    {func(s *stack, _ *sockdiag.Connection) { s.Links[1].Gateway, s.Links[1].Flags = true, 0 }, Gateway, "lklrun's gateway"},
		"another gateway":  {func(s *stack, _ *sockdiag.Connection) { s.Links[0].Gateway = true }, Unknown, ""},
		"server":           {passive(stacknet.EndpointSubflow), NotSignalled, "no endpoint announces"},
		"server announces": {passive(stacknet.EndpointSignal), NotAccepted, "announced"},
		"server, its limit": {func(s *stack, c *sockdiag.Connection) {
			passive(stacknet.EndpointSignal)(s, c)
			c.MPTCP.Subflows = sockdiag.Known(2)
		}, Limit, "accepts 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s, conn := twoPaths()
			c.change(s, conn)
			got := s.explain(conn)
			if c.code == "" {
				if len(got) != 0 {
					t.Errorf("%+v, want none", got)
				}
				return
			}
			if len(got) != 1 || got[0].Code != c.code || got[0].Iface != "eth1" || !strings.Contains(got[0].Text, c.text) {
				t.Errorf("%+v, want %q on eth1 with %q", got, c.code, c.text)
			}
		})
	}
}

func TestFallback(t *testing.T) {
	const local, remote = sockdiag.FlagCapableLocal, sockdiag.FlagCapableRemote
	for name, c := range map[string]struct {
		flags    sockdiag.SubflowFlags
		key      bool // the peer's key was received
		speaks   bool // the peer uses MPTCP on other connections
		counters []string
		code     Code
		text     string
	}{
		"no answer to MP_CAPABLE": {local, false, false, []string{"MPCapableFallbackSYNACK"}, NoCapable, "does not support MPTCP, or something on the path strips"},
		"the peer can":            {local, false, true, []string{"MPCapableFallbackSYNACK"}, Stripped, "other connections"},
		"SYNs dropped":            {0, false, false, []string{"MPCapableSYNTXDrop"}, SynDropped, "drops SYNs"},
		"switched off":            {0, false, false, []string{"MPCapableSYNTXDisabled"}, Disabled, "blackhole"},
		"one of two":              {0, false, false, []string{"MPCapableSYNTXDrop", "MPCapableSYNTXDisabled"}, Fallback, "MPCapableSYNTXDrop, MPCapableSYNTXDisabled"},
		"none":                    {0, false, false, nil, Fallback, "not sent"},
		"checksum":                {local | remote, true, false, []string{"DataCsumErr"}, BadChecksum, "checksum"},
		"infinite":                {local | remote, true, false, []string{"InfiniteMapRx"}, Infinite, "infinite mapping"},
		"corrupt":                 {local | remote, true, false, []string{"DSSCorruptionFallback"}, Corrupt, "DSS"},
		"data without options":    {local | remote, true, false, []string{"DssFallback", "MPCapableDataFallback"}, DataStripped, "strips"},
	} {
		t.Run(name, func(t *testing.T) {
			s, conn := twoPaths()
			conn.MPTCP.Fallback, conn.MPTCP.RemoteKey = true, c.key
			conn.Subflows[0].Subflow.Flags = c.flags
			s.MPTCPPeers[addr(peer)] = c.speaks
			for _, n := range c.counters {
				s.Counters[n] = 1
			}
			got := s.explain(conn)
			if len(got) != 1 || got[0].Code != c.code || got[0].Iface != "" || !strings.Contains(got[0].Text, c.text) {
				t.Errorf("%+v, want %q with %q", got, c.code, c.text)
			}
		})
	}
	s, conn := twoPaths()
	conn.MPTCP.Fallback, conn.MPTCP.RemoteKey = true, false
	conn.Subflows[0].Subflow.Flags = 0
	s.Listens[4000] = true
	if got := s.explain(conn); len(got) != 1 || got[0].Code != Stripped {
		t.Errorf("a server's: %+v", got)
	}
}

// With lklrun's gateway, the peer is never the reason for plain TCP. A connection over
// another interface of the same stack has its own reason.
func TestFallbackGateway(t *testing.T) {
	for name, c := range map[string]struct {
		gateways []int // indexes of interfaces with a gateway
		passive  bool
		code     Code
		remedy   string
	}{
		"only gateways":     {[]int{0, 1}, false, Gateway, "--if tap:NAME,nat or --if raw:DEV"},
		"a published port":  {[]int{0, 1}, true, Gateway, "--if tap:NAME,nat or --if raw:DEV"},
		"over the gateway":  {[]int{0}, false, Gateway, "make it the last --if"},
		"over the other":    {[]int{1}, false, NoCapable, "net.mptcp.enabled"},
		"without a gateway": {nil, false, NoCapable, "net.mptcp.enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			s, conn := twoPaths()
			for _, n := range c.gateways {
				s.Links[n].Gateway = true
			}
			conn.MPTCP.Fallback, conn.MPTCP.RemoteKey = true, false
			conn.Subflows[0].Subflow.Flags = sockdiag.FlagCapableLocal
			if c.passive {
				conn.Subflows[0].Subflow.Flags, s.Listens[4000] = 0, true
			}
			got := s.explain(conn)
			if len(got) != 1 || got[0].Code != c.code || !strings.Contains(got[0].Remedy, c.remedy) {
				t.Errorf("%+v, want %q with %q", got, c.code, c.remedy)
			}
		})
	}
}

// Only data about the things that a connection lacks is read from the stack.
func TestNeeds(t *testing.T) {
	s, c := twoPaths()
	joining := subflow(second, sockdiag.SynSent, 0)
	joining.Remote = netip.MustParseAddrPort("10.71.9.1:80")
	for name, tc := range map[string]struct {
		change func()
		want   needs
	}{
		"nothing": {func() { c.Subflows = append(c.Subflows, subflow(second, sockdiag.Established, 0)) }, needs{}},
		"a path":  {func() {}, needs{true, true, []mptcpevent.Token{7}, []netip.Addr{addr(peer)}}},
		"a join": {func() { c.Subflows = append(c.Subflows, joining) },
			needs{true, true, []mptcpevent.Token{7}, []netip.Addr{addr(peer), addr("10.71.9.1")}}},
		"MPTCP": {func() { c.MPTCP.Fallback = true }, needs{counters: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c = twoPaths()
			tc.change()
			if got := s.needs([]sockdiag.Connection{*c}); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
