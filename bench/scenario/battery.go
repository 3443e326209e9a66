// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

const battery = "battery"

// batteryRate is the rate of each link, in Mbit/s.
const batteryRate = 100

// batteryLength is the duration of a transfer. A shorter one wakes up too rarely.
const batteryLength = 5 * time.Second

// batteryLimits are the targets: CPU time per GB beside the host's kernel.
var batteryLimits = map[lab.Variant]float64{lab.Preload: 2.5, lab.Supervise: 3}

func init() {
	var targets []table.Target
	for _, dir := range []string{"recv", "send"} {
		for paths := 1; paths <= 2; paths++ {
			for _, v := range []lab.Variant{lab.Preload, lab.Supervise} {
				targets = append(targets, table.Target{
					Criterion: "3", What: fmt.Sprintf("%s: CPU per GB at %d Mbit/s, %s, paths: %d", v, batteryRate, dir, paths),
					Unit: "cpu-s/GB", AtMost: batteryLimits[v],
					Of: batteryKey(dir, paths, v), Base: batteryKey(dir, paths, batteryHost(paths)),
				})
			}
		}
	}
	register(Scenario{
		Order: 115, Name: battery, Title: "CPU time on slow links",
		About: "One connection over one or two links of " + strconv.Itoa(batteryRate) + " Mbit/s, as in the scenario twopath: TCP on the host " +
			"for one link, MPTCP otherwise. The CPU time is that of all processes of the measured side: the program, lklrun " +
			"and lklhost. Work of the host's kernel in interrupts does not count, for any variant. The wake-ups are the " +
			"voluntary context switches of all threads of these processes.",
		Budget: Budget{Full: 4 * time.Minute},
		Build:  buildBattery, Targets: targets,
	})
}

// batteryHost returns the variant of the reference.
func batteryHost(paths int) lab.Variant {
	if paths > 1 {
		return lab.HostMPTCP
	}
	return lab.Host
}

func batteryKey(dir string, paths int, v lab.Variant) table.Key {
	return table.Key{
		Scenario: battery, What: "bulk", Placement: lab.Unpinned, Variant: v,
		Params: table.Params{"dir": dir, "paths": strconv.Itoa(paths)},
	}
}

func buildBattery(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	side, err := l.Side(battery)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSkip, err)
	}
	k, err := makeLinks(ctx, l, battery, 2, batteryRate)
	if err != nil {
		return nil, err
	}
	ms := strconv.FormatInt(max(l.Form.Length, batteryLength).Milliseconds(), 10)
	var measures []Measure
	for _, dir := range []string{"recv", "send"} {
		for paths := 1; paths <= 2; paths++ {
			for _, v := range []lab.Variant{batteryHost(paths), lab.Preload, lab.Supervise} {
				argv := k.command(v, paths, []string{"--warm", "500"}, dir, "10.71.1.1", linksPort, ms)
				measures = append(measures, Measure{Key: batteryKey(dir, paths, v), Rounds: 3,
					Take: func(ctx context.Context) (table.Sample, error) { return side.Sample(ctx, argv...) }})
			}
		}
	}
	return measures, nil
}
