// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

func init() {
	register(Scenario{
		Order: 30, Name: "getppid", Title: "The cheapest call, and a whole run", Seed: "002", Quick: true,
		About: "`getppid` is one call, repeated. In the library it is a function call into the stack's kernel; under " +
			"an engine it stays a call of the host's kernel. `boot` is the time until a library answers its first " +
			"call. `true` is a whole run of a program that does nothing: network namespace, boot, configuration, " +
			"end and cleanup.",
		Budget: Budget{Quick: 10 * time.Second, Full: 20 * time.Second},
		Build:  buildCalls,
		Targets: []table.Target{
			{Criterion: "5", What: "library, getppid", Unit: "ns", AtMost: 0.3, Of: callsKey("getppid", lab.OneCPU, lab.Library), Base: callsKey("getppid", lab.OneCPU, lab.Host)},
		},
	})
}

func callsKey(what, p, v string) table.Key {
	return table.Key{Scenario: "getppid", What: what, Placement: p, Variant: v}
}

func buildCalls(_ context.Context, l *lab.Lab) ([]Measure, error) {
	var ms []Measure
	libraries := l.Variants(lab.Library, lab.LKL49)
	for _, v := range append([]string{lab.Host}, libraries...) {
		ms = append(ms, sampled(l, callsKey("getppid", lab.OneCPU, v), l.Command(lab.Run{Variant: v, Placement: lab.OneCPU}, "getppid", "2000000")))
	}
	for _, v := range libraries {
		ms = append(ms, sampled(l, callsKey("boot", lab.Unpinned, v), l.Command(lab.Run{Variant: v, Placement: lab.Unpinned}, "boot")))
	}
	for _, v := range []string{lab.Host, lab.Preload, lab.Supervise} {
		argv := l.Program(lab.Run{Variant: v, Flags: []string{"--if", "user"}}, "true")
		ms = append(ms, Measure{Key: callsKey("true", lab.Unpinned, v), Take: func(ctx context.Context) (table.Sample, error) {
			began := time.Now()
			_, err := l.Output(ctx, argv...)
			return table.Sample{"ms": time.Since(began).Seconds() * 1e3}, err
		}})
	}
	return ms, nil
}
