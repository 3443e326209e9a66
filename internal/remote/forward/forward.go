// SPDX-License-Identifier: Apache-2.0

// Package forward makes the instances of another machine appear on this one. A
// private folder contains, for each instance, a control socket and the information
// of the run directory. On the device, `lklrun device connect` forwards the
// connections of these sockets. They use the existing connection to the device, so
// no port is opened on either side.
package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/ondevice"
)

const (
	// listLimit is the timeout for the first list.
	listLimit = 20 * time.Second
	// listMost is the maximum length of a list. The device is not trusted.
	listMost = 4 << 20
	// connectionsMost is the maximum number of simultaneous connections. Further
	// connections wait.
	connectionsMost = 64
)

// Forwarder shows the instances of a device on this machine.
type Forwarder struct {
	ready *remote.Ready
	name  string
	root  string // folder of the instances

	ctx    context.Context //nolint:containedctx // ends with Close
	cancel context.CancelFunc
	list   remote.Stream
	stderr words
	busy   sync.WaitGroup
	room   chan struct{} // holds one element for each connection

	mu  sync.Mutex
	err error
	pid int                   // process on the device that lists the instances
	all map[string]*forwarded // instances by name
}

// Open lists the instances of a device and shows them in a new folder below dir,
// which must belong to this user. The caller must call Close, and must close the
// device afterwards.
func Open(ctx context.Context, ready *remote.Ready, dir string) (*Forwarder, error) {
	root, err := os.MkdirTemp(dir, "") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("%s: creating a directory for its control sockets: %w", ready.Name(), err)
	}
	f := &Forwarder{ready: ready, name: ready.Name(), root: root, room: make(chan struct{}, connectionsMost), all: map[string]*forwarded{}}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := f.begin(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Place returns the place in which the device's instances are found.
func (f *Forwarder) Place() instance.Place {
	return instance.Place{Device: f.name, Root: f.root}
}

// Ready returns the device.
func (f *Forwarder) Ready() *remote.Ready { return f.ready }

// Err returns the reason why the device no longer answers, or nil if it answers.
func (f *Forwarder) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Close ends all connections and removes the folder.
func (f *Forwarder) Close() {
	f.cancel()
	if f.list != nil {
		f.list.Close()
	}
	f.mu.Lock()
	for name, one := range f.all {
		one.close()
		delete(f.all, name)
	}
	f.mu.Unlock()
	f.busy.Wait()
	_ = os.RemoveAll(f.root) // if this fails, the folder is removed with its parent
}

// begin starts to follow the device's list, and returns once the first list is
// processed.
func (f *Forwarder) begin(ctx context.Context) error {
	var err error
	if f.list, err = f.ready.Launch(f.ctx, &f.stderr, "device", "list", "--follow"); err != nil {
		return err
	}
	first := make(chan error, 1)
	f.busy.Go(func() { f.follow(first) })
	f.busy.Go(f.sendHeartbeats)
	limit := time.NewTimer(listLimit)
	defer limit.Stop()
	select {
	case err = <-first:
		return err
	case <-limit.C:
		return f.broken(fmt.Errorf("it did not list its instances within %v", listLimit))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sendHeartbeats sends heartbeats to the device.
func (f *Forwarder) sendHeartbeats() {
	tick := time.NewTicker(ondevice.FollowBeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := io.WriteString(f.list, "\n"); err != nil {
				return // follow notices the error, too
			}
		case <-f.ctx.Done():
			return
		}
	}
}

// broken returns an error for a failed connection to the device.
func (f *Forwarder) broken(err error) error {
	var known *remote.Error
	if errors.As(err, &known) {
		return known
	}
	return &remote.Error{Device: f.name, Err: err}
}

// follow updates the folder from the device's list. It sends the result of
// processing the first list to the channel first.
func (f *Forwarder) follow(first chan<- error) {
	lines := bufio.NewScanner(f.list)
	lines.Buffer(nil, listMost)
	silence := time.AfterFunc(listLimit, func() {
		f.fail(fmt.Errorf("the connection to the device timed out: no data for %v", ondevice.FollowSilence))
		f.list.Close()
	})
	defer silence.Stop()
	for lines.Scan() {
		silence.Reset(ondevice.FollowSilence)
		var now ondevice.Followed
		err := json.Unmarshal(lines.Bytes(), &now)
		if err == nil {
			err = f.show(now)
		}
		if err != nil {
			f.lose(first, err)
			return // Close has ended the list
		}
		select {
		case first <- nil:
		default:
		}
	}
	f.lose(first, f.ended(lines.Err()))
}

// lose records the reason why the device no longer answers, and sends it to the
// channel first.
func (f *Forwarder) lose(first chan<- error, err error) {
	f.fail(err)
	select {
	case first <- f.Err():
	default:
	}
}

// ended returns an error that explains why there are no more lists.
func (f *Forwarder) ended(err error) error {
	if err != nil {
		return f.broken(err)
	}
	status, err := f.list.Wait()
	switch {
	case err != nil:
		return f.broken(err)
	case f.stderr.line() != "":
		return f.broken(errors.New(f.stderr.line()))
	}
	return f.broken(fmt.Errorf("its lklrun exited with status %d", status))
}

// fail records the first reason why the device no longer answers, and removes
// its instances.
func (f *Forwarder) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && f.ctx.Err() == nil {
		f.err = f.broken(err)
	}
	f.cancel()
	for name := range f.all {
		f.unpublish(name)
	}
}

// show updates the folder so that it contains exactly these instances.
func (f *Forwarder) show(now ondevice.Followed) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pid = now.PID
	if f.ctx.Err() != nil {
		return nil
	}
	there := map[string]bool{}
	for _, info := range now.Instances {
		there[info.Name] = true
		info.Device = f.name
		dir, err := instance.Publish(f.root, info)
		if err != nil {
			return err
		}
		if was := f.all[info.Name]; was != nil && was.pid != info.PID && was.pid != 0 { // a later run has the same name
			f.unpublish(info.Name)
			if _, err = instance.Publish(f.root, info); err != nil {
				return err
			}
		}
		if one := f.all[info.Name]; one != nil {
			one.pid = info.PID
			continue
		}
		one := &forwarded{f: f, name: info.Name, pid: info.PID}
		f.all[info.Name] = one
		if info.Running {
			if err := one.listen(filepath.Join(dir, instance.SocketFile)); err != nil {
				return err
			}
		}
	}
	for name := range f.all {
		if !there[name] {
			f.unpublish(name)
		}
	}
	return nil
}

// unpublish removes an instance. It leaves open connections alone: the instance closes
// them.
func (f *Forwarder) unpublish(name string) {
	f.all[name].close()
	delete(f.all, name)
	_ = instance.Unpublish(f.root, name) // if this fails, Close removes the whole folder
}
