// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

// The impairments of each wire, in each direction. The limit is the default length of
// netem's queue in packets, which is also that of a wire.
const (
	impairedMbit  = 100
	impairedDelay = 20 * time.Millisecond
	impairedLimit = "1000"
	impairedBox   = "bench-impaired"
	impairedBoxNS = "impaired-box"
	impairedOmit  = 2 // seconds before the measurement
)

// byTaps are two stacks on the path of the host's kernel.
const byTaps lab.Variant = "taps"

func init() {
	var targets []table.Target
	for _, r := range impairedRows {
		of, base := impairedKey(r, lab.Supervise), impairedKey(r, byTaps)
		what := fmt.Sprintf("wire: %s, paths: %d, loss %s", r.cc, r.paths, r.loss)
		targets = append(targets,
			table.Target{Criterion: "8", What: what, Unit: "Mbit/s", Of: of, Base: base, AtLeast: 0.95},
			table.Target{Criterion: "8", What: what, Unit: "Mbit/s", Of: of, Base: base, AtMost: 1.05})
	}
	register(Scenario{
		Order: 205, Name: "impaired", Title: "Wires with delay, rate and loss",
		About: "iperf3 between two nodes of `lklrun lab`, whose wires have 100 Mbit/s, 20 ms and 0 or 1 % loss in " +
			"each direction. The reference is iperf3 between two namespaces of the host's kernel, with the same netem " +
			"between them. The host's kernel here has no netem, so a stack that bridges taps applies it. `taps` are " +
			"two stacks at these taps instead of the host's kernel: the same kernel as at the wires. One path is TCP " +
			"and the stack vanilla; two paths are MPTCP and the stack mptcp, with its buffers, endpoints and limits " +
			"at both. The receiver counts the bytes; the first 2 s do not count. CUBIC with loss is the mean of eight " +
			"connections at a time, because one varies much. Run it on a quiet machine: BBR is slow if its timers are late.",
		Budget: Budget{Full: 24 * time.Minute},
		Build:  buildImpaired, Targets: targets,
	})
}

// An impairedRow is a row of the table.
type impairedRow struct {
	cc    string
	paths int
	loss  string
}

var impairedRows = []impairedRow{
	{"cubic", 1, "0%"}, {"cubic", 1, "1%"}, {"bbr", 1, "1%"},
	{"cubic", 2, "0%"}, {"cubic", 2, "1%"}, {"bbr", 2, "1%"},
}

// host returns the variant of the reference.
func (r impairedRow) host() lab.Variant {
	if r.paths > 1 {
		return lab.HostMPTCP
	}
	return lab.Host
}

// stack returns the stack of the row.
func (r impairedRow) stack() string {
	if r.paths > 1 {
		return "mptcp"
	}
	return "vanilla"
}

// seconds returns the duration of a transfer.
func (r impairedRow) seconds() int {
	if r.loss == "0%" {
		return 10
	}
	return 30
}

// connections returns the number of connections of a transfer. With loss, CUBIC loses only two
// or three packets in a second, so one connection varies much. Several of them leave most of
// the rate unused, so they do not impair each other.
func (r impairedRow) connections() int {
	if r.cc == "cubic" && r.loss != "0%" {
		return 8
	}
	return 1
}

func impairedKey(r impairedRow, v lab.Variant) table.Key {
	return table.Key{
		Scenario: "impaired", What: "goodput", Placement: lab.Unpinned, Variant: v,
		Params: table.Params{"cc": r.cc, "paths": strconv.Itoa(r.paths), "loss": r.loss},
	}
}

// An impairedPair is two namespaces of the host's kernel with two paths between them. They
// have the addresses of the nodes of a lab. For path i:
//
//	namespace impaired-1          namespace impaired-box               namespace impaired-2
//	10.0.(1+i).1 eth(i) ─ veth ─ bridge ─ tap ═ the stack ═ tap ─ bridge ─ veth ─ eth(i) 10.0.(1+i).2
//
// The stacks of byTaps are at a tap of each bridge: 10.0.(1+i).11 and 10.0.(1+i).12.
type impairedPair struct {
	lab  *lab.Lab
	loss string // the current one
}

func buildImpaired(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	p := &impairedPair{lab: l}
	if err := p.make(ctx); err != nil {
		return nil, err
	}
	var ms []Measure
	for _, r := range impairedRows {
		for _, v := range []lab.Variant{r.host(), byTaps, lab.Supervise} {
			m := Measure{Key: impairedKey(r, v), Rounds: 3, Take: func(ctx context.Context) (table.Sample, error) { return p.take(ctx, r, v) }}
			if r.loss == "0%" {
				m.Rounds = 1
			}
			ms = append(ms, m)
		}
	}
	return ms, nil
}

// make makes the namespaces, the paths and the server.
func (p *impairedPair) make(ctx context.Context) error {
	const box = impairedBoxNS
	var lines, taps []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, ns := range []string{"impaired-1", "impaired-2", box} {
		add("ip netns add %s", ns)
		add("ip -n %s link set lo up", ns)
		add("ip netns exec %s sysctl -qw net.ipv4.tcp_no_metrics_save=1 net.mptcp.enabled=1 net.mptcp.stale_loss_cnt=1 net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1", ns)
		p.lab.Cleanup(func() { _ = p.lab.Run(context.Background(), "ip netns del "+ns) }) // removes the devices, too
	}
	for i := range 2 {
		for k, flag := range []string{"subflow", "signal"} {
			end, ns := fmt.Sprintf("%d%d", k, i), fmt.Sprintf("impaired-%d", k+1)
			add("ip -n %s tuntap add tap%s mode tap", box, end)
			add("ip -n %s tuntap add end%s mode tap", box, end)
			add("ip -n %s link add v%s type veth peer name eth%d netns %s", box, end, i, ns)
			add("ip -n %s link add br%s type bridge", box, end)
			add("ip -n %s link set tap%s master br%s txqueuelen 20000 up", box, end, end)
			add("ip -n %s link set end%s master br%s txqueuelen 20000 up", box, end, end)
			add("ip -n %s link set v%s master br%s up", box, end, end)
			add("ip -n %s link set br%s up", box, end)
			addr := fmt.Sprintf("10.0.%d.%d", 1+i, 1+k)
			add("ip -n %s addr add %s/24 dev eth%d", ns, addr, i)
			add("ip -n %s link set eth%d up", ns, i)
			add("ip -n %s route add 10.0.%d.0/24 dev eth%d table 10%d", ns, 1+i, i, i)
			add("ip -n %s rule add from %s lookup 10%d", ns, addr, i)
			add("ip -n %s mptcp endpoint add %s dev eth%d %s", ns, addr, i, flag)
			add("ip -n %s mptcp limits set subflow 8 add_addr_accepted 8", ns)
			taps = append(taps, "tap"+end)
		}
	}
	if err := p.lab.Run(ctx, lines...); err != nil {
		return err
	}
	for _, ns := range []string{"impaired-1", "impaired-2"} {
		for i := 1; i < len(mptcpBuffers); i += 2 {
			if _, err := p.lab.Output(ctx, "ip", "netns", "exec", ns, "sysctl", "-qw", mptcpBuffers[i]); err != nil {
				return err
			}
		}
	}
	if err := startBridges(ctx, p.lab, box, impairedBox, taps...); err != nil {
		return err
	}
	if _, err := p.lab.Start(ctx, p.lab.In("impaired-2", lab.Unpinned, true, "mptcpize", "run", "iperf3", "-s")...); err != nil {
		return err
	}
	return p.lab.WaitListen(ctx, "impaired-2", "5201")
}

// form sets the loss of all paths.
func (p *impairedPair) form(ctx context.Context, loss string) error {
	for i := range 4 {
		line := fmt.Sprintf("tc qdisc replace dev eth%d root netem limit %s delay %v rate %dmbit loss %s", i, impairedLimit, impairedDelay, impairedMbit, loss)
		if _, err := p.lab.Output(ctx, onStack(p.lab, impairedBox, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	p.loss = loss
	return nil
}

// take measures one transfer.
func (p *impairedPair) take(ctx context.Context, r impairedRow, v lab.Variant) (table.Sample, error) {
	if v != lab.Supervise && p.loss != r.loss {
		if err := p.form(ctx, r.loss); err != nil {
			return nil, err
		}
	}
	if v == byTaps {
		server, err := p.serve(ctx, r)
		if err != nil {
			return nil, err
		}
		defer server.Stop()
	}
	out, err := p.lab.Output(ctx, p.command(r, v)...)
	if err != nil {
		return nil, err
	}
	sample, err := iperfSample(out)
	if err == nil {
		sample["Mbit/s"] /= float64(r.connections())
	}
	return sample, err
}

// serve starts the server of byTaps.
func (p *impairedPair) serve(ctx context.Context, r impairedRow) (*lab.Proc, error) {
	const name = "bench-impaired-server"
	server, err := p.lab.Start(ctx, p.atTaps(r, 1, name, "iperf3", "-s")...)
	if err != nil {
		return nil, err
	}
	return server, p.lab.Until(ctx, "the server at the taps", func() (bool, error) {
		out, err := p.lab.Output(ctx, p.lab.Bin("lklctl"), "-n", name, "netstat", "-l")
		return strings.Contains(out, "5201"), err
	})
}

// atTaps returns the command line of a program on a stack at the taps of one side.
func (p *impairedPair) atTaps(r impairedRow, side int, name string, argv ...string) []string {
	line := []string{p.lab.Bin("lklrun"), "-q", "--name", name, "--stack", r.stack()}
	for i := range r.paths {
		line = append(line, "--if", fmt.Sprintf("tap:end%d%d,ip=10.0.%d.1%d/24,signal=%s", side, i, 1+i, 1+side, []string{"off", "on"}[side]))
	}
	return p.lab.In(impairedBoxNS, lab.Unpinned, side == 1, append(append(line, "--"), argv...)...)
}

// command returns the command line of a transfer.
func (p *impairedPair) command(r impairedRow, v lab.Variant) []string {
	iperf := []string{
		"iperf3", "-c", map[bool]string{true: "10.0.1.12", false: "10.0.1.2"}[v == byTaps], "-C", r.cc, "-O", strconv.Itoa(impairedOmit), "-t", strconv.Itoa(r.seconds()),
		"-P", strconv.Itoa(r.connections()), "--json",
	}
	switch v {
	case lab.Supervise:
		line := []string{
			p.lab.Bin("lklrun"), "lab", "--paths", strconv.Itoa(r.paths), "--stack", r.stack(), "--delay", impairedDelay.String(),
			"--rate", strconv.Itoa(impairedMbit) + "mbit", "--loss", r.loss, "--",
		}
		return append(line, iperf...)
	case byTaps:
		return p.atTaps(r, 0, "bench-impaired-client", iperf...)
	case lab.HostMPTCP:
		iperf = append([]string{"mptcpize", "run"}, iperf...)
	}
	return p.lab.In("impaired-1", lab.Unpinned, false, iperf...)
}

// iperfSample parses the output of iperf3.
func iperfSample(out string) (table.Sample, error) {
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	switch err := json.Unmarshal([]byte(out), &report); {
	case err != nil:
		return nil, fmt.Errorf("the output of iperf3: %w", err)
	case report.Error != "":
		return nil, fmt.Errorf("iperf3: %s", report.Error)
	case report.End.Received.Rate <= 0:
		return nil, fmt.Errorf("iperf3: the receiver got nothing: %q", out)
	}
	return table.Sample{"Mbit/s": report.End.Received.Rate / 1e6}, nil
}
