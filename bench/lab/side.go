// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/table"
)

// wakeupPeriod is the interval between two counts of wake-ups.
const wakeupPeriod = 500 * time.Millisecond

// errNoGroup means that the processes of one side cannot be told from the others.
var errNoGroup = errors.New("counting the CPU time of one side requires a cpuacct control group")

// A Side is a control group for the processes of one side. It is inside the group of the
// Account, so its CPU time counts for both. The threads of the host's kernel that read
// a device belong to it if the device's name begins with that of the Side.
type Side struct {
	dir string
	lab *Lab
}

// Side makes a group for one side. The end of the scenario removes it.
func (l *Lab) Side(name string) (*Side, error) {
	group := os.Getenv(AccountEnv)
	if group == "" {
		return nil, errNoGroup
	}
	s := &Side{dir: filepath.Join(group, name), lab: l}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	l.Cleanup(func() { _ = RemoveGroup(s.dir) }) // removing the outer group reports a failure
	if _, err := os.Stat(s.usage()); err != nil {
		return nil, errNoGroup
	}
	return s, nil
}

func (s *Side) usage() string { return filepath.Join(s.dir, "cpuacct.usage") }

// Sample runs a command like Lab.Sample, with all its processes in the group. The
// command's own CPU time is that of the group. Sample adds the wake-ups per second:
// the voluntary context switches of all threads of the group, without the first
// seconds, which include the start.
func (s *Side) Sample(ctx context.Context, argv ...string) (table.Sample, error) {
	// "ip netns exec" hides the control groups, so the shell comes first.
	line := append([]string{"sh", "-c", `echo 0 >"$0/cgroup.procs" && exec "$@" 3<"$0/cpuacct.usage"`, s.dir}, argv...)
	done := make(chan struct{})
	rate := make(chan float64)
	go func() { rate <- s.wakeups(done) }()
	sample, err := s.lab.Sample(ctx, line...)
	close(done)
	r := <-rate
	if err != nil {
		return nil, err
	}
	sample["wake-ups/s"] = r
	return sample, nil
}

// wakeups counts until the command is done, and returns the rate from the third count to
// the last.
func (s *Side) wakeups(done <-chan struct{}) float64 {
	tick := time.NewTicker(wakeupPeriod)
	defer tick.Stop()
	var began, at time.Time
	first, last := map[string]uint64{}, map[string]uint64{}
	for counts := 0; ; counts++ {
		select {
		case <-done:
			sum := uint64(0)
			for tid, n := range last {
				sum += n - first[tid]
			}
			if !at.After(began) {
				return 0
			}
			return float64(sum) / at.Sub(began).Seconds()
		case at = <-tick.C:
		}
		now := s.switches()
		if counts < 2 {
			began, first = at, now
		}
		for tid, n := range now {
			last[tid] = n
		}
	}
}

// switches returns the voluntary context switches of each thread in the group. Threads
// may end meanwhile.
func (s *Side) switches() map[string]uint64 {
	counts := map[string]uint64{}
	tids, err := os.ReadFile(filepath.Join(s.dir, "tasks"))
	if err != nil {
		return counts
	}
	for _, tid := range strings.Fields(string(tids)) {
		status, err := os.ReadFile(filepath.Join("/proc", tid, "status"))
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(status, []byte("\nvoluntary_ctxt_switches:"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		if n, err := strconv.ParseUint(strings.TrimSpace(string(line)), 10, 64); err == nil {
			counts[tid] = n
		}
	}
	return counts
}
