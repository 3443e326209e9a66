// SPDX-License-Identifier: Apache-2.0

package impair

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

func TestUnits(t *testing.T) {
	for v, want := range map[string]time.Duration{
		"80ms": 80 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "100us": 100 * time.Microsecond, "2msec": 2 * time.Millisecond, "0": 0, "0ms": 0,
	} {
		if got, err := ParseTime(v); err != nil || got != want {
			t.Errorf("time %q: %v, %v", v, got, err)
		}
	}
	for v, want := range map[string]uint64{
		"20mbit": 20e6, "20Mbit": 20e6, "1gbit": 1e9, "512kbit": 512e3, "1mbps": 8e6, "1kibit": 1024, "64bit": 64, "0": 0, "2.5mbit": 2.5e6,
	} {
		if got, err := ParseRate(v); err != nil || got != want {
			t.Errorf("rate %q: %v, %v", v, got, err)
		}
	}
	for v, want := range map[string]float64{"2%": 0.02, "2": 0.02, "0.1%": 0.001, "1": 0.01, "0.0": 0, "100%": 1, "0": 0} {
		if got, err := ParsePercent(v); err != nil || got != want {
			t.Errorf("share %q: %v, %v", v, got, err)
		}
	}
	for _, v := range []string{"", "ms", "-1ms", "1.2.3s", "5 s", "1m", "3600s1", "4000s", "1e3", "inf", "nan", "40", "0.5"} {
		if got, err := ParseTime(v); err == nil {
			t.Errorf("time %q is %v", v, got)
		}
	}
	for _, v := range []string{"", "mbit", "-1mbit", "20mb", "20mbits", "5bit", "1e99bit", "99999tbit", "20", "1000000"} {
		if got, err := ParseRate(v); err == nil {
			t.Errorf("rate %q is %v", v, got)
		}
	}
	for _, v := range []string{"", "%", "-1%", "101%", "2%%", "2 %", "0.01", ".5"} {
		if got, err := ParsePercent(v); err == nil {
			t.Errorf("share %q is %v", v, got)
		}
	}
}

// plainState is an interface without impairments.
var plainState = State{Carrier: true}

// becomes returns the state after applying the steps one after another.
func becomes(t *testing.T, have State, direction string, steps ...string) State {
	t.Helper()
	ways, err := ParseWays(direction)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range steps {
		s, err := ParseStep("eth1", ways, strings.Fields(words))
		if err != nil {
			t.Fatal(err)
		}
		if have, err = s.from(have); err != nil {
			t.Fatal(err)
		}
	}
	return have
}

func TestSteps(t *testing.T) {
	same := func(i stacknet.Impairment) [2]stacknet.Impairment { return [2]stacknet.Impairment{i, i} }
	netem := stacknet.Netem{Delay: 80 * time.Millisecond, Loss: 0.02}
	for name, c := range map[string]struct {
		direction string
		steps     []string
		want      State
	}{
		"what is named":     {"both", []string{"delay 80ms", "loss 2%"}, State{true, same(stacknet.Impairment{Netem: netem})}},
		"at once":           {"both", []string{"loss 2% delay 80ms"}, State{true, same(stacknet.Impairment{Netem: netem})}},
		"seed":              {"both", []string{"loss 2% delay 80ms seed 7"}, State{true, same(stacknet.Impairment{Netem: stacknet.Netem{Delay: 80 * time.Millisecond, Loss: 0.02, Seed: 7}})}},
		"no seed":           {"both", []string{"loss 2% delay 80ms seed 7", "seed 0"}, State{true, same(stacknet.Impairment{Netem: netem})}},
		"seed of nothing":   {"both", []string{"loss 2% seed 7", "loss 0"}, plainState},
		"down":              {"both", []string{"down"}, State{false, same(stacknet.Impairment{Drop: true})}},
		"down and up":       {"both", []string{"delay 80ms loss 2%", "down", "up"}, State{true, same(stacknet.Impairment{Netem: netem})}},
		"silent and up":     {"both", []string{"silent", "up"}, plainState},
		"clear":             {"both", []string{"delay 80ms", "down", "clear"}, plainState},
		"clear, then":       {"both", []string{"rate 1mbit", "delay 80ms clear loss 2%"}, State{true, same(stacknet.Impairment{Netem: netem})}},
		"nought takes away": {"both", []string{"delay 80ms limit 7", "delay 0"}, plainState},
		"in":                {"in", []string{"silent"}, State{true, [2]stacknet.Impairment{{Drop: true}, {}}}},
		"out":               {"out", []string{"loss 2% delay 80ms"}, State{true, [2]stacknet.Impairment{{}, {Netem: netem}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := becomes(t, plainState, c.direction, c.steps...); !cmp.Equal(got, c.want) {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
	// A step in one direction changes neither the other direction nor the
	// carrier.
	cut := becomes(t, plainState, "both", "down delay 80ms")
	if got := becomes(t, cut, "in", "clear"); got.Carrier || got.Ways[stacknet.In] != (stacknet.Impairment{}) || got.Ways[stacknet.Out] != cut.Ways[stacknet.Out] {
		t.Errorf("%+v", got)
	}
}

func TestWrongSteps(t *testing.T) {
	for words, want := range map[string]string{
		"":                     "eth1: missing step; expected",
		"mtu 1300":             `lklctl link set eth1 mtu`,
		"dely 80ms":            `step "dely"; expected down, up, silent, delay`,
		"delay":                "delay: missing value",
		"delay fast":           `delay "fast"; expected a time such as 80ms`,
		"delay 40":             `delay "40": a time requires a unit, such as 40ms`,
		"delay 40ms jitter 5":  `jitter "5": a time requires a unit, such as 5ms`,
		"rate 20":              `rate "20": a rate requires a unit, such as 20mbit`,
		"loss 0.01":            `loss "0.01": a percentage below 1 requires its sign: 0.01%, or 1% if it is a probability`,
		"loss 2% loss 3%":      "loss: given twice",
		"down up":              "down, up or silent: given twice",
		"limit 0":              `limit "0"; expected a number of packets`,
		"rate 20mpit delay 1s": `rate "20mpit"; expected a rate such as 20mbit`,
		"limit 5":              "limit requires a delay or a rate",
		"loss 2% seed -1":      `seed "-1"; expected a number from 1 to 4294967295, or 0 for none`,
		"loss 2% seed 1<<32":   `seed "1<<32"; expected a number`,
		"delay 1ms seed 7":     "seed requires something random",
		"reorder 5%":           "reorder requires a delay",
		"delay 1ms jitter 2ms": "the jitter 2ms is greater than the delay 1ms",
	} {
		s, err := ParseStep("eth1", both, strings.Fields(words))
		if err == nil {
			_, err = s.from(plainState)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", words, err, want)
		}
	}
	if _, err := ParseStep("eth1", []stacknet.Way{stacknet.In}, []string{"down"}); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Errorf("down in one direction: %v", err)
	}
	if _, err := ParseWays("up"); err == nil {
		t.Error("a direction called up")
	}
}

// The queue length depends on the delay and the rate, unless the user sets it.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		e    stacknet.Netem
		want uint32
	}{
		{stacknet.Netem{Rate: 12e6}, 100},                               // 100 ms at 1000 packets per second
		{stacknet.Netem{Rate: 12e6, Delay: 50 * time.Millisecond}, 150}, // plus the delayed packets
		{stacknet.Netem{Rate: 1e5}, 20},
		{stacknet.Netem{Loss: 0.5}, 1000},
		{stacknet.Netem{Delay: 120 * time.Millisecond}, 100000},
	} {
		if got := room(c.e, 1500); got != c.want {
			t.Errorf("%+v: %d, want %d", c.e, got, c.want)
		}
	}
}
