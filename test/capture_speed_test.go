// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/testutil"
)

// captureRounds is how often each way is measured, in turns.
const captureRounds = 3

// What a capture with a snap length of 128 bytes costs a transfer, at 5 Gbit/s and
// as fast as it goes: `make capture` measures for DURATION seconds in all of each
// way, and fails when one at 5 Gbit/s is slowed by more than 10 %.
func TestCaptureSpeed(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv("CAPTURE_SECONDS"))
	if err != nil {
		t.Skip("a measurement: make capture")
	}
	for _, engine := range []string{"supervise", "preload"} {
		for _, rate := range []string{"5G", "0"} {
			t.Run(engine+" "+rate, func(t *testing.T) {
				speeds := map[bool][]float64{}
				for range captureRounds {
					for _, with := range []bool{false, true} {
						speeds[with] = append(speeds[with], captureSpeed(t, engine, rate, max(seconds/captureRounds, 1), with))
					}
				}
				without, with := median(speeds[false]), median(speeds[true])
				t.Logf("%s, rate %s: %.2f Gbit/s without a capture, %.2f with one: %.3f of it; each %.2f %.2f",
					engine, rate, without/1e9, with/1e9, with/without, speeds[false], speeds[true])
				if rate == "5G" && with < 0.9*without {
					t.Errorf("a capture slows the transfer to %.3f", with/without)
				}
			})
		}
	}
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// captureSpeed is the rate of one transfer in bit/s, with or without a capture.
func captureSpeed(t *testing.T, engine, rate string, seconds int, with bool) float64 {
	t.Helper()
	s := newCaptureSite(t, engine, "iperf3", "-J", "-c", "10.77.1.1", "-t", fmt.Sprint(seconds), "-b", rate)
	wait := time.Duration(seconds)*time.Second + limit
	if !with {
		return iperf3Speed(t, s.target.Wait(wait))
	}
	p := s.captures("-i", "eth0", "-s", "128", "-w", filepath.Join(s.dir, "file"))
	speed := iperf3Speed(t, s.target.Wait(wait))
	r := p.Wait(limit)
	if r.Status != 0 {
		t.Fatalf("the capture: %v", r)
	}
	t.Log(r.Stderr)
	return speed
}

func iperf3Speed(t *testing.T, r testutil.Result) float64 {
	t.Helper()
	var doc struct {
		End struct {
			Sent struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_sent"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &doc); err != nil || r.Status != 0 || doc.End.Sent.Rate == 0 {
		t.Fatalf("iperf3: %v", r)
	}
	return doc.End.Sent.Rate
}
