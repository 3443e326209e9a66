// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

// A farPath is a long, narrow or lossy path to a server. It leads through a middlebox: one of
// our stacks, which bridges two taps. netem in this stack delays, drops and paces packets to
// the server. It does not change the other direction.
//
//	namespace far-client          namespace far-near
//	c0 10.72.1.2 ──── veth ────── s0 ─┬─ near (bridge) ─ tapa ═ the middlebox ═ tapb 10.72.1.1
//	                        tap0 ─────┘                  (its eth0)  (its eth1)
//	  the stack, 10.72.1.3 ─┘
//
// The middlebox's taps have no offloads, and the middlebox merges no packets, so that netem
// sees packets as on a wire. On the near side the server's namespace does not answer ARP
// requests for its address (arp_ignore).
type farPath struct {
	near, client string
	lab          *lab.Lab
	course       string // the program
}

// A shape describes the path to the server.
type shape struct {
	Mbit  int // 0: no limit
	Delay time.Duration
	Loss  float64 // percent
}

const (
	farServer = "10.72.1.1"
	farPort   = "5008"
	farMbox   = "bench-middlebox"
	// farQueue is the queue length in packets. It has room for the packets in
	// flight, which are 8,300 at 1 Gbit/s and 100 ms, and for five times as many
	// that wait for the link.
	farQueue = 50000
	// payload is the share of user data in an Ethernet frame of 1,514 bytes with
	// TCP timestamps. netem counts whole frames.
	payload = 1448.0 / 1514
)

// farBuffers contains the buffer sizes of the sender.
var farBuffers = []string{"net.ipv4.tcp_wmem=4096 262144 100000000"}

// farWindow lets the server's window grow as fast as data arrives. If the window grows
// only by the data of one round trip at a time, BBR can mistake it for the limit of
// the path and end its start-up too early.
const farWindow = "net.ipv4.tcp_rmem=4096 50000000 100000000"

// makeFarPath makes a farPath with a server on the host's kernel.
func makeFarPath(ctx context.Context, l *lab.Lab) (*farPath, error) {
	course, err := l.Native(ctx, "course", "-ldl")
	if err != nil {
		return nil, err
	}
	f := &farPath{near: "far-near", client: "far-client", lab: l, course: course}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, ns := range []string{f.near, f.client} {
		add("ip netns add %s", ns)
		add("ip -n %s link set lo up", ns)
		add("ip netns exec %s sysctl -qw net.ipv4.tcp_no_metrics_save=1 net.ipv4.conf.all.arp_ignore=1 net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1", ns)
		l.Cleanup(func() { _ = l.Run(context.Background(), "ip netns del "+ns) }) // removes the devices, too
	}
	add("ip -n %s link add near type bridge", f.near)
	add("ip -n %s link add s0 type veth peer name c0 netns %s", f.near, f.client)
	for _, tap := range []string{"tapa", "tapb", "tap0"} {
		add("ip -n %s tuntap add %s mode tap", f.near, tap)
		add("ip -n %s link set %s txqueuelen 20000", f.near, tap) // no packet is lost if the reader of the tap pauses for a millisecond
	}
	for _, dev := range []string{"s0", "tapa", "tap0"} {
		add("ip -n %s link set %s master near", f.near, dev)
	}
	for _, dev := range []string{"near", "s0", "tapa", "tapb", "tap0"} {
		add("ip -n %s link set %s up", f.near, dev)
	}
	add("ip -n %s link set c0 up", f.client)
	add("ip -n %s addr add %s/24 dev tapb", f.near, farServer)
	add("ip -n %s addr add 10.72.1.2/24 dev c0", f.client)
	if err := l.Run(ctx, lines...); err != nil {
		return nil, err
	}
	for ns, settings := range map[string][]string{f.near: {farWindow}, f.client: farBuffers} {
		if _, err := l.Output(ctx, append([]string{"ip", "netns", "exec", ns, "sysctl", "-qw"}, settings...)...); err != nil {
			return nil, err
		}
	}
	if _, err := l.Start(ctx, l.In(f.near, lab.Unpinned, true, f.course, "serve", "0.0.0.0", farPort)...); err != nil {
		return nil, err
	}
	if err := l.WaitListen(ctx, f.near, farPort); err != nil {
		return nil, err
	}
	return f, f.startMiddlebox(ctx)
}

// startMiddlebox starts the middlebox between the two taps.
func (f *farPath) startMiddlebox(ctx context.Context) error {
	return startBridges(ctx, f.lab, f.near, farMbox, "tapa", "tapb")
}

// plainBridges keeps bridges of a namespace from passing their packets to netfilter, as the
// module br_netfilter makes them do. Without that module there are no such settings.
const plainBridges = "sysctl -eqw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 net.bridge.bridge-nf-call-arptables=0"

// startBridges starts a stack with this name in a namespace. It bridges each two taps: the
// first with the second, the third with the fourth. It has no offloads and merges no packets.
func startBridges(ctx context.Context, l *lab.Lab, netns, name string, taps ...string) error {
	argv := []string{l.Bin("lklrun"), "--name", name, "--engine", "supervise", "--stack", "vanilla", "--mem", "1G", "--spin", "0"}
	lines := []string{plainBridges}
	for i, tap := range taps {
		argv = append(argv, "--if", "tap:"+tap+",offload=off")
		lines = append(lines, fmt.Sprintf("ethtool -K eth%d gro off", i))
		if i%2 == 0 {
			lines = append(lines, fmt.Sprintf("ip link add br%d type bridge", i/2), fmt.Sprintf("ip link set br%d up", i/2))
		}
		lines = append(lines, fmt.Sprintf("ip link set eth%d master br%d", i, i/2))
	}
	box, err := l.Start(ctx, l.In(netns, lab.Unpinned, false, append(argv, "--", "sleep", "infinity")...)...)
	if err != nil {
		return err
	}
	err = l.Until(ctx, "the middlebox", func() (bool, error) {
		select {
		case <-box.Done():
			return false, fmt.Errorf("it has ended: %s", strings.Join(box.Lines(), "; "))
		default:
		}
		_, err := l.Output(ctx, onStack(l, name, "true")...)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := l.Output(ctx, onStack(l, name, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	return nil
}

// onStack returns the command line that runs a program on a running stack.
func onStack(l *lab.Lab, name string, argv ...string) []string {
	return append([]string{l.Bin("lklctl"), "-n", name, "exec", "--"}, argv...)
}

// form sets the shape of the path.
func (f *farPath) form(ctx context.Context, s shape) error {
	argv := []string{"tc", "qdisc", "replace", "dev", "eth1", "root"}
	if s == (shape{}) {
		argv = append(argv, "pfifo", "limit", "20000")
	} else {
		argv = append(argv, "netem", "limit", strconv.Itoa(farQueue))
	}
	if s.Delay > 0 {
		argv = append(argv, "delay", s.Delay.String())
	}
	if s.Loss > 0 {
		argv = append(argv, "loss", fmt.Sprintf("%g%%", s.Loss))
	}
	if s.Mbit > 0 {
		// netem sends in batches, like a network card with interrupt coalescing: a
		// timer for each packet would use most of a CPU.
		argv = append(argv, "rate", fmt.Sprintf("%dmbit", s.Mbit), "slot", "200us")
	}
	_, err := f.lab.Output(ctx, onStack(f.lab, farMbox, argv...)...)
	return err
}

// A farRun is a sender with its settings.
type farRun struct {
	variant lab.Variant
	cc      string
	stack   string   // name of the stack whose library is used; "": bbr
	qdisc   string   // queueing discipline; "": fq
	boot    string   // addition to the kernel's command line: mem= and highres==
	mem     string   // memory of the stack; "": 512M
	sysctls []string // additional settings of the stack
	seconds int
}

// liblkl returns the path of the stack's library.
func (f *farPath) liblkl(r farRun) string {
	if r.stack == "" {
		r.stack = "bbr"
	}
	return f.lab.Bin("stacks/" + r.stack + "/liblkl.so")
}

// command returns the command line of the sender.
func (f *farPath) command(r farRun) []string {
	qdisc, mem := r.qdisc, r.mem
	if qdisc == "" {
		qdisc = "fq"
	}
	if mem == "" {
		mem = "512M"
	}
	verb := []string{"--cc", r.cc, "send", farServer, farPort, strconv.Itoa(r.seconds)}
	settings := append([]string{"net.core.default_qdisc=" + qdisc}, append(farBuffers, r.sysctls...)...)
	switch r.variant {
	case lab.Library:
		line := []string{f.course, "--lib", f.liblkl(r), "--tap", "tap0", "--ip", "10.72.1.3/24", "--cmdline", "mem=" + mem + " " + r.boot}
		for _, s := range settings {
			line = append(line, "--sysctl", s)
		}
		return f.lab.In(f.near, lab.Unpinned, false, append(line, verb...)...)
	case lab.Supervise, lab.Preload:
		line := []string{f.lab.Bin("lklrun"), "--engine", r.variant, "--stack", "bbr", "--mem", mem, "--if", "tap:tap0,ip=10.72.1.3/24"}
		if r.boot != "" {
			line = append(line, "--cmdline", r.boot)
		}
		for _, s := range settings {
			line = append(line, "--sysctl", s)
		}
		return f.lab.In(f.near, lab.Unpinned, false, append(append(append(line, "--"), f.course), verb...)...)
	}
	return f.lab.In(f.client, lab.Unpinned, false, append([]string{f.course}, verb...)...)
}

// A window is an interval of a transfer, in seconds since its start.
type window struct {
	unit     string
	from, to int
}

// send runs a transfer. It returns the mean throughput of each window, and the CPU
// time of the transfer.
func (f *farPath) send(ctx context.Context, r farRun, windows ...window) (table.Sample, error) {
	argv := f.command(r)
	began := lab.Now()
	out, err := f.lab.Output(ctx, argv...)
	if err != nil {
		return nil, err
	}
	f.lab.Window(began, lab.Now())
	sample, err := means(out, r.seconds, windows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return sample, nil
}

// means parses the output of the program course, which is Gbit/s of each tenth of a
// second and the CPU time.
func means(out string, seconds int, windows []window) (table.Sample, error) {
	rates, rest, ok := strings.Cut(out, "Gbit/s\n")
	ticks := strings.Fields(rates)
	if !ok || len(ticks) != 10*seconds {
		return nil, fmt.Errorf("%q: expected %d values and Gbit/s", out, 10*seconds)
	}
	sample := table.Sample{}
	if strings.TrimSpace(rest) != "" {
		var err error
		if sample, err = lab.ParseSample(rest); err != nil {
			return nil, err
		}
	}
	for _, w := range windows {
		sum := 0.0
		for _, word := range ticks[10*w.from : 10*w.to] {
			v, err := strconv.ParseFloat(word, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", out, err)
			}
			sum += v
		}
		sample[w.unit] = sum / float64(10*(w.to-w.from))
	}
	return sample, nil
}
