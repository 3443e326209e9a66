// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

// An offloading is a set of offloads of a device: virtio features for the stack's
// side, and ethtool arguments for the host's side.
type offloading struct {
	name, mask, ethtool string
}

var offloadings = []offloading{
	{"none", "0", "tx off rx off tso off gso off gro off"},
	{"tx-csum", "0x1", "tx on rx off tso off gso off gro off"},
	{"rx-csum", "0x2", "tx off rx on tso off gso off gro off"},
	{"csum", "0x3", "tx on rx on tso off gso off gro off"},
	{"csum+tso", "0x1803", "tx on rx on tso on gso on gro off"},
	{"csum+large-receive", "0x183", "tx on rx on tso off gso off gro on"},
	{"all", "0x1983", "tx on rx on tso on gso on gro on"},
}

func init() {
	register(Scenario{
		Order: 40, Name: "offloads", Title: "What each offload gains", Seed: "002, 003",
		About: "Bulk transfer on one CPU with some of the offloads: checksums of sent or received data, segmentation " +
			"of sent data (TSO), and merged segments. Merged segments come from the peer's TSO on a tap and from " +
			"GRO on the veth. The stack's tap has only these virtio features. `ethtool -K` sets the client's end " +
			"of the veth; the host's other end keeps all offloads.",
		Budget: Budget{Full: 120 * time.Second},
		Build:  buildOffloads,
	})
}

func buildOffloads(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: "offl"})
	if err != nil {
		return nil, err
	}
	if err := w.Serve(ctx, lab.OneCPU); err != nil {
		return nil, err
	}
	var ms []Measure
	for _, o := range offloadings {
		for _, dir := range []string{"send", "recv"} {
			for _, v := range l.Variants(lab.Host, lab.Library, lab.LKL49) {
				argv := l.Lklbench(lab.Run{Variant: v, Placement: lab.OneCPU, Wire: w, Library: []string{"--offload", o.mask}}, dir, l.Milliseconds())
				k := table.Key{What: "offloads", Params: table.Params{"dir": dir, "with": o.name}, Placement: lab.OneCPU, Variant: v}
				ms = append(ms, Measure{Key: k, Take: func(ctx context.Context) (table.Sample, error) {
					if err := l.Run(ctx, fmt.Sprintf("ip netns exec %s ethtool -K c0 %s", w.Client, o.ethtool)); err != nil {
						return nil, err
					}
					return l.Sample(ctx, argv...)
				}})
			}
		}
	}
	return ms, nil
}
