// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
)

// A Wire is two namespaces, and paths between the server's namespace and the measured
// side. For path i:
//
//	namespace NAME-server                      namespace NAME-client
//	10.79.(1+i).1 tapI ─ 10.79.(1+i).2 the stack
//	10.80.(1+i).1 sI ──────── veth ─────────── cI 10.80.(1+i).2 the host's kernel
//
// and the same with fd79:(1+i):: and fd80:(1+i)::.
type Wire struct {
	Server, Client string // the names of the namespaces
	Options        WireOptions
	lab            *Lab
	served         map[string]bool
}

// WireOptions describes the properties of a wire.
type WireOptions struct {
	Name     string
	Paths    int                       // 0: one
	Offloads string                    // "off", or a mask of virtio features for the stack's side; "": all
	Shape    func(dev string) []string // further set-up lines for a device of the server: "tc -n … qdisc add …"
	MTU      int                       // 0: the device's default
	MPTCP    bool                      // the servers accept MPTCP and TCP
}

// Wire makes a wire. The end of the scenario removes it.
func (l *Lab) Wire(ctx context.Context, o WireOptions) (*Wire, error) {
	o.Paths = max(o.Paths, 1)
	w := &Wire{Server: o.Name + "-server", Client: o.Name + "-client", Options: o, lab: l, served: map[string]bool{}}
	lines := []string{}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, ns := range []string{w.Server, w.Client} {
		add("ip netns add %s", ns)
		add("ip -n %s link set lo up", ns)
		add("ip netns exec %s sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 net.mptcp.enabled=1", ns)
		l.Cleanup(func() { _ = l.Run(context.Background(), "ip netns del "+ns) }) // removes the devices, too
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

// Port returns the port of the server for a placement.
func (w *Wire) Port(p Placement) string {
	return map[Placement]string{Unpinned: "5001", OneCPU: "5002", TwoCPUs: "5003"}[p]
}

// defaultPort returns the port of the server that uses the host's default
// congestion control.
func (w *Wire) defaultPort(p Placement) string {
	return "1" + w.Port(p)
}

// Serve starts the server for all verbs of lklbench. The first call for each
// placement starts it; further calls do nothing.
func (w *Wire) Serve(ctx context.Context, p Placement) error {
	if w.served[p] {
		return nil
	}
	for port, cc := range map[string]string{w.Port(p): CC, w.defaultPort(p): DefaultCC} {
		argv := []string{w.lab.Bench(), "--cc", cc}
		if w.Options.MPTCP {
			argv = append(argv, "--mptcp", "1")
		}
		argv = append(argv, "serve", "::", port)
		if _, err := w.lab.Start(ctx, w.lab.In(w.Server, p, true, argv...)...); err != nil {
			return err
		}
		if err := w.lab.WaitListen(ctx, w.Server, port); err != nil {
			return err
		}
	}
	w.served[p] = true
	return nil
}
