// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

// The ways to connect a stack to the network of one Ethernet device.
const (
	byMacvtap lab.Variant = "macvtap"
	byRaw     lab.Variant = "raw"         // the stack has its own address
	byShared  lab.Variant = "raw, shared" // the stack shares the host's address, with lklrun's rules
	byDrop    lab.Variant = "raw, resets dropped"
)

var sharedWays = []lab.Variant{lab.Host, byMacvtap, byRaw, byShared, byDrop}

func init() {
	register(Scenario{
		Order: 120, Name: "shared", Title: "An address shared with the host", Seed: "000, 004",
		About: "One connection from a device of the host (veth) to a server in another namespace, all on one CPU, " +
			"CUBIC at both ends, under `supervise`. The variants are a macvtap; a packet socket with an address " +
			"of its own; and a packet socket with the host's address. In the last case the host's kernel also " +
			"gets each packet, and lklrun's rules drop it at the device. For comparison, in the traditional " +
			"method the host's TCP processes each packet and creates a reset, which a rule in OUTPUT drops. " +
			"Without offloads each packet on the wire has at most 1,514 bytes. CPU time is that of all processes " +
			"of both ends.",
		Budget: Budget{Full: 70 * time.Second},
		Build:  buildShared, Tables: sharedTables,
	})
}

// sharedRows lists the measurements: the direction, with or without offloads.
var sharedRows = []struct{ dir, offloads string }{{"send", "on"}, {"recv", "on"}, {"recv", "off"}}

func sharedKey(dir, offloads string, v lab.Variant) table.Key {
	return table.Key{Scenario: "shared", What: "bulk", Params: table.Params{"dir": dir, "offloads": offloads}, Placement: lab.OneCPU, Variant: v}
}

const (
	sharedServer = "10.72.1.1"
	sharedPort   = "5010"
)

func buildShared(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	for _, offloads := range []string{"on", "off"} {
		if err := sharedWire(ctx, l, offloads); err != nil {
			return nil, err
		}
	}
	var measures []Measure
	for _, row := range sharedRows {
		client := "shared-" + row.offloads + "-client"
		for _, v := range sharedWays {
			argv := []string{l.Bench(), "--cc", "cubic", row.dir, sharedServer, sharedPort, l.Milliseconds()}
			if v != lab.Host {
				link := map[lab.Variant]string{byMacvtap: "macvtap:c0,ip=10.72.1.3/24", byRaw: "raw:c0,ip=10.72.1.4/24"}[v]
				if link == "" {
					link = "raw:c0"
				}
				run := []string{l.Bin("lklrun"), "--engine", "supervise", "--stack", "vanilla", "--if", link}
				if v == byDrop {
					run = append(run, "--rst-guard", "off")
				}
				argv = append(append(run, "--"), argv...)
			}
			argv = l.In(client, lab.OneCPU, false, argv...)
			measures = append(measures, Measure{Key: sharedKey(row.dir, row.offloads, v), Take: func(ctx context.Context) (s table.Sample, err error) {
				if v == byDrop {
					rule := " OUTPUT -p tcp --tcp-flags RST RST -j DROP"
					if err := l.Run(ctx, "ip netns exec "+client+" iptables -A"+rule); err != nil {
						return nil, fmt.Errorf("%w: %w", err, ErrSkip)
					}
					defer func() {
						err = errors.Join(err, l.Run(context.WithoutCancel(ctx), "ip netns exec "+client+" iptables -D"+rule))
					}()
				}
				return l.Sample(ctx, argv...)
			}})
		}
	}
	return measures, nil
}

// sharedWire makes two namespaces with a veth pair, and a server.
func sharedWire(ctx context.Context, l *lab.Lab, offloads string) error {
	client, server := "shared-"+offloads+"-client", "shared-"+offloads+"-server"
	for _, ns := range []string{client, server} {
		if err := l.Run(ctx, "ip netns add "+ns, "ip -n "+ns+" link set lo up"); err != nil {
			return err
		}
		l.Cleanup(func() { _ = l.Run(context.Background(), "ip netns del "+ns) }) // removes the devices, too
	}
	lines := []string{"ip -n " + client + " link add c0 type veth peer name s0 netns " + server}
	for _, d := range []struct{ ns, dev, addr string }{{client, "c0", "10.72.1.2/24"}, {server, "s0", sharedServer + "/24"}} {
		if offloads == "off" {
			lines = append(lines, "ip netns exec "+d.ns+" ethtool -K "+d.dev+" tso off gso off gro off tx off rx off")
		}
		lines = append(lines, "ip -n "+d.ns+" addr add "+d.addr+" dev "+d.dev, "ip -n "+d.ns+" link set "+d.dev+" up")
	}
	if err := l.Run(ctx, lines...); err != nil {
		return err
	}
	if _, err := l.Start(ctx, l.In(server, lab.OneCPU, true, l.Bench(), "serve", "::", sharedPort)...); err != nil {
		return err
	}
	return l.WaitListen(ctx, server, sharedPort)
}

// sharedTables returns tables that compare the other ways with macvtap.
func sharedTables(s *table.Set) []report.Table {
	var tables []report.Table
	for _, unit := range []string{"Gbit/s", "cpu-s/GB"} {
		t := report.Table{Title: unit + ", in brackets the ratio to macvtap", Head: append([]string{""}, sharedWays[1:]...)}
		for _, row := range sharedRows {
			cells := []string{row.dir + ", offloads " + row.offloads}
			for _, v := range sharedWays[1:] {
				key := sharedKey(row.dir, row.offloads, v)
				cell := "-"
				if m, ok := s.Median(key, unit); ok {
					cell = table.Number(m)
					if r, ok := s.Ratio(key, byMacvtap, unit); ok && v != byMacvtap {
						cell += " (" + table.Number(r) + ")"
					}
				}
				cells = append(cells, cell)
			}
			t.Rows = append(t.Rows, cells)
		}
		tables = append(tables, t)
	}
	return tables
}
