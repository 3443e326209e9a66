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

	"github.com/lklrun/lklrun/internal/counters"
	"github.com/lklrun/lklrun/pkg/config"
)

// Report is what a run cost, as `lklrun ab` compares it. What is not known is nil.
type Report struct {
	Seconds  float64          `json:"seconds"`                  // from the command's release to its end
	User     *float64         `json:"user_s,omitempty"`         // CPU time of the command and of the stack host, outside the kernel
	System   *float64         `json:"system_s,omitempty"`       // and inside
	Stack    *float64         `json:"stack_s,omitempty"`        // of these, the stack host's alone
	Received *int64           `json:"bytes_received,omitempty"` // by the command, through the stack's sockets
	Sent     *int64           `json:"bytes_sent,omitempty"`     // likewise
	Counters map[string]int64 `json:"counters,omitempty"`       // of the stack: by how much each that counts has changed
}

// reporter looks before the target is released, and when it has ended.
type reporter struct {
	r        *run
	report   Report
	counters counters.Reading
	host     cpuTimes // lklhost's own at the release
	children cpuTimes // of lklrun at the release
	released time.Time

	mu    sync.Mutex
	ended time.Time
}

// startReport begins to look, right before the target's release, if anybody wants
// to know. It ends as the first of the services.
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

// reportLimit bounds one look.
const reportLimit = 2 * time.Second

// Start looks for the first time.
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

// end notes when the target had ended: who hears of it first says so.
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

// Stop looks again: the target has ended, and the stack goes on for the moment.
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

// tell hands the report over, once the run is over.
func (p *reporter) tell() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.report.Seconds = p.ended.Sub(p.released).Seconds()
	p.mu.Unlock()
	// lklhost has been waited for, with all that it has waited for; what it had
	// used by the release was for the start.
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

// cpuTimes are seconds of CPU time.
type cpuTimes struct {
	user, system float64
	known        bool
}

// childrenCPU is that of the children that have been waited for, and of theirs.
func childrenCPU() cpuTimes {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	return cpuTimes{time.Duration(u.Utime.Nano()).Seconds(), time.Duration(u.Stime.Nano()).Seconds(), err == nil}
}

// readCPU is a process's own so far: fields 14 and 15 of /proc/PID/stat, in units
// of 1/100 s (proc_pid_stat(5); USER_HZ is 100 on every architecture of ours).
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
