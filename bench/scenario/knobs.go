// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

func init() {
	register(Scenario{
		Order: 210, Name: "knobs", Title: "What BBR needs of a kernel", Seed: "003",
		About: "The lossy path of the last table, with BBR and CUBIC, changing one thing at a time in the library: " +
			"mean from the fourth to the eighth second, one run each. `as it is`: HZ=1000, high-resolution " +
			"timers, the host's clock in nanoseconds, fq, 512 MB of memory, buffers of up to 100 MB. " +
			"`highres=off` and `nohz=off` are boot parameters. The `sched_clock()` with one step for each tick of " +
			"the published measurement has no counterpart: TCP of Linux 6.12 reads the clocksource, and this " +
			"kernel's only clocksource is the host's clock. HZ is chosen at build time: `make bench-full` builds " +
			"all of these libraries, and `make stack-hz HZ=100` builds one.",
		Budget:  Budget{Full: 150 * time.Second},
		Build:   buildKnobs,
		Figures: knobFigures,
	})
}

// A knob is a single changed setting.
type knob struct {
	name string
	farRun
	cubic bool // measured with CUBIC, too
}

var knobs = []knob{
	{name: "as it is", cubic: true},
	{name: "pfifo", farRun: farRun{qdisc: "pfifo_fast"}},
	{name: "highres=off", farRun: farRun{boot: "highres=off"}, cubic: true},
	{name: "highres=off nohz=off", farRun: farRun{boot: "highres=off nohz=off"}},
	{name: "tcp_wmem=4M", farRun: farRun{sysctls: []string{"net.ipv4.tcp_wmem=4096 262144 4194304"}}},
	{name: "tcp_wmem=32M", farRun: farRun{sysctls: []string{"net.ipv4.tcp_wmem=4096 262144 33554432"}}},
	{name: "mem=64M", farRun: farRun{mem: "64M"}},
	{name: "mem=128M", farRun: farRun{mem: "128M"}},
	{name: "mem=256M", farRun: farRun{mem: "256M"}},
	{name: "HZ=100", farRun: farRun{stack: "hz-100"}, cubic: true},
	{name: "HZ=250", farRun: farRun{stack: "hz-250"}, cubic: true},
}

func knobKey(name, cc string) table.Key {
	return table.Key{Scenario: "knobs", What: name, Params: table.Params{"cc": cc}, Placement: lab.Unpinned, Variant: lab.Library}
}

func buildKnobs(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	f, err := makeFarPath(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := f.form(ctx, lossy); err != nil {
		return nil, err
	}
	var ms []Measure
	for _, k := range knobs {
		for _, cc := range []string{"bbr", "cubic"} {
			if cc == "cubic" && !k.cubic {
				continue
			}
			r := k.farRun
			r.variant, r.cc, r.seconds = lab.Library, cc, 8
			ms = append(ms, Measure{Key: knobKey(k.name, cc), Once: true, Take: func(ctx context.Context) (table.Sample, error) {
				if _, err := os.Stat(filepath.Dir(f.liblkl(r))); err != nil {
					return nil, fmt.Errorf("%w: make stack-hz builds such a library", ErrSkip)
				}
				w := []window{{"fraction", 4, 8}}
				sample, err := f.send(ctx, r, w...)
				if err != nil {
					return nil, err
				}
				inLink(sample, lossy, w)
				return sample, nil
			}})
		}
	}
	return ms, nil
}

// knobFigures returns a figure that shows the remaining throughput with each
// changed setting.
func knobFigures(set *table.Set) []report.Plot {
	b := report.Bars{Name: "knobs", Title: "BBR over 100 ms and 1 % loss, one thing changed in the library", Y: "Gbit/s", Series: []report.Series{{Name: lab.Library}}}
	for _, k := range knobs {
		if v, ok := set.Median(knobKey(k.name, "bbr"), "Gbit/s"); ok {
			b.Groups = append(b.Groups, k.name)
			b.Series[0].Values = append(b.Series[0].Values, v)
		}
	}
	if len(b.Groups) == 0 {
		return nil
	}
	return []report.Plot{b}
}
