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

// batteryLength is the duration of a transfer. In a shorter one, slow start and lklrun's first
// samples for a report of a crash (internal/run/postmortem) count too much.
const batteryLength = 40 * time.Second

// batteryCoalesce is the setting of the profile mobile.
const batteryCoalesce = "40000"

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
		About: "One connection over one or two links of " + strconv.Itoa(batteryRate) + " Mbit/s, as in the scenario twopath: TCP " +
			"for one link, MPTCP otherwise, and lklrun with --coalesce " + batteryCoalesce + ". The CPU time is that of all processes of the measured side: the program, lklrun " +
			"and lklhost, and of the kernel's threads that receive packets from the links. " +
			"Other work of the host's kernel in interrupts does not count, for any variant. The wake-ups are the " +
			"voluntary context switches of all threads of these processes.",
		Budget: Budget{Full: 26 * time.Minute},
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
	ms := strconv.FormatInt(max(l.Form.Length, batteryLength).Milliseconds(), 10)
	var measures []Measure
	for _, dir := range []string{"recv", "send"} {
		k, err := makeLinks(ctx, l, battery+"-"+dir, 2, batteryRate)
		if err != nil {
			return nil, err
		}
		if err := k.countReceiving(ctx, battery); err != nil {
			return nil, err
		}
		for paths := 1; paths <= 2; paths++ {
			for _, v := range []lab.Variant{batteryHost(paths), lab.Preload, lab.Supervise} {
				argv := []string{l.Bench(), "--cc", "cubic", "--warm", "500"}
				stack := "vanilla"
				if paths > 1 {
					argv, stack = append(argv, "--mptcp", "1"), "mptcp"
				}
				line := k.program(v, paths, append(argv, dir, "10.71.1.1", linksPort, ms), []string{"--stack", stack, "--coalesce", batteryCoalesce})
				measures = append(measures, Measure{Key: batteryKey(dir, paths, v), Rounds: 2,
					Take: func(ctx context.Context) (table.Sample, error) { return side.Sample(ctx, line...) }})
			}
		}
	}
	return measures, nil
}

// countReceiving makes threads of the host's kernel receive what arrives on the links of
// the client. The devices' names give these threads to the Side with this name. By itself,
// the kernel receives in interrupts, whose CPU time counts for no process if the CPU is
// idle. A veth device has such a thread only if the other end does not send large packets.
func (k *links) countReceiving(ctx context.Context, side string) error {
	for i := range k.paths {
		dev := side + strconv.Itoa(i)
		err := k.lab.Run(ctx,
			fmt.Sprintf("ip netns exec %s ethtool -K s%d tso off", k.server, i),
			fmt.Sprintf("ip netns exec %s ethtool -K v%d gro on", k.client, i),
			fmt.Sprintf("ip -n %s link set v%d down", k.client, i),
			fmt.Sprintf("ip -n %s link set v%d name %s up", k.client, i, dev))
		if err == nil {
			_, err = k.lab.Output(ctx, "ip", "netns", "exec", k.client, "sh", "-c", "echo 1 >/sys/class/net/"+dev+"/threaded")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
