// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/bench/stacks"
)

// profileHertz is the sampling rate per CPU. It is a prime number, so that it does not
// coincide with periodic events.
const profileHertz = 1999

// ErrNoPerf is wrapped by errors that would repeat for every later profile, because
// perf cannot record on this machine.
var ErrNoPerf = errors.New("perf does not record here")

// windowEnv asks measured programs to report the interval in which their CPU time
// counts, in CLOCK_MONOTONIC and in these units (native/bench.h).
const (
	windowEnv   = "LKLRUN_BENCH_WINDOW"
	windowBegin = "begin-s"
	windowEnd   = "end-s"
)

// A Perf is a recording of all CPUs.
type Perf struct {
	l          *Lab
	dir        string
	proc       *Proc
	begin, end float64 // the measured interval, seconds of CLOCK_MONOTONIC
}

// Perf starts to record all CPUs with call graphs. The caller closes the recording.
// The event cpu-clock of perf(1) has two limits: time with interrupts disabled is
// attributed to the code that enables them again, and the stacks of code without
// frame pointers are truncated.
func (l *Lab) Perf(ctx context.Context) (*Perf, error) {
	if _, err := exec.LookPath("perf"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPerf, err)
	}
	dir, err := os.MkdirTemp("", "lklrun-bench-perf")
	if err != nil {
		return nil, err
	}
	p := &Perf{l: l, dir: dir}
	if err := p.start(ctx); err != nil {
		p.Close()
		return nil, err
	}
	l.mu.Lock()
	l.perf = p
	l.mu.Unlock()
	return p, nil
}

// start starts perf and returns when perf has answered, which means that it is
// recording.
func (p *Perf) start(ctx context.Context) error {
	var ends [2]*os.File
	for i, name := range []string{"ctl", "ack"} {
		if err := unix.Mkfifo(p.path(name), 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(p.path(name), os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		ends[i] = f
	}
	var err error
	// -N keeps perf from filling the build-id cache in the home directory, and -B
	// from collecting build IDs at the end.
	if p.proc, err = p.l.Start(ctx, "perf", "record", "-q", "-N", "-B", "-e", "cpu-clock", "-F", strconv.Itoa(profileHertz), "-a", "-g", "-k", "CLOCK_MONOTONIC",
		"-o", p.path("data"), "--control", "fifo:"+p.path("ctl")+","+p.path("ack")); err != nil {
		return err
	}
	if _, err := ends[0].WriteString("ping\n"); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		_ = ends[1].SetReadDeadline(time.Now().Add(SetupLimit)) // a FIFO supports deadlines
		_, err := io.ReadFull(ends[1], make([]byte, len("ack\n")))
		answered <- err
	}()
	select {
	case err = <-answered:
	case <-p.proc.Done():
		err = ErrNoPerf
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.Join(p.proc.Lines(), " "))
	}
	return nil
}

func (p *Perf) path(name string) string { return filepath.Join(p.dir, name) }

// Window reports the interval of a measurement to the current recording, if any, in
// seconds of CLOCK_MONOTONIC. Several intervals are merged into one.
func (l *Lab) Window(begin, end float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.perf; p != nil {
		if p.end == 0 || begin < p.begin {
			p.begin = begin
		}
		p.end = max(p.end, end)
	}
}

// Now returns the time of CLOCK_MONOTONIC in seconds.
func Now() float64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock exists
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}

// Stacks ends the recording and returns the stacks of the measured interval, by thread.
func (p *Perf) Stacks(ctx context.Context) (*stacks.Node, error) {
	p.stop()
	if p.end <= p.begin {
		return nil, errors.New("it was not said what time counts")
	}
	at := func(s float64) string { return strconv.FormatFloat(s, 'f', 6, 64) }
	out, err := p.l.Output(ctx, "perf", "script", "-i", p.path("data"), "--no-inline", "-F", "comm,tid,time,event,ip,sym,symoff,dso",
		"--time", at(p.begin)+","+at(p.end))
	if err != nil {
		return nil, err
	}
	return stacks.Read(strings.NewReader(out))
}

// Full returns the number of samples for a CPU that is never idle.
func (p *Perf) Full() float64 { return (p.end - p.begin) * profileHertz }

func (p *Perf) stop() {
	p.l.mu.Lock()
	p.l.perf = nil
	p.l.mu.Unlock()
	if p.proc != nil {
		p.proc.Stop()
	}
}

// Close ends the recording and deletes its files.
func (p *Perf) Close() {
	p.stop()
	_ = os.RemoveAll(p.dir) // our own directory in /tmp
}
