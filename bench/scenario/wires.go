// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

const (
	wires       = "wires"
	wiresServer = "10.80.1.1" // also that of the host's kernel, see lab.Wire
	wiresPort   = "511"
)

var (
	wiresVariants   = []lab.Variant{lab.Host, lab.Preload, lab.Supervise}
	wiresPlacements = []lab.Placement{lab.Unpinned, lab.TwoCPUs}
)

func init() {
	var targets []table.Target
	for _, p := range wiresPlacements {
		for _, v := range wiresVariants[1:] {
			targets = append(targets, table.Target{Criterion: "8", What: v + ": bulk over a wire", Unit: "Gbit/s", Of: wiresKey("send", p, v), Base: wiresKey("send", p, lab.Host), AtLeast: 1})
		}
		targets = append(targets, table.Target{Criterion: "8", What: "supervise: round trip over a wire", Unit: "µs", Of: wiresKey("rr", p, lab.Supervise), Base: wiresKey("rr", p, lab.Host), AtMost: 1.5})
	}
	register(Scenario{
		Order: 100, Name: wires, Title: "A wire between two instances",
		About: "TCP between two instances of lklrun over `wire:`, beside TCP between two namespaces of the host's kernel " +
			"over veth, in turns: iperf3 for 2 s, and one byte there and back. CUBIC at both ends. Both instances use " +
			"the same engine and the stack vanilla. With `two-cpus`, the sender is on CPU 0 and the receiver on CPU 1.",
		Budget: Budget{Full: 60 * time.Second},
		Build:  buildWires, Targets: targets,
	})
}

func wiresKey(what string, p lab.Placement, v lab.Variant) table.Key {
	return table.Key{Scenario: wires, What: what, Placement: p, Variant: v}
}

func buildWires(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: wires})
	if err != nil {
		return nil, err
	}
	var ms []Measure
	for _, p := range wiresPlacements {
		for _, v := range wiresVariants {
			if err := serveWire(ctx, l, w, p, v); err != nil {
				return nil, err
			}
			argv := atWire(l, w, p, v, false, "iperf3", "-c", wiresServer, "-p", wirePort(p), "-C", lab.CC, "-t", "2", "--json")
			ms = append(ms, Measure{Key: wiresKey("send", p, v), Take: func(ctx context.Context) (table.Sample, error) { return bulkAtWire(ctx, l, argv) }})
		}
		for _, v := range wiresVariants {
			if v == lab.Preload {
				continue // the server of lklbench has a process for each connection
			}
			argv := atWire(l, w, p, v, false, l.Bench(), "--cc", lab.CC, "rr", wiresServer, wireTripsPort(p), l.Count())
			ms = append(ms, Measure{Key: wiresKey("rr", p, v), Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }})
		}
	}
	return ms, nil
}

// bulkAtWire runs iperf3 and returns its rate.
func bulkAtWire(ctx context.Context, l *lab.Lab, argv []string) (table.Sample, error) {
	out, err := l.Output(ctx, argv...)
	if err != nil {
		return nil, err
	}
	s, err := iperfSample(out)
	if err != nil {
		return nil, err
	}
	return table.Sample{"Gbit/s": s["Mbit/s"] / 1e3}, nil
}

// wirePort returns the port of a server. Each placement has its own.
func wirePort(p lab.Placement) string {
	return wiresPort + map[lab.Placement]string{lab.Unpinned: "1", lab.TwoCPUs: "2"}[p]
}

// wireTripsPort returns the port of the server for round trips.
func wireTripsPort(p lab.Placement) string { return wirePort(p) + "0" }

// wireName returns the name of a wire and of its server.
func wireName(p lab.Placement, v lab.Variant) string { return "bench-" + p + "-" + v }

// atWire returns the command line of a program at one end: that of the server or the client.
func atWire(l *lab.Lab, w *lab.Wire, p lab.Placement, v lab.Variant, server bool, argv ...string) []string {
	netns := map[bool]string{true: w.Server, false: w.Client}[server]
	if v == lab.Host {
		return l.In(netns, p, server, argv...)
	}
	name, ip := wireName(p, v), wiresServer
	if !server {
		name, ip = name+"-client", "10.80.1.2"
	}
	run := []string{l.Bin("lklrun"), "-q", "--name", name, "--engine", v, "--stack", "vanilla", "--if", "wire:" + wireName(p, v) + ",ip=" + ip + "/24", "--"}
	return l.In("", p, server, append(run, argv...)...)
}

// serveWire starts the servers of a variant and waits until they listen.
func serveWire(ctx context.Context, l *lab.Lab, w *lab.Wire, p lab.Placement, v lab.Variant) error {
	script := `exec iperf3 -s -p "$1"`
	if v != lab.Preload {
		script = `"$2" --cc cubic serve 0.0.0.0 ` + wireTripsPort(p) + ` & ` + script
	}
	argv := []string{"sh", "-c", script, "sh", wirePort(p), l.Bench()}
	if v == lab.Preload { // one process
		argv = []string{"iperf3", "-s", "-p", wirePort(p)}
	}
	if _, err := l.Start(ctx, atWire(l, w, p, v, true, argv...)...); err != nil {
		return err
	}
	if v == lab.Host {
		return l.WaitListen(ctx, w.Server, wirePort(p))
	}
	return l.Until(ctx, "the server at a wire", func() (bool, error) {
		out, err := l.Output(ctx, l.Bin("lklctl"), "-n", wireName(p, v), "netstat", "-l")
		return strings.Contains(out, wirePort(p)), err
	})
}
