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
		Order: 230, Name: "ipv6", Title: "The same over IPv6", Seed: "003",
		About: "Bulk transfers and one-byte round trips as above, over IPv6, all on one CPU, interleaved with the " +
			"same over IPv4.",
		Budget: Budget{Full: 60 * time.Second},
		Build:  buildIPv6,
	})
}

func buildIPv6(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	const p = lab.OneCPU
	w, err := l.Wire(ctx, lab.WireOptions{Name: "ipv6"})
	if err != nil {
		return nil, err
	}
	if err := w.Serve(ctx, p); err != nil {
		return nil, err
	}
	var ms []Measure
	for _, verb := range []struct{ what, arg string }{{"send", l.Milliseconds()}, {"recv", l.Milliseconds()}, {"rr", l.Count()}} {
		for _, family := range []string{"4", "6"} {
			for _, v := range l.Variants(lab.Host, lab.Library, lab.Preload, lab.Supervise) {
				r := lab.Run{Variant: v, Placement: p, Wire: w, Options: []string{"--cc", "cubic"}}
				addr := w.Address(r)
				if family == "6" {
					addr = w.Address6(r)
				}
				argv := l.Command(r, verb.what, addr, w.Port(p), verb.arg)
				k := table.Key{Scenario: "ipv6", What: verb.what, Params: table.Params{"ip": family}, Placement: p, Variant: v}
				ms = append(ms, Measure{Key: k, Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }})
			}
		}
	}
	return ms, nil
}
