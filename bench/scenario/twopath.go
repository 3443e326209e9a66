// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

// twoPathRate is the rate of each link, in Mbit/s.
const twoPathRate = 200

var twoPathVariants = []lab.Variant{lab.HostMPTCP, lab.Library, lab.Preload, lab.Supervise}

func init() {
	var targets []table.Target
	for _, dir := range []string{"send", "recv"} {
		for _, v := range twoPathVariants[1:] {
			targets = append(targets, table.Target{
				Criterion: "3", What: v + ": " + dir + ", two paths beside the host's MPTCP", Unit: "Gbit/s", AtLeast: 0.95,
				Of: twoPathKey(dir, 2, v), Base: twoPathKey(dir, 2, lab.HostMPTCP),
			}, table.Target{
				Criterion: "3", What: v + ": " + dir + ", two paths beside one", Unit: "Gbit/s", AtLeast: 1.9,
				Of: twoPathKey(dir, 2, v), Base: twoPathKey(dir, 1, v),
			})
		}
	}
	register(Scenario{
		Order: 110, Name: "twopath", Title: "MPTCP over two shaped links", Seed: "000, 004", Quick: true,
		About: "One MPTCP connection over links of " + strconv.Itoa(twoPathRate) + " Mbit/s (tbf at both ends of a veth pair, 50 ms of queue), to a server on the host's kernel that announces its second address. " +
			"The host's kernel and the stack use the same links; the stack's taps are bridged to them. CUBIC at both ends; the first 0.3 s do not count.",
		Budget: Budget{Quick: 20 * time.Second, Full: 130 * time.Second},
		Build:  buildTwoPath, Targets: targets,
	})
}

func twoPathKey(dir string, paths int, v lab.Variant) table.Key {
	return table.Key{
		Scenario: "twopath", What: "MPTCP", Placement: lab.Unpinned, Variant: v,
		Params: table.Params{"dir": dir, "paths": strconv.Itoa(paths)},
	}
}

func buildTwoPath(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	k, err := makeLinks(ctx, l, "twopath", 2, twoPathRate)
	if err != nil {
		return nil, err
	}
	ms := "500"
	if l.Form.Full {
		ms = "1000"
	}
	var measures []Measure
	for _, dir := range []string{"send", "recv"} {
		for paths := 1; paths <= 2; paths++ {
			for _, v := range twoPathVariants {
				if v == lab.HostMPTCP && paths == 1 {
					v = lab.Host // with MPTCP, the variant would use the second path
				}
				argv := k.command(v, paths, []string{"--warm", "300"}, dir, "10.71.1.1", linksPort, ms)
				measures = append(measures, Measure{Key: twoPathKey(dir, paths, v), Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }})
			}
		}
	}
	return measures, nil
}
