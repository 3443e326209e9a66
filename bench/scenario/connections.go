// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

const (
	connections = "connections"

	connectionsIdle = 10000
	connectionsBusy = 500
	connectionsPort = "7000"
)

// connectionsKinds lists the measurements: busy connections while others are idle, busy
// connections alone, and the memory of the idle connections.
const (
	connectionsLoad   = "load"
	connectionsMemory = "memory"
)

var connectionsVariants = []string{lab.Host, lab.Library, lab.Preload, lab.Supervise}

func init() {
	register(Scenario{
		Order: 300, Name: connections, Title: "Ten thousand idle connections and five hundred busy ones",
		About: "A client opens 10,000 connections that stay idle, then 500 with one byte in flight on each, to an " +
			"epoll server on the host's kernel. The other row has the 500 without the 10,000. `memory` is what " +
			"each of the 10,000 costs the machine at both ends: processes and the host's kernel. The stack's own " +
			"memory counts as that of its process. Huge pages are off for this row, because they are allocated " +
			"before they are used. The server's end costs the same in all figures, about half of the host's.",
		Budget: Budget{Quick: 20 * time.Second, Full: 170 * time.Second}, Quick: true,
		Build: buildConnections, Targets: connectionsTargets(), Figures: connectionsFigures,
	})
}

func connectionsKey(what string, idle int, p, v string) table.Key {
	return table.Key{Scenario: connections, What: what, Params: table.Params{"idle": strconv.Itoa(idle)}, Placement: p, Variant: v}
}

func buildConnections(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: connections})
	if err != nil {
		return nil, err
	}
	client, err := l.Native(ctx, "connbench", "-ldl")
	if err != nil {
		return nil, err
	}
	c := &connectionsLab{l: l, w: w, client: client}
	var ms []Measure
	for _, v := range connectionsVariants {
		ms = append(ms, c.measure(connectionsMemory, connectionsIdle, lab.Unpinned, v, 2))
	}
	for _, p := range []string{lab.OneCPU, lab.Unpinned} {
		for _, idle := range []int{0, connectionsIdle} {
			if !l.Form.Full && (p != lab.OneCPU || idle == 0) {
				continue
			}
			for _, v := range connectionsVariants {
				ms = append(ms, c.measure(connectionsLoad, idle, p, v, 3))
			}
		}
	}
	return ms, nil
}

// connectionsLab is the set-up for these measurements.
type connectionsLab struct {
	l      *lab.Lab
	w      *lab.Wire
	client string
}

// measure returns the measure of one row. It starts a new server each time, so that
// no connections of earlier measures remain.
func (c *connectionsLab) measure(what string, idle int, p, v string, rounds int) Measure {
	r := lab.Run{Variant: v, Placement: p, Wire: c.w, Client: c.client}
	busy := connectionsBusy
	if what == connectionsMemory {
		r.Prefix = []string{c.client, "small"}
		busy = 0
	}
	if !c.l.Form.Full && rounds > 0 {
		rounds = 1
	}
	argv := c.l.Command(r, "load", c.w.Address(r), connectionsPort, strconv.Itoa(idle), strconv.Itoa(busy), strconv.Itoa(2*int(c.l.Form.Length.Milliseconds())))
	return Measure{Key: connectionsKey(what, idle, p, v), Rounds: rounds, Take: func(ctx context.Context) (table.Sample, error) {
		server, err := c.l.Start(ctx, c.l.In(c.w.Server, p, true, c.client, "--cc", lab.CC, "serve", "0.0.0.0", connectionsPort)...)
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		if err := c.l.WaitListen(ctx, c.w.Server, connectionsPort); err != nil {
			return nil, fmt.Errorf("%w: %v", err, server.Lines())
		}
		if what == connectionsMemory {
			shrink()
		}
		s, err := c.l.Sample(ctx, argv...)
		if what != connectionsMemory {
			delete(s, "KB/conn") // not meaningful with huge pages
		}
		return s, err
	}}
}

// shrink makes the host's kernel free the memory of deleted objects. Otherwise new
// connections would reuse this memory, and would seem to need none.
func shrink() {
	caches, _ := filepath.Glob("/sys/kernel/slab/*/shrink") // the pattern is valid
	for _, path := range caches {
		_ = os.WriteFile(path, []byte("1"), 0) // fails if a cache has nothing to free
	}
}

func connectionsTargets() []table.Target {
	var ts []table.Target
	for _, t := range []struct {
		what, unit, v string
		atLeast       float64
		atMost        float64
	}{
		{"throughput beside 10,000 idle connections", "1/s", lab.Library, 0.8, 0},
		{"throughput beside 10,000 idle connections", "1/s", lab.Supervise, 0.6, 0},
		{"p99 beside 10,000 idle connections", "µs-p99", lab.Library, 0, 1.5},
	} {
		ts = append(ts, table.Target{Criterion: "6", What: t.v + ", " + t.what, Unit: t.unit, AtLeast: t.atLeast, AtMost: t.atMost,
			Of:   connectionsKey(connectionsLoad, connectionsIdle, lab.OneCPU, t.v),
			Base: connectionsKey(connectionsLoad, connectionsIdle, lab.OneCPU, lab.Host)})
	}
	return ts
}

func connectionsFigures(s *table.Set) []report.Plot {
	b := report.Bars{Name: "connections-memory", Title: "Memory of an idle connection, both ends", Y: "KB", Groups: connectionsVariants}
	series := report.Series{Name: "KB"}
	for _, v := range connectionsVariants {
		series.Add(s, connectionsKey(connectionsMemory, connectionsIdle, lab.Unpinned, v), "KB/conn")
	}
	b.Series = []report.Series{series}
	return []report.Plot{b}
}
