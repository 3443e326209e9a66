// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/desk"
	"github.com/lklrun/lklrun/internal/remote/session"
	"github.com/lklrun/lklrun/internal/run/signals"
)

// envDevice is the environment variable with the default of --device. lklctl uses
// the same variable.
const envDevice = "LKLRUN_DEVICE"

// deviceFlags contains the devices that a command line names.
type deviceFlags struct {
	spec string
	stay bool
}

// add adds --device to a flag set.
func (d *deviceFlags) add(f *pflag.FlagSet, help string) {
	f.StringVar(&d.spec, "device", "", help)
}

// addStay adds --stay to a flag set.
func (d *deviceFlags) addStay(f *pflag.FlagSet) {
	f.BoolVar(&d.stay, "stay", false, "with --device: keep the run alive on the device after this command exits")
}

const deviceHelp = "run on this `DEVICE`: adb, adb:SERIAL, ssh:[USER@]HOST[:PORT], all (of adb), or a list with commas"

// targets returns the selected devices; none: this machine.
func (d *deviceFlags) targets(ctx context.Context) ([]remote.Target, error) {
	spec, by := d.spec, "--device"
	if spec == "" {
		spec, by = os.Getenv(envDevice), envDevice
	}
	if spec == "" {
		if d.stay {
			return nil, cli.Usagef("--stay: requires --device; to run in the background on this machine, use --detach")
		}
		return nil, nil
	}
	all, err := remote.Parse(spec)
	if err != nil {
		return nil, cli.Usagef("%s %w", by, err)
	}
	return remote.Expand(ctx, all)
}

// place is one of the devices of a run.
type place struct {
	target remote.Target
	ready  *remote.Ready
	end    exit.End
	err    error
}

// run runs the command on the devices, if the command line names any.
func (d *deviceFlags) run(ctx context.Context, r *runner, args []string) (done bool, err error) {
	defer func() {
		var sig *signals.AbortError
		if errors.As(err, &sig) {
			r.end, err = exit.End{Signal: sig.Signal}, nil
		}
	}()
	// Catch signals only if the command line names a device. A local run catches
	// signals itself, and would lose signals caught here.
	targets, err := d.targets(ctx)
	if err != nil || len(targets) == 0 {
		return err != nil, err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	j, err := r.job(args)
	if err != nil {
		return true, &cli.UsageError{Err: err}
	}
	if err := j.check(len(targets), j.run.Detach); err != nil {
		return true, err
	}
	places := make([]*place, len(targets))
	var wg sync.WaitGroup
	bar := &progress{}
	for n, t := range targets {
		places[n] = &place{target: t}
		wg.Go(func() { places[n].open(ctx, j, bar.show) })
	}
	wg.Wait()
	bar.end()
	defer func() {
		for _, p := range places {
			if p.ready != nil {
				p.ready.Close()
			}
		}
	}()
	stop() // from now on, signals are forwarded to the command
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	if len(places) == 1 {
		if places[0].err != nil {
			return true, places[0].err
		}
		if r.end, err = desk.Run(ctx, places[0].ready, j.start(places[0].ready)); err != nil {
			return true, errRun{err}
		}
		ctx, stop := interruptible(ctx) // the command has ended, so handle signals here again
		defer stop()
		return true, j.fetch(ctx, places[0].ready)
	}
	r.end, err = together(ctx, places, j)
	return true, err
}

// open prepares a device.
func (p *place) open(ctx context.Context, j *job, show func(string, int64, int64)) {
	dev, err := remote.Open(ctx, p.target)
	if err != nil {
		p.err = err
		return
	}
	ready, err := remote.Prepare(ctx, dev, remote.Options{Progress: show, NeedRoot: j.root})
	if err == nil {
		err = j.put(ctx, ready)
	}
	if err != nil {
		dev.Close()
		p.err = err
		return
	}
	p.ready = ready
}

// interruptible returns a context that a terminating signal ends, with the signal
// as the cause. The returned function stops catching signals. If a signal arrived
// earlier, the context is done when this function returns.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	var heard sync.WaitGroup
	heard.Go(func() {
		if s, ok := <-caught; ok {
			cancel(&signals.AbortError{Signal: s.(unix.Signal)})
		}
	})
	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			signal.Stop(caught) // no more signals are sent to the channel
			close(caught)
			heard.Wait()
		})
	}
}

// together runs the command on several devices at once. Each line of output is
// prefixed with the device's name. All devices receive the same input. At the end,
// together prints a table of the results. The overall result is the first result
// other than 0.
func together(ctx context.Context, places []*place, j *job) (exit.End, error) {
	signals := desk.CatchSignals()
	var lines sync.Mutex
	var wg sync.WaitGroup
	var inputs []*io.PipeWriter
	var each []chan os.Signal
	for _, p := range places {
		if p.err != nil {
			continue
		}
		read, write := io.Pipe()
		sig := make(chan os.Signal, 64)
		inputs, each = append(inputs, write), append(each, sig)
		prefix := "[" + p.target.String() + "] "
		out, errs := &prefixed{w: os.Stdout, mu: &lines, prefix: prefix}, &prefixed{w: os.Stderr, mu: &lines, prefix: prefix}
		far := remote.Desk{Start: j.start(p.ready), Stdin: read, Stdout: out, Stderr: errs, Signals: sig}
		wg.Go(func() {
			defer read.Close()
			p.end, p.err = p.ready.Serve(ctx, far)
			out.end()
			errs.end()
		})
	}
	go func() {
		for s := range signals {
			for _, c := range each {
				select {
				case c <- s:
				default: // the receiver has ended
				}
			}
		}
	}()
	go deal(os.Stdin, inputs)
	wg.Wait()
	return outcome(places)
}

// deal copies r to each of the inputs. If a device no longer reads its input, deal
// drops this input. The slowest input limits the speed.
func deal(r io.Reader, inputs []*io.PipeWriter) {
	buf := make([]byte, session.MaxFrame)
	for len(inputs) > 0 {
		n, err := r.Read(buf)
		inputs = slices.DeleteFunc(inputs, func(w *io.PipeWriter) bool {
			_, werr := w.Write(buf[:n])
			if err != nil {
				w.Close()
			}
			return werr != nil
		})
		if err != nil {
			return
		}
	}
}

// outcome prints the result on each device, and returns the overall result.
func outcome(places []*place) (exit.End, error) {
	t := cli.NewTable("DEVICE", "STATUS", "OUTCOME")
	first := exit.End{}
	for _, p := range places {
		end, outcome := p.end, "ended"
		switch {
		case p.err != nil:
			end = exit.End{Status: exit.Status(p.err)}
			var own *remote.Error
			outcome = p.err.Error()
			if errors.As(p.err, &own) {
				outcome = own.Err.Error()
			}
		case end.Signal != 0:
			outcome = "ended by " + unix.SignalName(end.Signal)
			end = exit.End{Status: 128 + int(end.Signal)}
		}
		if first.Status == 0 {
			first = end
		}
		t.Row(p.target.String(), fmt.Sprint(end.Status), text.OneLine(outcome))
	}
	return first, t.Write(os.Stderr)
}

// prefixed writes whole lines, each with a prefix.
type prefixed struct {
	w      io.Writer
	mu     *sync.Mutex
	prefix string
	rest   []byte
}

// maxLine is the length at which prefixed splits a line without a newline.
const maxLine = 16 << 10

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		n := bytes.IndexByte(p.rest, '\n')
		if n < 0 && len(p.rest) < maxLine {
			return len(b), nil
		}
		if n < 0 {
			n = len(p.rest) - 1
		}
		if err := p.line(p.rest[:n+1]); err != nil {
			return 0, err
		}
		p.rest = p.rest[n+1:]
	}
}

func (p *prefixed) line(text []byte) error {
	line := append([]byte(p.prefix), text...)
	if !bytes.HasSuffix(line, []byte("\n")) {
		line = append(line, '\n')
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(line)
	return err
}

// end writes the last line if it has no newline.
func (p *prefixed) end() {
	if len(p.rest) > 0 {
		_ = p.line(p.rest) // fails if the output was closed
	}
}

// progress is the progress bar during the upload of bundles.
type progress struct {
	mu   sync.Mutex
	bar  *progressbar.ProgressBar
	done map[string][2]int64
}

func (p *progress) show(device string, done, total int64) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = map[string][2]int64{}
		p.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowBytes(true), progressbar.OptionUseANSICodes(true), progressbar.OptionSetDescription("uploading"))
	}
	p.done[device] = [2]int64{done, total}
	var sum, all int64
	for _, d := range p.done {
		sum, all = sum+d[0], all+d[1]
	}
	p.bar.ChangeMax64(all)
	_ = p.bar.Set64(min(sum, all-1)) // only the end of the last upload completes the bar
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
