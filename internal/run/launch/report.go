// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/pkg/config"
)

// Report holds the costs of a run, as `lklrun ab` compares them. Unknown values
// are nil.
type Report struct {
	Seconds  float64          `json:"seconds"`                  // time from the command's release to its end
	User     *float64         `json:"user_s,omitempty"`         // CPU time of the command and of the stack host, in user mode
	System   *float64         `json:"system_s,omitempty"`       // the same in kernel mode
	Stack    *float64         `json:"stack_s,omitempty"`        // the stack host's part of both
	Received *int64           `json:"bytes_received,omitempty"` // bytes received by the command through the stack's sockets
	Sent     *int64           `json:"bytes_sent,omitempty"`     // bytes sent by the command through these sockets
	Counters map[string]int64 `json:"counters,omitempty"`       // changes of the stack's counters, except those that are 0
}

// reporter takes its values before the target is released and after its end.
type reporter struct {
	r        *run
	report   Report
	counters counters.Reading
	host     cpuTimes // lklhost's own at the release
	children cpuTimes // lklrun's children at the release
	released time.Time

	mu    sync.Mutex
	ended time.Time
}

// startReport takes the first values right before the target's release, if a
// report is wanted. The reporter stops before the other services.
func (r *run) startReport(ctx context.Context) error {
	if r.opts.Report == nil {
		return nil
	}
	p := &reporter{r: r}
	if err := p.Start(ctx); err != nil {
		return err
	}
	r.reporter = p
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	r.live.services = append(r.live.services, p)
	return nil
}

// reportLimit bounds one measurement.
const reportLimit = 2 * time.Second

// Start takes the first values.
func (p *reporter) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	set, err := counters.Read(ctx, p.r.conn)
	if err != nil {
		return fmt.Errorf("reading the counters: %w", err)
	}
	p.counters = counters.Take(set, time.Now())
	p.host = readCPU(p.r.state.HostPID)
	p.children = childrenCPU()
	p.released = time.Now()
	return nil
}

// end records the time of the target's end, at its first call.
func (p *reporter) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.IsZero() {
		p.ended = time.Now()
	}
}

// Stop takes the last values: the target has ended, and the stack still runs.
func (p *reporter) Stop() {
	p.end()
	ctx, cancel := context.WithTimeout(context.Background(), reportLimit)
	defer cancel()
	if now := readCPU(p.r.state.HostPID); now.known && p.host.known && p.r.plan.Engine != config.EnginePreload {
		stack := now.user - p.host.user + now.system - p.host.system
		p.report.Stack = &stack
	}
	set, err := counters.Read(ctx, p.r.conn)
	if err != nil {
		p.r.log.Debug("the counters at the end", "error", err)
		return
	}
	p.report.Counters = map[string]int64{}
	for _, c := range p.counters.Since(set, time.Now()) {
		if c.Kind == counters.Count && c.Difference != 0 {
			p.report.Counters[c.Name] = c.Difference
		}
	}
}

// tell passes on the report after the end of the run.
func (p *reporter) tell() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.report.Seconds = p.ended.Sub(p.released).Seconds()
	p.mu.Unlock()
	// lklhost and its reaped descendants have been reaped by now. Their CPU
	// time before the release belongs to the start.
	if now := childrenCPU(); now.known && p.children.known && p.host.known {
		user := max(0, now.user-p.children.user-p.host.user)
		system := max(0, now.system-p.children.system-p.host.system)
		p.report.User, p.report.System = &user, &system
	}
	if a := p.r.account; a != nil {
		known := func(name string) *int64 {
			if n, ok := a.value[name]; ok {
				return &n
			}
			return nil
		}
		p.report.Received, p.report.Sent = known("bytes.received"), known("bytes.sent")
	}
	p.r.opts.Report(p.report)
}

// cpuTimes are CPU times in seconds.
type cpuTimes struct {
	user, system float64
	known        bool
}

// childrenCPU returns the CPU time of the reaped children and of their reaped
// descendants.
func childrenCPU() cpuTimes {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	return cpuTimes{time.Duration(u.Utime.Nano()).Seconds(), time.Duration(u.Stime.Nano()).Seconds(), err == nil}
}

// readCPU returns the CPU time of a process so far: fields 14 and 15 of
// /proc/PID/stat, in units of 1/100 s (proc_pid_stat(5); USER_HZ is 100 on all
// supported architectures).
func readCPU(pid int) (t cpuTimes) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return t
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return t
	}
	user, err := strconv.ParseUint(f[11], 10, 64)
	system, err2 := strconv.ParseUint(f[12], 10, 64)
	return cpuTimes{float64(user) / 100, float64(system) / 100, err == nil && err2 == nil}
}
