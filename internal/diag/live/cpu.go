// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"time"

	"github.com/lklrun/lklrun/internal/base/procstat"
	"github.com/lklrun/lklrun/internal/diag/ask"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// cpuSample is the CPU time that the processes of an instance had used.
type cpuSample struct {
	stack  map[int]procstat.Process // lklhost; empty with engine preload
	target map[int]procstat.Process // processes below lklhost
}

// readCPU reads it from /proc of this machine, or asks the machine of the instance. If
// lklrun there has ended, it is unknown.
func readCPU(ctx context.Context, conn *stackconn.Conn, info *instance.Info) (cpuSample, error) {
	host := int(conn.Hello().HostPID)
	all, err := map[int]procstat.Process(nil), error(nil)
	if host == 0 {
		host = info.HostPID
		var used ask.Used
		used, err = ask.Do(ctx, conn, ask.Usage, struct{}{}, nil)
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

// cpuOf sorts processes; host is lklhost's pid.
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

// since is the CPU time used since before, in relation to the time between.
func (s cpuSample) since(before cpuSample, took time.Duration) CPU {
	return CPU{Stack: percent(s.stack, before.stack, took), Target: percent(s.target, before.target, took)}
}

// percent is the usage of processes in percent of one core. A new process counts in full.
// The time of a process that has ended is lost, except for what its parent was credited
// with. It is absent if no process reports its time.
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
