// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
)

// outputs returns the service that bounds the output of a run in the background. lklrun
// does not change a file that the user has named.
func outputs(r *run) service {
	if !r.opts.Background || r.opts.Output != nil {
		return nil
	}
	return &bounder{path: r.dir.File(instance.OutputFile), log: r.log}
}

// bounder limits the size of the output file. It sleeps while the target writes nothing.
type bounder struct {
	path   string
	log    *slog.Logger
	events *os.File // of inotify(7)
	ended  chan struct{}
}

// boundEvery is the minimum time between two looks at a growing file.
const boundEvery = 100 * time.Millisecond

// Start watches the file.
func (b *bounder) Start(context.Context) error {
	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the output file: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		b.events = os.NewFile(uintptr(fd), "inotify")
		if _, err = unix.InotifyAddWatch(fd, b.path, unix.IN_MODIFY); err != nil {
			b.events.Close()
		}
	}
	if err != nil { // such as the user's limit of watches
		f.Close()
		b.events = nil
		b.log.Debug("the size of the output file is not bounded", "error", err)
		return nil
	}
	b.ended = make(chan struct{})
	go b.watch(f)
	return nil
}

func (b *bounder) watch(f *os.File) {
	defer close(b.ended)
	defer f.Close()
	var kept int64
	buf := make([]byte, 4096)
	for {
		if _, err := b.events.Read(buf); err != nil {
			return // Stop has closed it
		}
		var err error
		if kept, err = instance.Bound(f, kept); err != nil { // a file system without holes
			b.log.Debug("the size of the output file is not bounded", "error", err)
			return
		}
		time.Sleep(boundEvery)
	}
}

// Stop ends the watch.
func (b *bounder) Stop() {
	if b.events != nil {
		b.events.Close()
		<-b.ended
	}
}

// publish makes the output of a run in the background available to other processes. From
// then on, the run leaves a record.
func (r *run) publish() {
	if r.opts.NoRecord {
		return
	}
	path := r.dir.File(instance.OutputFile)
	if r.opts.Output != nil {
		path = r.opts.Output.Name()
	}
	if err := r.files.change(func(s *instance.State) { s.Output = path }); err != nil {
		r.log.Debug("writing the state", "error", err)
	}
}

// keepRecord writes the record of a run in the background whose target has started.
func (r *run) keepRecord(end exit.End, err error) {
	if r.files == nil {
		return
	}
	how := instance.End{Time: time.Now(), Signal: int(end.Signal)}
	switch {
	case err != nil:
		how.Error = err.Error()
	case end.Signal == 0:
		how.Status = &end.Status
	}
	if kerr := r.dir.Keep(r.files.now(), how); kerr != nil {
		r.opts.Tell(kerr.Error())
	}
}
