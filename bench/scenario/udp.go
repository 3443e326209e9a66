// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

const (
	udp  = "udp"
	http = "http3"

	udpPort  = "5301"
	httpPort = "5443"
	udpLost  = "%-lost"
	udpRate  = "1/s"
)

// Datagrams of 1,400 bytes at 1 Gbit/s, and small ones at full speed.
const (
	udpGigabit = "1 Gbit/s of 1,400 bytes"
	udpSmall   = "64 bytes at full speed"
)

var udpVariants = []string{lab.Host, lab.Preload, lab.Supervise}

func init() {
	register(Scenario{
		Order: 70, Name: udp, Title: "UDP", Quick: true,
		About: "Datagrams in one direction, with send() and recv() on a connected socket (`bench/native/udpbench.c`): " +
			"1,400 bytes at 1 Gbit/s, in a burst every millisecond as iperf3 sends them, and 64 bytes at full " +
			"speed. `1/s` is the rate at the receiver. `%-lost` are the datagrams that send() accepted and recv() " +
			"did not return. A sender at full speed loses what its receiver cannot take. The measured side is the " +
			"client, on the host's kernel over veth or under lklrun over a tap. Its peer always runs on the host's " +
			"kernel, with the default socket buffers, which hold 92 datagrams of 1,400 bytes.",
		Budget: Budget{Quick: 30 * time.Second, Full: 80 * time.Second},
		Build:  buildUDP, Targets: udpTargets(),
	})
	register(Scenario{
		Order: 80, Name: http, Title: "HTTP/3",
		About: "A download with quic-go at both ends (`bench/h3bench`), 1 GB in the full form. The measured side is " +
			"the client. The engine preload does not run Go programs.",
		Budget: Budget{Quick: 30 * time.Second, Full: 100 * time.Second},
		Build:  buildHTTP3,
		Targets: []table.Target{
			{Criterion: "2", What: "supervise: HTTP/3 download", Unit: "Gbit/s", AtLeast: 0.8,
				Of: http3Key(lab.Supervise), Base: http3Key(lab.Host)},
		},
	})
}

func udpKey(what, dir, v string) table.Key {
	return table.Key{Scenario: udp, What: what, Params: table.Params{"dir": dir}, Placement: lab.Unpinned, Variant: v}
}

func http3Key(v string) table.Key {
	return table.Key{Scenario: http, What: "download", Placement: lab.Unpinned, Variant: v}
}

// serveAt starts a server of a scenario in the namespace of a wire.
func serveAt(ctx context.Context, l *lab.Lab, w *lab.Wire, filter string, argv ...string) error {
	if _, err := l.Start(ctx, l.In(w.Server, lab.Unpinned, true, argv...)...); err != nil {
		return err
	}
	return l.Until(ctx, argv[0], func() (bool, error) {
		out, err := l.Output(ctx, "ip", "netns", "exec", w.Server, "ss", "-Hna", filter)
		return out != "", err
	})
}

func buildUDP(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: udp})
	if err != nil {
		return nil, err
	}
	bench, err := l.Native(ctx, "udpbench")
	if err != nil {
		return nil, err
	}
	if err := serveAt(ctx, l, w, "sport = :"+udpPort, bench, "serve", "0.0.0.0", udpPort); err != nil {
		return nil, err
	}
	ms := strconv.Itoa(max(500, int(l.Form.Length.Milliseconds())))
	var measures []Measure
	for _, row := range []struct{ what, bytes, rate string }{
		{udpGigabit, "1400", "89286"},
		{udpSmall, "64", "0"},
	} {
		for _, dir := range []string{"send", "recv"} {
			for _, v := range udpVariants {
				r := lab.Run{Variant: v, Placement: lab.Unpinned, Wire: w, Flags: []string{"--quiet"}}
				argv := l.Program(r, bench, dir, w.Address(r), udpPort, row.bytes, row.rate, ms)
				m := sampled(l, udpKey(row.what, dir, v), argv)
				if l.Form.Full {
					m.Times = 2
				}
				measures = append(measures, m)
			}
		}
	}
	return measures, nil
}

func buildHTTP3(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: http})
	if err != nil {
		return nil, err
	}
	bench := filepath.Join(l.Root, "build", "bench", "h3bench")
	if _, err := l.Output(ctx, "go", "-C", filepath.Join(l.Root, "bench"), "build", "-o", bench, "./h3bench"); err != nil {
		return nil, err
	}
	if err := serveAt(ctx, l, w, "sport = :"+httpPort, bench, "serve", "0.0.0.0", httpPort); err != nil {
		return nil, err
	}
	size := "100000000"
	if l.Form.Full {
		size = "1000000000"
	}
	var measures []Measure
	for _, v := range []string{lab.Host, lab.Supervise} {
		r := lab.Run{Variant: v, Placement: lab.Unpinned, Wire: w, Flags: []string{"--quiet"}}
		m := sampled(l, http3Key(v), l.Program(r, bench, "get", w.Address(r), httpPort, size))
		m.Rounds = 3
		measures = append(measures, m)
	}
	return measures, nil
}

func udpTargets() []table.Target {
	var ts []table.Target
	for _, v := range []string{lab.Supervise, lab.Preload} {
		for _, d := range []struct{ dir, words string }{{"send", "sent"}, {"recv", "received"}} {
			ts = append(ts,
				table.Target{Criterion: "2", What: v + ": " + udpGigabit + ", " + d.words, Unit: udpLost, AtMost: 1, Of: udpKey(udpGigabit, d.dir, v)},
				table.Target{Criterion: "2", What: v + ": " + udpSmall + ", " + d.words, Unit: udpRate, AtLeast: 0.8,
					Of: udpKey(udpSmall, d.dir, v), Base: udpKey(udpSmall, d.dir, lab.Host)})
		}
	}
	return ts
}
