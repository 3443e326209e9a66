// SPDX-License-Identifier: Apache-2.0

//go:build measure

package capture

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// captureRounds is the number of measurements of each variant, in turns.
const captureRounds = 3

// TestCaptureSpeed measures the cost of a capture with a snap length of 128 bytes, for
// a transfer at 5 Gbit/s and for one at full speed. `make capture` measures each
// variant for DURATION seconds in total. It fails if the capture slows a transfer at 5
// Gbit/s by more than 10 %.
func TestCaptureSpeed(t *testing.T) {
	seconds := kit.Setting(t, "CAPTURE_SECONDS", 60)
	for _, engine := range []string{"supervise", "preload"} {
		for _, rate := range []string{"5G", "0"} {
			t.Run(engine+" "+rate, func(t *testing.T) {
				speeds, work := map[bool][]float64{}, map[bool][]float64{}
				for range captureRounds {
					for _, with := range []bool{false, true} {
						speed, cpu := captureSpeed(t, engine, rate, max(seconds/captureRounds, 1), with)
						speeds[with], work[with] = append(speeds[with], speed), append(work[with], cpu)
					}
				}
				without, with := median(speeds[false]), median(speeds[true])
				t.Logf("%s, rate %s: %.2f Gbit/s without a capture, %.2f with one: %.3f of it; each %.2f %.2f",
					engine, rate, without/1e9, with/1e9, with/without, speeds[false], speeds[true])
				t.Logf("processor time of the stack, seconds for a gigabyte: %.3f and %.3f: %.3f of it; each %.3f %.3f",
					median(work[false]), median(work[true]), median(work[true])/median(work[false]), work[false], work[true])
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

// captureSpeed returns the rate of one transfer in bit/s, with or without a capture,
// and the CPU time of the process with the stack, in seconds per 10^9 bytes.
func captureSpeed(t *testing.T, engine, rate string, seconds int, with bool) (speed, cpu float64) {
	t.Helper()
	s := newCaptureSite(t, engine, "iperf3", "-J", "-c", "10.77.1.1", "-t", fmt.Sprint(seconds), "-b", rate)
	wait := time.Duration(seconds)*time.Second + kit.Limit
	key := map[string]string{"supervise": "host_pid", "preload": "target_pid"}[engine]
	kit.WaitFor(t, "the program", kit.Limit, func() bool {
		return strings.Contains(kit.Lklctl(t, "-n", s.name, "list", "-o", "json"), `"target_pid"`)
	})
	pid := kit.ProcessOf(t, &kit.Talker{T: t, Name: s.name}, key)
	var p *kit.Proc
	if with {
		p = s.captures("-i", "eth0", "-s", "128", "-w", filepath.Join(s.dir, "file"))
	}
	var used float64
	kit.WaitFor(t, "the transfer's end", wait, func() bool {
		if now, ok := cpuSeconds(pid); ok {
			used = now
		}
		return !s.target.Running()
	})
	r := s.target.Wait(wait)
	var doc struct {
		End struct {
			Sent struct {
				Rate  float64 `json:"bits_per_second"`
				Bytes float64 `json:"bytes"`
			} `json:"sum_sent"`
		} `json:"end"`
	}
	sent := &doc.End.Sent
	if err := json.Unmarshal([]byte(r.Stdout), &doc); err != nil || r.Status != 0 || sent.Bytes == 0 {
		t.Fatalf("iperf3: %v", r)
	}
	if with {
		r := p.Wait(kit.Limit)
		if r.Status != 0 {
			t.Fatalf("the capture: %v", r)
		}
		t.Log(r.Stderr)
	}
	return sent.Rate, used / (sent.Bytes / 1e9)
}

// cpuSeconds returns the CPU time of a process: fields 14 and 15 of /proc/PID/stat, in
// hundredths of a second.
func cpuSeconds(pid int) (float64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if err != nil || len(f) < 13 {
		return 0, false
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100, true
}
