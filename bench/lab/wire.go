// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// A Variant is who does the networking.
type Variant = string

// The variants: the host's kernel, the library in the measuring process, the two
// engines of lklrun, and the old library that this one takes after.
const (
	Host      Variant = "host"
	HostMPTCP Variant = "host+mptcp"
	Library   Variant = "library"
	Preload   Variant = "preload"
	Supervise Variant = "supervise"
	LKL49     Variant = "lkl-4.9"
)

// A Placement is on which CPUs the two ends run.
type Placement = string

// The placements: where the scheduler will, all on CPU 0, or the measured side
// on CPU 0 and its peer on CPU 1. lklrun and lklhost belong to the measured side.
const (
	Unpinned Placement = "unpinned"
	OneCPU   Placement = "one-cpu"
	TwoCPUs  Placement = "two-cpus"
)

// Placements are all of them.
var Placements = []Placement{Unpinned, OneCPU, TwoCPUs}

// A Wire is two namespaces, and paths between the server's and whoever is
// measured: for path i
//
//	namespace NAME-server                      namespace NAME-client
//	10.79.(1+i).1 tapI ─ 10.79.(1+i).2 the stack
//	10.80.(1+i).1 sI ──────── veth ─────────── cI 10.80.(1+i).2 the host's kernel
//
// and the same with fd79:(1+i):: and fd80:(1+i)::.
type Wire struct {
	Server, Client string // the namespaces
	Options        WireOptions
	lab            *Lab
	served         map[string]bool
}

// WireOptions say what a wire is like.
type WireOptions struct {
	Name     string
	Paths    int                       // 0: one
	Offloads string                    // "off", or a mask of virtio's features for the stack's side; "": all
	Shape    func(dev string) []string // more set-up lines for a device of the server's: "tc -n … qdisc add …"
	MTU      int                       // 0: the device's own
}

// Wire makes one; it ends with the scenario.
func (l *Lab) Wire(ctx context.Context, o WireOptions) (*Wire, error) {
	o.Paths = max(o.Paths, 1)
	w := &Wire{Server: o.Name + "-server", Client: o.Name + "-client", Options: o, lab: l, served: map[string]bool{}}
	lines := []string{}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, ns := range []string{w.Server, w.Client} {
		add("ip netns add %s", ns)
		add("ip -n %s link set lo up", ns)
		add("ip netns exec %s sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 net.mptcp.enabled=1", ns)
		l.Cleanup(func() { _ = l.Run(context.Background(), "ip netns del "+ns) }) // its devices with it
	}
	for i := range o.Paths {
		add("ip -n %s tuntap add tap%d mode tap", w.Server, i)
		add("ip -n %s link add s%d type veth peer name c%d netns %s", w.Server, i, i, w.Client)
		for _, d := range []struct {
			ns, dev   string
			net, host int
		}{
			{w.Server, fmt.Sprintf("tap%d", i), 79, 1},
			{w.Server, fmt.Sprintf("s%d", i), 80, 1},
			{w.Client, fmt.Sprintf("c%d", i), 80, 2},
		} {
			add("ip -n %s addr add 10.%d.%d.%d/24 dev %s", d.ns, d.net, 1+i, d.host, d.dev)
			add("ip -n %s addr add fd%d:%d::%d/64 dev %s nodad", d.ns, d.net, 1+i, d.host, d.dev)
			if o.MTU > 0 {
				add("ip -n %s link set %s mtu %d", d.ns, d.dev, o.MTU)
			}
			if o.Offloads == "off" && d.net == 80 {
				add("ip netns exec %s ethtool -K %s tso off gso off gro off tx off rx off", d.ns, d.dev)
			}
			add("ip -n %s link set %s up", d.ns, d.dev)
			if o.Shape != nil && d.host == 1 {
				lines = append(lines, o.Shape(d.dev)...)
			}
		}
	}
	return w, l.Run(ctx, lines...)
}

// Port is that of the server that sits in a placement.
func (w *Wire) Port(p Placement) string {
	return map[Placement]string{Unpinned: "5001", OneCPU: "5002", TwoCPUs: "5003"}[p]
}

// Serve has the other end of every verb of lklbench listen, once for a placement.
func (w *Wire) Serve(ctx context.Context, p Placement) error {
	if w.served[p] {
		return nil
	}
	w.served[p] = true
	if _, err := w.lab.Start(ctx, w.lab.In(w.Server, p, true, w.lab.Bench(), "serve", "::", w.Port(p))...); err != nil {
		return err
	}
	return w.lab.WaitListen(ctx, w.Server, w.Port(p))
}

// In is a command line in a namespace ("": this one), on the measured side's
// CPUs of a placement or on its peer's.
func (l *Lab) In(netns string, p Placement, peer bool, argv ...string) []string {
	var line []string
	if netns != "" {
		line = append(line, "ip", "netns", "exec", netns)
	}
	switch {
	case p == TwoCPUs && peer:
		line = append(line, "taskset", "-c", "1")
	case p == OneCPU || p == TwoCPUs:
		line = append(line, "taskset", "-c", "0")
	}
	return append(line, argv...)
}

// A Run is a variant on a wire.
type Run struct {
	Variant   Variant
	Placement Placement
	Wire      *Wire    // nil: no device, in no namespace
	Stack     string   // lklrun's; "": vanilla
	Flags     []string // more flags of lklrun
	Library   []string // more flags of lklbench for a library
	Options   []string // more flags of lklbench, whoever does the networking
	Paths     int      // how many of the wire's are used; 0: one
	Prefix    []string // before the measured command
}

// Has says whether a variant can be measured here.
func (l *Lab) Has(v Variant) bool {
	if v != LKL49 {
		return true
	}
	_, err := os.Stat(l.library(v))
	return err == nil
}

// Variants are those of a list that are there.
func (l *Lab) Variants(list ...Variant) []Variant {
	var have []Variant
	for _, v := range list {
		if l.Has(v) {
			have = append(have, v)
		}
	}
	return have
}

func (l *Lab) library(v Variant) string {
	stack := "vanilla"
	if v == LKL49 {
		stack = LKL49
	}
	return filepath.Join(l.Root, "bin", "stacks", stack, "liblkl.so")
}

// onHost says whether it is the host's kernel that does it.
func (r Run) onHost() bool { return r.Variant == Host || r.Variant == HostMPTCP }

// Address is the server's on path 0, as the variant sees it.
func (w *Wire) Address(r Run) string {
	if r.onHost() {
		return "10.80.1.1"
	}
	return "10.79.1.1"
}

// Address6 is the server's IPv6 address there.
func (w *Wire) Address6(r Run) string {
	if r.onHost() {
		return "fd80:1::1"
	}
	return "fd79:1::1"
}

// netns is where the command starts.
func (r Run) netns() string {
	switch {
	case r.Wire == nil:
		return ""
	case r.onHost():
		return r.Wire.Client
	}
	return r.Wire.Server
}

// Program is the command line of any program on a variant; a library has none.
func (l *Lab) Program(r Run, argv ...string) []string {
	line := append([]string(nil), r.Prefix...)
	switch r.Variant {
	case HostMPTCP:
		line = append(line, "mptcpize", "run")
	case Supervise, Preload:
		line = append(line, l.Bin("lklrun"), "--engine", r.Variant, "--stack", orVanilla(r.Stack))
		line = append(line, r.Flags...)
		for i := range r.paths() {
			line = append(line, "--if", r.Wire.ifSpec(i))
		}
		line = append(line, "--")
	}
	return l.In(r.netns(), r.Placement, false, append(line, argv...)...)
}

func orVanilla(stack string) string {
	if stack == "" {
		return "vanilla"
	}
	return stack
}

func (r Run) paths() int {
	if r.Wire == nil {
		return 0
	}
	return max(r.Paths, 1)
}

// ifSpec is lklrun's --if for a path.
func (w *Wire) ifSpec(i int) string {
	s := fmt.Sprintf("tap:tap%d,ip=10.79.%d.2/24,ip6=fd79:%d::2/64", i, 1+i, 1+i)
	if w.Options.Offloads != "" {
		s += ",offload=" + w.Options.Offloads
	}
	if w.Options.MTU > 0 {
		s += ",mtu=" + strconv.Itoa(w.Options.MTU)
	}
	return s
}

// Command is the command line of lklbench with a verb that needs no server.
func (l *Lab) Command(r Run, verb ...string) []string {
	if r.Variant != Library && r.Variant != LKL49 {
		r2 := r
		if r.Variant == HostMPTCP { // lklbench asks for MPTCP itself
			r2.Variant, r2.Options = Host, append([]string{"--mptcp", "1"}, r.Options...)
			if r.Wire != nil {
				r2.Wire = r.Wire
			}
		}
		return l.Program(r2, append(append([]string{l.Bench()}, r2.Options...), verb...)...)
	}
	line := append(append([]string(nil), r.Prefix...), l.Bench(), "--lib", l.library(r.Variant))
	for i := range r.paths() {
		line = append(line, "--tap", fmt.Sprintf("tap%d", i), "--ip", fmt.Sprintf("10.79.%d.2/24", 1+i))
		if r.Variant == Library {
			line = append(line, "--ip6", fmt.Sprintf("fd79:%d::2/64", 1+i))
		}
	}
	if r.Wire != nil && r.Wire.Options.Offloads != "" {
		mask := r.Wire.Options.Offloads
		if mask == "off" {
			mask = "0"
		}
		line = append(line, "--offload", mask)
	}
	line = append(append(append(line, r.Library...), r.Options...), verb...)
	return l.In(r.netns(), r.Placement, false, line...)
}

// Lklbench is the command line of lklbench with a verb of a client: the server's
// address and port come after the verb.
func (l *Lab) Lklbench(r Run, verb string, args ...string) []string {
	return l.Command(r, append([]string{verb, r.Wire.Address(r), r.Wire.Port(r.Placement)}, args...)...)
}
