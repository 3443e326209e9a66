// SPDX-License-Identifier: Apache-2.0

// Package usage measures what a run costs: time, CPU time, bytes.
package usage

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// Report holds the costs of a run, as `lklrun ab` compares them. Unknown values
// are nil.
type Report struct {
	Seconds  float64          `json:"seconds"`                  // time from the command's release to its end
	User     *float64         `json:"user_s,omitempty"`         // CPU time of the command and of the stack host in user mode
	System   *float64         `json:"system_s,omitempty"`       // CPU time of both in kernel mode
	Stack    *float64         `json:"stack_s,omitempty"`        // part of user_s and system_s that the stack host used
	Received *int64           `json:"bytes_received,omitempty"` // bytes received by the command through the stack's sockets
	Sent     *int64           `json:"bytes_sent,omitempty"`     // bytes sent by the command through these sockets
	Counters map[string]int64 `json:"counters,omitempty"`       // changes of the stack's counters, except those that are 0
}

// Options are the parameters of a Meter.
type Options struct {
	Conn    *stackconn.Conn
	HostPID int    // PID of lklhost
	Engine  string // engine of the run
	Log     *slog.Logger
}

// Meter measures the costs of a run. It reads the values before the target is
// released and after its end.
type Meter struct {
	Options
	report   Report
	counters counters.Reading
	host     cpuTimes // CPU time of lklhost itself at the release
	children cpuTimes // CPU time of lklrun's reaped children at the release
	released time.Time

	mu    sync.Mutex
	ended time.Time
}

// limit bounds one measurement.
const limit = 2 * time.Second

// Start reads the first values, right before the target's release.
func (p *Meter) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	set, err := counters.Read(ctx, p.Conn)
	if err != nil {
		return fmt.Errorf("reading the counters: %w", err)
	}
	p.counters = counters.Take(set, time.Now())
	p.host = readCPU(p.HostPID)
	p.children = childrenCPU()
	p.released = time.Now()
	return nil
}

// End records the time of the target's end. Later calls have no effect. A nil
// Meter does nothing.
func (p *Meter) End() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.IsZero() {
		p.ended = time.Now()
	}
}

// Stop reads the last values, after the target has ended and while the stack
// still runs.
func (p *Meter) Stop() {
	p.End()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if now := readCPU(p.HostPID); now.known && p.host.known && p.Engine != config.EnginePreload {
		stack := now.user - p.host.user + now.system - p.host.system
		p.report.Stack = &stack
	}
	set, err := counters.Read(ctx, p.Conn)
	if err != nil {
		p.Log.Debug("the counters at the end", "error", err)
		return
	}
	p.report.Counters = map[string]int64{}
	for _, c := range p.counters.Since(set, time.Now()) {
		if c.Kind == counters.Count && c.Difference != 0 {
			p.report.Counters[c.Name] = c.Difference
		}
	}
}

// Report returns the costs. It must be called after the end of the run.
func (p *Meter) Report(a *account.Final) Report {
	p.mu.Lock()
	p.report.Seconds = p.ended.Sub(p.released).Seconds()
	p.mu.Unlock()
	// lklhost and its descendants have been reaped by now. The CPU time
	// that they used before the release belongs to the start, so it is
	// subtracted.
	if now := childrenCPU(); now.known && p.children.known && p.host.known {
		user := max(0, now.user-p.children.user-p.host.user)
		system := max(0, now.system-p.children.system-p.host.system)
		p.report.User, p.report.System = &user, &system
	}
	p.report.Received, p.report.Sent = a.Value("bytes.received"), a.Value("bytes.sent")
	return p.report
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

// readCPU returns the CPU time that a process has used so far. It reads fields
// 14 and 15 of /proc/PID/stat, in units of 1/100 s (proc_pid_stat(5); USER_HZ
// is 100 on all supported architectures).
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
