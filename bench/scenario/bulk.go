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
		Order: 10, Name: "bulk", Title: "Bulk transfer", Seed: "002, 003",
		About: "One connection to a server on the host's kernel, 128 KiB a call, with all offloads.",
		Quick: true, Budget: Budget{Quick: 45 * time.Second, Full: 140 * time.Second},
		Build: buildBulk,
	})
}

func bulkKey(dir, p, v string) table.Key {
	return table.Key{Scenario: "bulk", What: "bulk", Params: table.Params{"dir": dir}, Placement: p, Variant: v}
}

func buildBulk(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: "bulk"})
	if err != nil {
		return nil, err
	}
	var ms []Measure
	for _, p := range lab.Placements {
		if err := w.Serve(ctx, p); err != nil {
			return nil, err
		}
		for _, dir := range []string{"send", "recv"} {
			for _, v := range l.Variants(lab.Host, lab.Library, lab.Preload, lab.Supervise, lab.LKL49) {
				argv := l.Lklbench(lab.Run{Variant: v, Placement: p, Wire: w}, dir, l.Milliseconds())
				ms = append(ms, Measure{Key: bulkKey(dir, p, v), Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }})
			}
		}
	}
	return ms, nil
}
