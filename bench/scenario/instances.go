// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

const (
	instances = "instances"

	instancesBusy = 500 // connections, the total for all instances
	instancesPort = "7000"
	instancesTap  = "shared0"
	instancesNet  = "10.82.1"
	instancesMAC  = "02:00:00:00:82:00" // Ethernet address of the host's side
)

// eachCPU is the placement of several instances, in which each instance and its
// load share one CPU.
const eachCPU = "each-cpu"

// The connections of the instances: one tap for each instance, or one tap with a queue
// for each instance.
const (
	ownTap    = "own"
	sharedTap = "shared"
)

// The kinds of load.
const (
	instancesTrips = "trips"
	instancesChurn = "churn"
)

var instancesVariants = []string{lab.Host, lab.Preload, lab.Supervise}

func init() {
	register(Scenario{
		Order: 310, Name: instances, Title: "One instance, and one for each CPU", Quick: true,
		About: "A server that answers each byte runs under lklrun on CPU 0, with its client on the same CPU. The " +
			"other rows have two such pairs, on CPUs 0 and 1. With `tap=own`, each instance has a tap and an " +
			"address. With `tap=shared`, both share one address and use one queue each of one tap (`multiqueue`), " +
			"and the host's connections are spread over them. `trips` is 500 connections in total with one byte " +
			"in flight on each. `churn` is consecutive connections with one byte in each direction. For the host, " +
			"servers run on its own kernel over veth. Two can be more than twice as fast as one, because each has " +
			"fewer connections.",
		Budget: Budget{Quick: 20 * time.Second, Full: 90 * time.Second},
		Build:  buildInstances, Targets: instancesTargets(), Figures: instancesFigures,
	})
}

func instancesKey(what, tap string, n int, v string) table.Key {
	p := lab.OneCPU
	if n > 1 {
		p = eachCPU
	}
	return table.Key{Scenario: instances, What: what, Params: table.Params{"tap": tap, "n": strconv.Itoa(n)}, Placement: p, Variant: v}
}

func buildInstances(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: instances, Paths: 2})
	if err != nil {
		return nil, err
	}
	client, err := l.Native(ctx, "connbench", "-ldl")
	if err != nil {
		return nil, err
	}
	if err := l.Run(ctx,
		fmt.Sprintf("ip -n %s tuntap add %s mode tap multi_queue", w.Server, instancesTap),
		fmt.Sprintf("ip -n %s link set %s address %s", w.Server, instancesTap, instancesMAC),
		fmt.Sprintf("ip -n %s addr add %s.1/24 dev %s", w.Server, instancesNet, instancesTap),
		fmt.Sprintf("ip -n %s link set %s up", w.Server, instancesTap)); err != nil {
		return nil, err
	}
	b := &instancesLab{l: l, w: w, client: client}
	var ms []Measure
	for _, what := range []string{instancesTrips, instancesChurn} {
		if what == instancesChurn && !l.Form.Full {
			continue
		}
		for _, tap := range []string{ownTap, sharedTap} {
			for _, n := range []int{1, 2} {
				for _, v := range instancesVariants {
					if v == lab.Host && tap == sharedTap {
						continue
					}
					ms = append(ms, Measure{Key: instancesKey(what, tap, n, v), Rounds: 3, Take: func(ctx context.Context) (table.Sample, error) {
						return b.take(ctx, what, tap, n, v)
					}})
				}
			}
		}
	}
	return ms, nil
}

// instancesLab is the set-up for these measurements.
type instancesLab struct {
	l      *lab.Lab
	w      *lab.Wire
	client string
}

// on returns a command line that runs argv in a namespace on CPU i.
func (b *instancesLab) on(netns string, i int, argv ...string) []string {
	return b.l.In(netns, lab.TwoCPUs, i == 1, argv...)
}

// server returns the command line of server i, and the address for its clients.
func (b *instancesLab) server(tap string, i int, v string) (argv []string, addr string) {
	if v == lab.Host {
		addr = fmt.Sprintf("10.80.%d.2", 1+i)
		return b.on(b.w.Client, i, b.client, "--cc", lab.CC, "serve", addr, instancesPort), addr
	}
	addr = fmt.Sprintf("10.79.%d.2", 1+i)
	spec := fmt.Sprintf("tap:tap%d,ip=%s/24", i, addr)
	if tap == sharedTap {
		addr = instancesNet + ".2"
		// Configure the host's MAC address as a neighbour: if two instances sent
		// ARP requests at the same time, only one would get the answer.
		spec = fmt.Sprintf("tap:%s,ip=%s/24,mac=02:00:00:00:82:01,multiqueue,neigh=%s.1|%s", instancesTap, addr, instancesNet, instancesMAC)
	}
	line := []string{b.l.Bin("lklrun"), "--engine", v, "--stack", "vanilla", "--if", spec, "--", b.client, "--cc", lab.CC, "serve", addr, instancesPort}
	return b.on(b.w.Server, i, line...), addr
}

// take starts the servers, loads all of them at once and adds up the results.
func (b *instancesLab) take(ctx context.Context, what, tap string, n int, v string) (table.Sample, error) {
	ms := strconv.Itoa(2 * int(b.l.Form.Length.Milliseconds()))
	var loads [][]string
	for i := range n {
		argv, addr := b.server(tap, i, v)
		server, err := b.l.Start(ctx, argv...)
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		if err := b.l.Until(ctx, "the server", func() (bool, error) {
			return slices.Contains(server.Lines(), "ready"), fmt.Errorf("%v", server.Lines())
		}); err != nil {
			return nil, err
		}
		load := []string{b.client, "--cc", lab.CC, "churn", addr, instancesPort, ms}
		if what == instancesTrips {
			load = []string{b.client, "--cc", lab.CC, "load", addr, instancesPort, "0", strconv.Itoa(instancesBusy / n), ms}
		}
		loads = append(loads, b.on(b.w.Server, i, load...))
	}
	samples, errs := make([]table.Sample, n), make([]error, n)
	var all sync.WaitGroup
	for i, argv := range loads {
		all.Go(func() { samples[i], errs[i] = b.l.Sample(ctx, argv...) })
	}
	all.Wait()
	return together(samples), errors.Join(errs...)
}

// together adds up several simultaneous loads. The sample of each load contains the
// CPU time of all loads, divided by the operations of this load.
func together(samples []table.Sample) table.Sample {
	sum, perCPU := table.Sample{}, 0.0
	for _, s := range samples {
		sum["1/s"] += s["1/s"]
		if cpu, ok := s["cpu-µs/op"]; ok && cpu > 0 {
			perCPU += 1 / cpu
		}
		for _, unit := range []string{"µs-p50", "µs-p99"} {
			if v, ok := s[unit]; ok {
				sum[unit] = max(sum[unit], v)
			}
		}
	}
	if perCPU > 0 {
		sum["cpu-µs/op"] = 1 / perCPU
	}
	return sum
}

func instancesTargets() []table.Target {
	var ts []table.Target
	for _, v := range []string{lab.Preload, lab.Supervise} {
		for _, tap := range []string{ownTap, sharedTap} {
			ts = append(ts, table.Target{Criterion: "6", What: v + ", two instances on two CPUs beside one, " + tap + " tap", Unit: "1/s", AtLeast: 1.7,
				Of: instancesKey(instancesTrips, tap, 2, v), Base: instancesKey(instancesTrips, tap, 1, v)})
		}
	}
	return ts
}

func instancesFigures(s *table.Set) []report.Plot {
	b := report.Bars{Name: "instances-trips", Title: "Round trips of one instance and of two, a CPU each", Y: "1/s", Groups: instancesVariants}
	for _, c := range []struct {
		name, tap string
		n         int
	}{{"one", ownTap, 1}, {"two, a tap each", ownTap, 2}, {"two, one tap", sharedTap, 2}} {
		series := report.Series{Name: c.name}
		for _, v := range instancesVariants {
			series.Add(s, instancesKey(instancesTrips, c.tap, c.n, v), "1/s")
		}
		b.Series = append(b.Series, series)
	}
	return []report.Plot{b}
}
