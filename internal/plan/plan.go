// SPDX-License-Identifier: Apache-2.0

// Package plan turns what the user said and what the host is like into an
// ordered Plan. A Plan is pure data: making one touches nothing, and printing it
// is what --dry-run does. internal/launch carries it out, step by step.
package plan

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/gateway"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Limits of a run. MaxLinks is the number of MPTCP endpoints a network
// namespace takes (MPTCP_PM_ADDR_MAX, net/mptcp/protocol.h).
const (
	MaxLinks     = 8
	firstTable   = 100 // the links' own routing tables: eth0's, and upwards
	mptcpLimit   = 8   // subflows, and addresses accepted from the peer
	defaultMTU   = 1500
	resolvHeader = "# by lklrun, for the programs it started\n"
)

// Stack is the stack that will run.
type Stack struct {
	Name    string `json:"name"`
	Kernel  string `json:"kernel,omitempty"`
	Library string `json:"library,omitempty"` // empty: the host's kernel
	ABI     string `json:"abi"`
	Mem     uint64 `json:"mem,omitempty"`
	MPTCP   bool   `json:"mptcp"`
}

// Link is one interface of the stack.
type Link struct {
	Name     string          `json:"name"` // in the stack: eth0
	Type     string          `json:"type"`
	Device   string          `json:"device,omitempty"` // tap: on the host
	FD       int             `json:"fd,omitempty"`
	Create   bool            `json:"create,omitempty"` // tap: it does not exist yet
	MAC      config.MAC      `json:"mac,omitzero"`
	MTU      int             `json:"mtu"`
	Addrs    []netip.Prefix  `json:"addrs,omitempty"`
	GW4      netip.Addr      `json:"gw,omitzero"`
	GW6      netip.Addr      `json:"gw6,omitzero"`
	Table    int             `json:"table"`
	Endpoint bool            `json:"endpoint,omitempty"`
	Gateway  *gateway.Config `json:"-"` // user
}

// Host is what the link hangs on, for people.
func (l *Link) Host() string {
	switch l.Type {
	case config.TypeTap:
		return l.Device
	case config.TypeFD:
		return fmt.Sprint(l.FD)
	}
	return ""
}

// Kind names what a step does.
type Kind string

// The kinds of steps, in the order in which a run may have them.
const (
	RunDir    Kind = "run-dir"
	Host      Kind = "host"
	Gateway   Kind = "gateway"
	Tap       Kind = "tap"
	FD        Kind = "fd"
	Boot      Kind = "boot"
	Configure Kind = "configure"
	Release   Kind = "release"
)

// Step is one step of a run, and how it is taken back.
type Step struct {
	Kind Kind   `json:"kind"`
	Link int    `json:"link,omitempty"` // index of the link it is about
	Do   string `json:"do"`
	Undo string `json:"undo,omitempty"`
}

// Plan is a run that can be carried out.
type Plan struct {
	Command  []string        `json:"command"`
	Name     string          `json:"name,omitempty"` // empty: after BaseName
	BaseName string          `json:"base_name"`
	RunRoot  string          `json:"run_root"`
	Stack    Stack           `json:"stack"`
	Require  string          `json:"require,omitempty"` // of config's
	Links    []Link          `json:"links"`
	Sysctls  []config.Sysctl `json:"sysctls,omitempty"`
	Resolv   string          `json:"resolv_conf,omitempty"` // empty: the host's stays
	DNSFrom  string          `json:"dns_from,omitempty"`
	Notes    []string        `json:"notes,omitempty"` // told once at the start
	Steps    []Step          `json:"steps"`
}

// MPTCPLimit is how many subflows, and addresses of the peer, each connection
// may have: as many as the kernel allows.
func (p *Plan) MPTCPLimit() int { return mptcpLimit }

// Make plans a run. It looks at nothing but its arguments.
func Make(run config.Run, s *stack.Stack, facts Facts) (*Plan, error) {
	if len(run.Command) == 0 {
		return nil, errors.New("no command to run; expected lklrun [FLAG]... -- COMMAND [ARG]...")
	}
	p := &Plan{
		Command:  run.Command,
		Name:     run.Name,
		BaseName: instance.BaseName(run.Command[0]),
		RunRoot:  facts.RunRoot,
		Stack: Stack{
			Name: s.Name, Kernel: s.Kernel, Library: s.LibraryPath(), ABI: s.ABI,
			Mem: s.MemBytes(), MPTCP: s.MPTCP,
		},
		Require: run.Require,
	}
	if run.Mem != 0 {
		p.Stack.Mem = run.Mem
	}
	if s.ABI == stack.ABIHost {
		if err := onHost(run); err != nil {
			return nil, err
		}
		p.Stack.Mem = 0
		p.steps()
		return p, nil
	}
	p.Sysctls = lastOfEach(slices.Concat(memSysctls(p.Stack.Mem), s.SortedSysctls(), run.Sysctls))
	if err := p.links(run, facts); err != nil {
		return nil, err
	}
	p.resolv(run.DNS, facts)
	p.steps()
	return p, nil
}

// onHost says what cannot be asked of the host's own kernel: it is not ours to
// configure.
func onHost(run config.Run) error {
	const is = "the stack is the host's own kernel"
	switch {
	case len(run.Interfaces) > 0:
		return fmt.Errorf("--if %q: %s, with the host's own interfaces; leave it out, or choose another --stack", run.Interfaces[0].String(), is)
	case len(run.Sysctls) > 0:
		return fmt.Errorf("--sysctl %s: %s, and its settings are not lklrun's to change", run.Sysctls[0].Name, is)
	case len(run.DNS) > 0:
		return fmt.Errorf("--dns %s: %s, with the host's own name servers", run.DNS[0], is)
	case run.Require == config.RequireMPTCP:
		return fmt.Errorf("--require %s: %s, which counts not this run's connections alone", run.Require, is)
	case run.Mem != 0:
		return fmt.Errorf("--mem: %s, with the host's own memory", is)
	}
	return nil
}

// memSysctls bounds TCP's buffers by the stack's memory, which is little beside
// a machine's: Linux derives the limits from that (net/ipv4/tcp.c, tcp_init())
// for a machine that does much else. All of TCP may have half of it, a socket's
// direction up to a thirty-second part, as far as a big machine has it.
func memSysctls(mem uint64) []config.Sysctl {
	const page = 4096
	if mem == 0 {
		return nil // whatever the library has, the kernel knows it better
	}
	total := mem / 2 / page
	most := min(max(mem/32, 1<<20), 6<<20)
	return []config.Sysctl{
		{Name: "net.ipv4.tcp_mem", Value: fmt.Sprintf("%d %d %d", total/2, total*3/4, total)},
		{Name: "net.ipv4.tcp_rmem", Value: fmt.Sprintf("4096 131072 %d", most)},
		{Name: "net.ipv4.tcp_wmem", Value: fmt.Sprintf("4096 16384 %d", min(most, 4<<20))},
	}
}

// lastOfEach leaves out settings that a later one of the same name replaces.
func lastOfEach(all []config.Sysctl) []config.Sysctl {
	last := map[string]int{}
	for n, s := range all {
		last[s.Name] = n
	}
	var kept []config.Sysctl
	for n, s := range all {
		if last[s.Name] == n {
			kept = append(kept, s)
		}
	}
	return kept
}

func (p *Plan) links(run config.Run, facts Facts) error {
	ifs := run.Interfaces
	if len(ifs) == 0 {
		ifs = []config.Interface{{Type: config.TypeUser}}
	}
	if len(ifs) > MaxLinks {
		return fmt.Errorf("%d interfaces; at most %d are possible", len(ifs), MaxLinks)
	}
	users := 0
	owner := map[netip.Addr]string{} // those that the gateway chooses among them
	for n, i := range ifs {
		l := Link{
			Name: fmt.Sprintf("eth%d", n), Type: i.Type, Device: i.Device, FD: i.FD,
			MAC: i.MAC, MTU: i.MTU, GW4: i.GW, GW6: i.GW6,
			Addrs: append(append([]netip.Prefix(nil), i.IP...), i.IP6...),
			Table: firstTable + n, Endpoint: p.Stack.MPTCP,
		}
		switch i.Type {
		case config.TypeUser:
			if err := l.user(users, i, facts.IPv6); err != nil {
				return err
			}
			p.noteUser(&l, facts)
			users++
		case config.TypeTap:
			l.Create = !facts.Taps[i.Device].Exists
			if tap := facts.Taps[i.Device]; tap.Exists && !tap.Up {
				p.note("tap %s is down on the host, so %s will carry nothing: `ip link set %s up`", i.Device, l.Name, i.Device)
			}
		}
		for _, a := range l.Addrs {
			if first := owner[a.Addr()]; first != "" {
				return fmt.Errorf("--if %q: address %s is that of %s already", i.String(), a.Addr(), first)
			}
			owner[a.Addr()] = l.Name
		}
		if l.MTU == 0 {
			l.MTU = defaultMTU
		}
		if l.MAC.IsZero() && i.Type != config.TypeUser {
			l.MAC = stableMAC(facts.Machine, &i)
		}
		if len(l.Addrs) == 0 {
			p.note("%s has no address; give it one with --if %s,ip=ADDRESS/PREFIX", l.Name, i.Target())
		}
		p.Links = append(p.Links, l)
	}
	return nil
}

// stableMAC gives an interface the same Ethernet address in each run: neighbours
// remember for a while who had its IP address. Two machines' are different.
func stableMAC(machine string, i *config.Interface) config.MAC {
	what := machine + " " + i.Target()
	for _, p := range slices.Concat(i.IP, i.IP6) {
		what += " " + p.Addr().String()
	}
	sum := sha256.Sum256([]byte(what))
	mac := config.MAC(sum[:6])
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered (IEEE 802, 8.2)
	return mac
}

// user fills in what the user-mode gateway knows of itself.
func (l *Link) user(n int, i config.Interface, ipv6 bool) error {
	c := gateway.Default(n)
	if len(i.IP) > 0 {
		var err error
		if c, err = gateway.Around(i.IP[0], i.GW); err != nil {
			return fmt.Errorf("--if %q: %w", i.String(), err)
		}
	}
	if i.MTU != 0 {
		c.MTU = i.MTU
	}
	l.Gateway = &c
	l.Addrs, l.GW4, l.MTU = []netip.Prefix{c.Address}, c.Gateway, c.MTU
	if ipv6 && c.MTU >= config.MinMTU6 {
		c = c.WithIPv6(n)
		l.Addrs, l.GW6 = append(l.Addrs, c.Address6), c.Gateway6
	}
	return nil
}

func (p *Plan) noteUser(l *Link, facts Facts) {
	p.note("%s is the user-mode gateway: TCP ends here, the host's kernel carries it on (MPTCP and congestion control of the stack do not reach the wire)", l.Name)
	for _, a := range facts.Addrs {
		if a.Addr().Is4() && a.Bits() > 0 && a.Masked().Overlaps(l.Gateway.Address.Masked()) {
			p.note("%s has the network %s, which is also one of the host's: its machines are out of reach; choose another with --if user,ip=ADDRESS/PREFIX", l.Name, l.Gateway.Address.Masked())
			return
		}
	}
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// dir is the run directory as far as it is known.
func (p *Plan) dir() string {
	if p.Name == "" {
		return filepath.Join(p.RunRoot, p.BaseName)
	}
	return filepath.Join(p.RunRoot, p.Name)
}

// steps lays down the order. Whatever is made on the host comes before the
// stack boots, so that each interface is there from the first moment.
func (p *Plan) steps() {
	add := func(kind Kind, link int, do, undo string) {
		p.Steps = append(p.Steps, Step{Kind: kind, Link: link, Do: do, Undo: undo})
	}
	orNext := ""
	if p.Name == "" {
		orNext = " (or the next free number behind it)"
	}
	add(RunDir, 0, "make the run directory "+p.dir()+orNext, "remove it")
	add(Host, 0, "start lklhost, with the command waiting in an empty network namespace", "end both")
	for n, l := range p.Links {
		switch l.Type {
		case config.TypeUser:
			add(Gateway, n, fmt.Sprintf("start the user-mode gateway %s as %s", l.GW4, l.Name), "ends with lklrun")
		case config.TypeTap:
			if l.Create {
				add(Tap, n, fmt.Sprintf("create tap %s, mtu %d, up, as %s", l.Device, l.MTU, l.Name), "delete it")
			} else {
				add(Tap, n, fmt.Sprintf("attach to tap %s as %s", l.Device, l.Name), "detach")
			}
		case config.TypeFD:
			add(FD, n, fmt.Sprintf("take descriptor %d as %s", l.FD, l.Name), "")
		}
	}
	if p.Stack.ABI == stack.ABIHost {
		add(Boot, 0, "use the host's own kernel as the stack", "")
	} else {
		mem := "the library's default"
		if p.Stack.Mem != 0 {
			mem = config.FormatMem(p.Stack.Mem)
		}
		add(Boot, 0, fmt.Sprintf("boot %s with %s of memory", p.Stack.Library, mem), "halt it")
		add(Configure, 0, "configure "+p.configures(), "")
	}
	add(Release, 0, "release "+cli.Quote(p.Command), "")
}

// configures lists what the configuration in the stack consists of.
func (p *Plan) configures() string {
	parts := []string{"links, addresses and routes"}
	if p.Stack.MPTCP {
		parts = append(parts, "MPTCP endpoints")
	}
	if n := len(p.Sysctls); n > 0 {
		parts = append(parts, fmt.Sprintf("%d sysctls", n))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
