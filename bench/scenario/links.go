// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	"github.com/lklrun/lklrun/bench/lab"
)

// links are paths that the host's kernel and a stack share, so that the same shapers
// and the same cuts apply to both. For path i:
//
//	namespace NAME-client                             namespace NAME-server
//	brI 10.71.(1+i).2 ─┬─ vI ────────── veth ──────── sI 10.71.(1+i).1
//	  tapI ────────────┘
//	  the stack, 10.71.(1+i).3
//
// The server announces its other addresses through MPTCP.
type links struct {
	client, server string
	paths          int
	lab            *lab.Lab
}

const linksPort = "5009"

// makeLinks makes links with the given rate in both directions (0: no limit), and a
// server for MPTCP and TCP.
func makeLinks(ctx context.Context, l *lab.Lab, name string, paths, mbit int) (*links, error) {
	k := &links{client: name + "-client", server: name + "-server", paths: paths, lab: l}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, ns := range []string{k.client, k.server} {
		add("ip netns add %s", ns)
		add("ip -n %s link set lo up", ns)
		add("ip netns exec %s sysctl -qw net.mptcp.enabled=1", ns)
		add("ip netns exec %s %s", ns, plainBridges)
		l.Cleanup(func() { _ = l.Run(context.Background(), "ip netns del "+ns) }) // removes the devices, too
	}
	for i := range paths {
		add("ip -n %s link add v%d type veth peer name s%d netns %s", k.client, i, i, k.server)
		add("ip -n %s link add br%d type bridge", k.client, i)
		add("ip -n %s tuntap add tap%d mode tap", k.client, i)
		add("ip -n %s link set v%d master br%d up", k.client, i, i)
		add("ip -n %s link set tap%d master br%d up", k.client, i, i)
		add("ip -n %s addr add 10.71.%d.2/24 dev br%d", k.client, 1+i, i)
		add("ip -n %s link set br%d up", k.client, i)
		add("ip -n %s addr add 10.71.%d.1/24 dev s%d", k.server, 1+i, i)
		add("ip -n %s link set s%d up", k.server, i)
		if mbit > 0 {
			add("ip netns exec %s tc qdisc add dev v%d root tbf rate %dmbit burst 256kb latency 50ms", k.client, i, mbit)
			add("ip netns exec %s tc qdisc add dev s%d root tbf rate %dmbit burst 256kb latency 50ms", k.server, i, mbit)
		}
		if i > 0 {
			add("ip -n %s mptcp endpoint add 10.71.%d.1 dev s%d signal", k.server, 1+i, i)
		}
	}
	add("ip -n %s mptcp limits set subflow %d add_addr_accepted 0", k.server, paths)
	add("ip -n %s mptcp limits set subflow %d add_addr_accepted %d", k.client, paths, paths)
	if err := l.Run(ctx, lines...); err != nil {
		return nil, err
	}
	if _, err := l.Start(ctx, l.In(k.server, lab.Unpinned, true, l.Bench(), "--mptcp", "1", "serve", "::", linksPort)...); err != nil {
		return nil, err
	}
	return k, l.WaitListen(ctx, k.server, linksPort)
}

// mptcpBuffers contains the buffer sizes of the stack named mptcp. They are options for a
// library, because a library has no manifest.
var mptcpBuffers = []string{"--sysctl", "net.ipv4.tcp_rmem=4096 131072 33554432", "--sysctl", "net.ipv4.tcp_wmem=4096 262144 8388608"}

// command returns a command line of lklbench that uses MPTCP over the first paths, or
// TCP for the variant host.
func (k *links) command(v lab.Variant, paths int, options []string, verb ...string) []string {
	argv := []string{k.lab.Bench(), "--cc", "cubic"}
	if v != lab.Host {
		argv = append(argv, "--mptcp", "1")
	}
	return k.program(v, paths, append(append(argv, options...), verb...), nil)
}

// program returns the command line that runs any program on a variant; flags are flags
// of lklrun, by default those for the stack mptcp. If the variant is a library, the program must be lklbench.
func (k *links) program(v lab.Variant, paths int, argv, flags []string) []string {
	var line []string
	if flags == nil {
		flags = []string{"--stack", "mptcp"}
	}
	switch v {
	case lab.Library:
		line = []string{argv[0], "--lib", k.lab.Bin("stacks/mptcp/liblkl.so")}
		for i := range paths {
			line = append(line, "--tap", fmt.Sprintf("tap%d", i), "--ip", fmt.Sprintf("10.71.%d.3/24", 1+i))
		}
		line = append(append(line, mptcpBuffers...), argv[1:]...)
	case lab.Supervise, lab.Preload:
		line = append([]string{k.lab.Bin("lklrun"), "--engine", v}, flags...)
		for i := range paths {
			line = append(line, "--if", fmt.Sprintf("tap:tap%d,ip=10.71.%d.3/24", i, 1+i))
		}
		line = append(append(line, "--"), argv...)
	default:
		line = argv
	}
	return k.lab.In(k.client, lab.Unpinned, false, line...)
}
