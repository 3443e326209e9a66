// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"strconv"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

// payloads lists the payload sizes of the seeds, in bytes per call.
var payloads = []int{64, 1024, 4096, 16384, 65507}

func init() {
	register(Scenario{
		Order: 100, Name: "payload", Title: "Payload sizes, one path and two", Seed: "000, 004", Quick: true,
		About: "One connection, every call with the same number of bytes on both sides, without TCP_NODELAY, to a " +
			"server on the host's kernel, all on one CPU: TCP over one path, MPTCP over two. The paths are veth " +
			"pairs for the host and taps for the stack, without a rate limit. CPU time is that of all processes " +
			"of both ends. MPTCP of Linux 6.18 can stall when it receives such small writes over two paths " +
			"(docs/reference/mptcp.md). Such a row is missing or close to zero.",
		Budget: Budget{Quick: 15 * time.Second, Full: 270 * time.Second},
		Build:  buildPayload, Figures: payloadFigures,
	})
}

// A payloadKind is a protocol, the number of paths that it uses, and its variants.
type payloadKind struct {
	proto    string
	paths    int
	variants []lab.Variant
}

var payloadKinds = []payloadKind{
	{"tcp", 1, []lab.Variant{lab.Host, lab.Library, lab.Preload, lab.Supervise}},
	{"mptcp", 2, []lab.Variant{lab.HostMPTCP, lab.Library, lab.Preload, lab.Supervise}},
}

func payloadKey(k payloadKind, dir string, size int, v lab.Variant) table.Key {
	return table.Key{
		Scenario: "payload", What: k.proto, Placement: lab.OneCPU, Variant: v,
		Params: table.Params{"dir": dir, "paths": strconv.Itoa(k.paths), "size": strconv.Itoa(size)},
	}
}

const payloadPort = "5008" // port of the server for MPTCP

func buildPayload(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: "payload", Paths: 2})
	if err != nil {
		return nil, err
	}
	if err := w.Serve(ctx, lab.OneCPU); err != nil {
		return nil, err
	}
	if _, err := l.Start(ctx, l.In(w.Server, lab.OneCPU, true, l.Bench(), "--mptcp", "1", "serve", "::", payloadPort)...); err != nil {
		return nil, err
	}
	if err := l.WaitListen(ctx, w.Server, payloadPort); err != nil {
		return nil, err
	}
	// The server needs room for out-of-order data. With the default buffer of 128
	// KiB, segments of 64 bytes fill it while they wait for a segment on the other
	// path. The server's MPTCP then no longer accepts this segment.
	if _, err := l.Output(ctx, l.In(w.Server, lab.Unpinned, true, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 4194304 33554432")...); err != nil {
		return nil, err
	}
	if err := l.Run(ctx,
		"ip -n "+w.Server+" mptcp limits set subflow 1 add_addr_accepted 0",
		"ip -n "+w.Client+" mptcp limits set subflow 1 add_addr_accepted 1"); err != nil {
		return nil, err
	}
	// announce lets the server announce its second address on the variant's wires.
	announce := func(ctx context.Context, v lab.Variant) error {
		where := "10.79.2.1 dev tap1"
		if v == lab.HostMPTCP {
			where = "10.80.2.1 dev s1"
		}
		return l.Run(ctx, "ip -n "+w.Server+" mptcp endpoint flush", "ip -n "+w.Server+" mptcp endpoint add "+where+" signal")
	}
	sizes, kinds, ms := payloads, payloadKinds, "200"
	if !l.Form.Full {
		sizes, kinds = []int{1024}, payloadKinds[:1]
	}
	var measures []Measure
	for _, k := range kinds {
		for _, dir := range []string{"send", "recv"} {
			for _, size := range sizes {
				for _, v := range l.Variants(k.variants...) {
					r := lab.Run{Variant: v, Placement: lab.OneCPU, Wire: w, Paths: k.paths, Options: []string{"--nagle", "1", "--size", strconv.Itoa(size)}}
					port := w.Port(lab.OneCPU)
					if k.proto == "mptcp" {
						port, r.Stack, r.Library = payloadPort, "mptcp", mptcpBuffers
						if v != lab.HostMPTCP { // HostMPTCP requests MPTCP itself
							r.Options = append(r.Options, "--mptcp", "1")
						}
					}
					argv := l.Command(r, dir, w.Address(r), port, ms)
					measures = append(measures, Measure{
						Key: payloadKey(k, dir, size, v),
						Take: func(ctx context.Context) (table.Sample, error) {
							if k.proto == "mptcp" {
								if err := announce(ctx, v); err != nil {
									return nil, err
								}
							}
							return l.Sample(ctx, argv...)
						},
					})
				}
			}
		}
	}
	return measures, nil
}

func payloadFigures(s *table.Set) []report.Plot {
	var plots []report.Plot
	for _, k := range payloadKinds {
		for _, dir := range []string{"send", "recv"} {
			for _, unit := range []string{"Gbit/s", "cpu-s/GB"} {
				f := report.Figure{
					Name:  "payload-" + k.proto + "-" + dir + map[string]string{"Gbit/s": "", "cpu-s/GB": "-cpu"}[unit],
					Title: map[string]string{"tcp": "TCP, one path", "mptcp": "MPTCP, two paths"}[k.proto] + ": " + map[string]string{"send": "sending", "recv": "receiving"}[dir],
					X:     "bytes of one call", Y: unit, LogX: true, LogY: true,
				}
				for _, v := range k.variants {
					line := report.Line{Name: v}
					for _, size := range payloads {
						key := payloadKey(k, dir, size, v)
						y, ok := s.Median(key, unit)
						if !ok {
							continue
						}
						low, high := s.Quartiles(key, unit)
						line.X, line.Y = append(line.X, float64(size)), append(line.Y, y)
						line.Low, line.High = append(line.Low, low), append(line.High, high)
					}
					if len(line.X) > 1 {
						f.Lines = append(f.Lines, line)
					}
				}
				if len(f.Lines) > 0 {
					plots = append(plots, f)
				}
			}
		}
	}
	return plots
}
