// SPDX-License-Identifier: Apache-2.0

// Package autocapture captures the packets of a run to files and to rings in memory,
// as requested with --capture.
package autocapture

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/diag/packets"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/capture"
	"github.com/lklrun/lklrun/pkg/config"
)

const (
	// farewellLimit bounds the wait for the last segments of the target's
	// connections. Without this wait, a capture would lack them. It is half
	// of the time that lklhost grants (FAREWELL_MS, csrc/host/lifecycle.c).
	farewellLimit = time.Second

	// writeLimit bounds the wait for a capture file at the end of the run.
	writeLimit = 5 * time.Second
)

// recording writes the stack's packets to a file or to a ring in memory. It
// starts before the stack is configured and ends with the stack. It has its own
// connection to lklhost, so that a slow disk delays nothing else. If the file
// cannot accept packets fast enough, the stack drops and counts them.
type recording struct {
	said  config.Capture
	links []plan.Link
	conn  *stackconn.Conn
	file  *captureFile  // nil if packets go to a ring
	ring  *capture.Ring // nil if packets go to a file
	stop  context.CancelFunc
	done  chan struct{} // closed when the session has ended and err is set
	err   error
	all   []*capture.Member
}

// Options are the parameters of a Recorder.
type Options struct {
	Name   string      // name of the instance
	Socket string      // path of the control socket
	Links  []plan.Link // links of the plan
	Keys   *os.File    // TLS secrets of the programs, for the files; nil: none
	Log    *slog.Logger
	Tell   func(string) // prints a line for the user
}

// Recorder manages the captures of a run. Its zero value has no captures.
type Recorder struct {
	Options
	all []*recording
}

// Start opens the files and starts the captures. If Start fails, End still ends
// the captures that were started.
func (r *Recorder) Start(ctx context.Context, captures []config.Capture) error {
	for _, c := range captures {
		rec, err := r.record(ctx, c)
		if err != nil {
			return fmt.Errorf("--capture %s: %w", c.File, err)
		}
		r.all = append(r.all, rec)
	}
	return nil
}

func (r *Recorder) record(ctx context.Context, c config.Capture) (*recording, error) {
	rec := &recording{said: c, links: r.Links, done: make(chan struct{})}
	take := capture.Take{Names: c.Interfaces, Snaplen: c.Snap, Filter: c.Filter, Annotate: true, Events: !c.Ring()}
	if c.Ring() && c.Snap == 0 {
		take.Snaplen = config.RingSnap
	}
	if r.Keys != nil && !c.Ring() {
		take.Keys = []*capture.Keys{capture.NewKeys(r.Keys)}
	}
	session, err := capture.NewSession(take)
	if err != nil {
		return nil, err
	}
	if c.Ring() {
		rec.ring = capture.NewRing(int(cmp.Or(c.Size, config.RingSize)))
	} else if rec.file, err = createCapture(c.File, r.Keys != nil); err != nil {
		return nil, err
	}
	if rec.conn, err = stackconn.Dial(ctx, r.Socket); err == nil {
		err = session.Add(ctx, packets.New(rec.conn), r.Name)
	}
	if err == nil && rec.file != nil {
		err = rec.file.begin()
	}
	if err != nil {
		rec.close()
		return nil, err
	}
	// ctx ends with the start; the capture lasts for the whole run.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	rec.stop = stop
	go func() {
		defer close(rec.done)
		rec.err = session.Run(running, rec)
		if rec.err != nil && !errors.Is(rec.err, capture.ErrDied) { // a panic is reported elsewhere and ends the command
			r.Tell(fmt.Sprintf("--capture %s stopped, and the command continues: %v", c.File, errno.Errno(rec.err)))
		}
	}()
	return rec, nil
}

// Interface adds the interface's configuration from the plan, because the stack
// has not configured the interface yet.
func (rec *recording) Interface(m *capture.Member) error {
	at := slices.IndexFunc(rec.links, func(l plan.Link) bool { return l.Name == m.Name })
	if at >= 0 {
		l := &rec.links[at]
		if len(m.Addrs) == 0 {
			m.Addrs = slices.Clone[[]netip.Prefix](l.Addrs)
		}
		if m.MAC != nil && !l.MAC.IsZero() {
			m.MAC = net.HardwareAddr(l.MAC[:])
		}
	}
	rec.all = append(rec.all, m)
	if rec.ring != nil {
		return rec.ring.Interface(m)
	}
	return rec.file.Interface(m)
}

// Packets passes packets to the ring or the file.
func (rec *recording) Packets(packets []capture.Packet) error {
	if rec.ring != nil {
		return rec.ring.Packets(packets)
	}
	return rec.file.Packets(packets)
}

// Events passes events to the file.
func (rec *recording) Events(events []capture.Event) error {
	if rec.file == nil {
		return nil
	}
	return rec.file.Events(events)
}

// Keys passes TLS secrets to the file.
func (rec *recording) Keys(lines []byte) error { return rec.file.Keys(lines) }

// Farewell ends the captures to files when the target has ended and its peers
// have received all its data. At that time, the stack can still report how many
// packets it dropped. If the wait takes too long, the captures end with the
// stack. Captures to a ring are not affected, because they end with the
// command.
func (r *Recorder) Farewell(conn *stackconn.Conn) {
	files := slices.DeleteFunc(slices.Clone(r.all), func(rec *recording) bool { return rec.ring != nil })
	if len(files) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewellLimit)
	defer cancel()
	for !quiet(ctx, conn) {
		select {
		case <-time.After(farewellLimit / 100):
		case <-ctx.Done():
			return
		}
	}
	for _, rec := range files {
		rec.stop()
	}
	for _, rec := range files {
		rec.over(ctx)
	}
}

// over waits for the end of the session and reports whether it has ended.
func (rec *recording) over(ctx context.Context) bool {
	select {
	case <-rec.done:
		return true
	default:
	}
	select {
	case <-rec.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// In these TCP states, a connection has nothing left to send and expects no
// answer (include/net/tcp_states.h).
const (
	stateFinWait2 = sockdiag.State(5)
	stateListen   = sockdiag.Listen
)

// quiet reports whether no connection of the stack has data left to send. It
// returns true if the stack does not answer.
func quiet(ctx context.Context, conn *stackconn.Conn) bool {
	sockets, err := sockdiag.List(ctx, conn, sockdiag.TCP)
	if err != nil {
		return true
	}
	return !slices.ContainsFunc(sockets, func(s sockdiag.Socket) bool {
		switch s.State {
		case stateListen, sockdiag.TimeWait, sockdiag.Close, stateFinWait2:
			return false
		}
		return true
	})
}

// End waits until the files are complete after the stack has ended, and reports
// missing packets.
func (r *Recorder) End() {
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	for _, rec := range r.all {
		rec.stop()
		rec.conn.Close()
		if rec.over(ctx) {
			r.finish(rec)
		} else { // the session's goroutine still uses the file, so do not touch it
			r.Tell(fmt.Sprintf("--capture %s: write failed (disk full or slow); the last packets are missing from the file", rec.said.File))
		}
	}
	r.all = nil
}

// finish closes a recording whose session has ended. File errors have already
// been reported and do not make the run fail.
func (r *Recorder) finish(rec *recording) {
	defer rec.close()
	if rec.ring != nil {
		return
	}
	if err := rec.file.finish(rec.err == nil || errors.Is(rec.err, capture.ErrDied)); err != nil {
		r.Tell(fmt.Sprintf("--capture %s: %v; the last packets are missing from the file", rec.said.File, errno.Errno(err)))
	}
	packets, _ := rec.file.Written()
	var dropped uint64
	for _, m := range rec.all {
		dropped += m.Stats(context.Background()).Dropped // the session has ended, so this does not query the stack
	}
	r.Log.Debug("captured", "file", rec.said.File, "packets", packets, "dropped", dropped)
	if dropped > 0 {
		r.Tell(fmt.Sprintf("--capture %s: %d packets were dropped because the disk was too slow", rec.said.File, dropped))
	}
}

// close releases the connection and the file.
func (rec *recording) close() {
	if rec.conn != nil {
		rec.conn.Close()
	}
	if rec.file != nil {
		rec.file.file.Close()
	}
}

// ringLimit bounds the wait for the last packets of a kernel that has panicked.
const ringLimit = 2 * time.Second

// ringApplication is the application name in a file with a ring's packets.
const ringApplication = "lklrun --capture ring"

// Ask answers rpc.Packets. It writes the packets of the ring to the file that was passed
// with the question.
func (r *Recorder) Ask(ctx context.Context, _ struct{}, file *os.File) (kept rpc.PacketsKept, err error) {
	for _, rec := range r.all {
		if rec.file != nil {
			kept.Files = append(kept.Files, rec.file.path)
			continue
		}
		kept.Ring = true
		if file == nil {
			return kept, rpc.Usagef("packets: the request has no file")
		}
		// A write to a pipe could block on its reader and delay the end
		// of the run.
		if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
			return kept, rpc.Usagef("packets: the file of the request is not a regular file")
		}
		if kept.Packets, err = rec.ring.Write(ctx, file, ringApplication); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// AddPackets adds the last packets before a panic to the report, and the paths of the other
// capture files.
func (r *Recorder) AddPackets(ctx context.Context, b *crash.Report) {
	var kept rpc.PacketsKept
	var text bytes.Buffer
	for _, rec := range r.all {
		if rec.file != nil {
			kept.Files = append(kept.Files, rec.file.path)
			continue
		}
		// The last packets may not have reached the ring yet. The session ends
		// after them, because the kernel is dead.
		ctx, cancel := context.WithTimeout(ctx, ringLimit)
		rec.over(ctx)
		kept.Ring = true
		var err error
		if kept.Packets, err = rec.ring.Write(ctx, &text, ringApplication); err != nil {
			b.NoteMissing(crash.PacketsFile, err)
		}
		cancel()
	}
	b.AddPackets(kept, text.Bytes())
}

// captureFile is the file of a recording. It implements capture.Handler.
type captureFile struct {
	*capture.Files // nil until begin is called

	path string // absolute, so that it is valid in other directories
	file *os.File
}

// createCapture creates the file.
func createCapture(path string, private bool) (*captureFile, error) {
	file, err := capture.Create(path, private)
	if err != nil {
		return nil, &exit.UsageError{Err: errno.Errno(err)}
	}
	f := &captureFile{path: path, file: file}
	if abs, err := filepath.Abs(path); err == nil {
		f.path = abs
	}
	return f, nil
}

// begin writes the file header. Each batch is written before the next one is
// requested, so the file is readable even if this process dies. If a write
// fails, the file is truncated to its complete blocks.
func (f *captureFile) begin() (err error) {
	f.Files, err = capture.NewFiles(capture.FileOptions{Path: "-", Out: f.file, Application: "lklrun --capture", PerBatch: true})
	return err
}

// finish completes and closes the file if good is set. Otherwise it does nothing.
func (f *captureFile) finish(good bool) error {
	if !good {
		return nil
	}
	return f.Close()
}
