// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
)

// The wire and the reference have the same rate, delay and loss, and run the same iperf3.
func TestImpairedCommands(t *testing.T) {
	p := &impairedPair{lab: &lab.Lab{Root: "/root"}}
	for _, r := range impairedRows {
		wire, taps, host := strings.Join(p.command(r, lab.Supervise), " "), strings.Join(p.command(r, byTaps), " "), strings.Join(p.command(r, r.host()), " ")
		_, a, ok := strings.Cut(wire, "iperf3 ")
		_, b, _ := strings.Cut(host, "iperf3 ")
		_, c, _ := strings.Cut(taps, "iperf3 ")
		if !ok || a != b || strings.Replace(c, "10.0.1.12", "10.0.1.2", 1) != a {
			t.Errorf("%+v: %s, %s and %s", r, wire, taps, host)
		}
		if !strings.Contains(wire, "--delay 20ms --rate 100mbit --loss "+r.loss+" ") || strings.Contains(host, "mptcpize") != (r.paths > 1) {
			t.Errorf("%+v: %s and %s", r, wire, host)
		}
		if limit := time.Duration(r.seconds()+impairedOmit) * time.Second; limit > lab.RunLimit/2 {
			t.Errorf("%+v takes %v of %v", r, limit, lab.RunLimit)
		}
	}
}

// The goodput is that of the receiver.
func TestIperfSample(t *testing.T) {
	s, err := iperfSample(`{"end": {"sum_sent": {"bits_per_second": 9e6}, "sum_received": {"bits_per_second": 2.5e6}}}`)
	if err != nil || s["Mbit/s"] != 2.5 {
		t.Errorf("got %v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", `{"error": "unable to connect"}`, `{"end": {"sum_received": {"bits_per_second": 0}}}`} {
		if s, err := iperfSample(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, s)
		}
	}
}
