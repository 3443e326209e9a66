// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/table"
)

var cyclesVariants = []lab.Variant{lab.Host, lab.Library, lab.Preload, lab.Supervise}

func init() {
	register(Scenario{
		Order: 130, Name: "cycles", Title: "Cycles per packet", Seed: "000",
		About: "A bulk transfer on one CPU, without offloads: each packet, acknowledgements included, is a frame of " +
			"at most 1,514 bytes on the stack and on the host. The figure is the CPU time of all processes of " +
			"both ends (by a control group) divided by the packets that the server's device counted. Cycles are " +
			"that time multiplied by the nominal clock rate of /proc/cpuinfo. They do not come from a hardware " +
			"counter, which virtual machines often lack.",
		Budget: Budget{Full: 50 * time.Second},
		Build:  buildCycles,
	})
}

func cyclesKey(dir string, v lab.Variant) table.Key {
	return table.Key{Scenario: "cycles", What: "packet", Params: table.Params{"dir": dir, "offloads": "off"}, Placement: lab.OneCPU, Variant: v}
}

func buildCycles(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	hertz, err := clock()
	if err != nil {
		return nil, err
	}
	off, err := l.Wire(ctx, lab.WireOptions{Name: "cycles", Offloads: "off"})
	if err != nil {
		return nil, err
	}
	if err := off.Serve(ctx, lab.OneCPU); err != nil {
		return nil, err
	}
	var measures []Measure
	for _, dir := range []string{"send", "recv"} {
		for _, v := range cyclesVariants {
			argv := l.Lklbench(lab.Run{Variant: v, Placement: lab.OneCPU, Wire: off}, dir, l.Milliseconds())
			device := "tap0"
			if v == lab.Host {
				device = "s0"
			}
			measures = append(measures, Measure{Key: cyclesKey(dir, v), Take: func(ctx context.Context) (table.Sample, error) {
				return perPacket(ctx, l, off.Server, device, hertz, argv)
			}})
		}
	}
	return measures, nil
}

// clock returns the CPU's frequency in hertz, as reported by the machine.
func clock() (float64, error) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return mhz * 1e6, err
		}
	}
	return 0, fmt.Errorf("no cpu MHz in /proc/cpuinfo: %w", ErrSkip)
}

// traffic returns a device's packets and bytes, as the sum of both directions.
func traffic(ctx context.Context, l *lab.Lab, netns, device string) (packets, bytes float64, err error) {
	for _, c := range []struct {
		name string
		to   *float64
	}{{"rx_packets", &packets}, {"tx_packets", &packets}, {"rx_bytes", &bytes}, {"tx_bytes", &bytes}} {
		out, err := l.Output(ctx, "ip", "netns", "exec", netns, "cat", "/sys/class/net/"+device+"/statistics/"+c.name)
		if err != nil {
			return 0, 0, err
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			return 0, 0, err
		}
		*c.to += v
	}
	return packets, bytes, nil
}

// headers is the size of a packet's headers: Ethernet, IPv4, TCP with timestamps.
const headers = 14 + 20 + 32

// perPacket measures a transfer and the cost of one of its packets.
func perPacket(ctx context.Context, l *lab.Lab, netns, device string, hertz float64, argv []string) (table.Sample, error) {
	packets, bytes, err := traffic(ctx, l, netns, device)
	if err != nil {
		return nil, err
	}
	s, err := l.Sample(ctx, argv...)
	if err != nil {
		return nil, err
	}
	p, b, err := traffic(ctx, l, netns, device)
	if err != nil {
		return nil, err
	}
	packets, bytes = p-packets, b-bytes
	cost, ok := s["cpu-s/GB"]
	if !ok || packets <= 0 {
		return nil, fmt.Errorf("CPU time %v, packets %v: %w", ok, packets, ErrSkip)
	}
	payload := bytes/packets - headers // per packet, including acknowledgements
	s["ns/packet"] = cost * payload    // s/GB is ns/byte
	s["cycles/packet"] = s["ns/packet"] * hertz / 1e9
	return s, nil
}
