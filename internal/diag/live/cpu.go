// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"time"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// cpuSample is the CPU time of an instance's processes up to one moment.
type cpuSample struct {
	stack  map[int]procstat.Process // lklhost; empty with engine preload
	target map[int]procstat.Process // processes below lklhost
}

// readCPU reads the CPU time from this machine's /proc, or requests it from the
// instance's machine. If lklrun on that machine has ended, the CPU time is unknown.
func readCPU(ctx context.Context, conn *stackconn.Conn, info *instance.Info) (cpuSample, error) {
	host := int(conn.Hello().HostPID)
	all, err := map[int]procstat.Process(nil), error(nil)
	if host == 0 {
		host = info.HostPID
		var used rpc.Used
		used, err = rpc.Do(ctx, conn, rpc.Usage, struct{}{}, nil)
		all = used.Processes
		if err != nil && !errors.Is(err, stackconn.ErrClosed) && ctx.Err() == nil {
			err = nil
		}
	} else {
		all, err = procstat.List(procstat.Root)
	}
	if err != nil {
		return cpuSample{}, err
	}
	return cpuOf(all, host, info.Engine), nil
}

// cpuOf separates the processes of the stack from those of the target. host is lklhost's
// PID.
func cpuOf(all map[int]procstat.Process, host int, engine string) cpuSample {
	s := cpuSample{stack: map[int]procstat.Process{}, target: map[int]procstat.Process{}}
	for _, pid := range procstat.Below(all, host) {
		s.target[pid] = all[pid]
	}
	if p, ok := all[host]; ok && engine != config.EnginePreload {
		s.stack[host] = p
	}
	return s
}

// since returns the CPU usage since before. took is the time between the two samples.
func (s cpuSample) since(before cpuSample, took time.Duration) CPU {
	return CPU{Stack: percent(s.stack, before.stack, took), Target: percent(s.target, before.target, took)}
}

// percent returns the usage of processes in percent of one core. The whole CPU time of a
// new process counts. The time of an ended process is lost, except for the part that the
// kernel credited to its parent. percent returns nil if no process reports its time.
func percent(now, before map[int]procstat.Process, took time.Duration) *float64 {
	var used time.Duration
	known := false
	for pid, p := range now {
		if !p.CPUKnown {
			continue
		}
		known = true
		used += p.CPU
		if was, ok := before[pid]; ok && was.Start == p.Start {
			used -= min(was.CPU, p.CPU)
		}
	}
	if !known || took <= 0 {
		return nil
	}
	f := 100 * used.Seconds() / took.Seconds()
	return &f
}
