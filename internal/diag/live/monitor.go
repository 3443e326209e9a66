// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// ErrStarting means that the stack has not booted yet.
var ErrStarting = errors.New("it is starting, and its stack has not booted yet")

// Bounds of the interval between snapshots. Shorter intervals would load the stack, and
// no user could read that many snapshots.
const (
	IntervalLeast = 50 * time.Millisecond
	IntervalMost  = time.Hour
)

// discoverMost is the maximum time until the Monitor notices a new instance.
const discoverMost = 2 * time.Second

// Update is what a Monitor reports about an instance.
type Update struct {
	Time     time.Time
	Info     instance.Info
	Conn     *stackconn.Conn // connection for further queries, valid until the next update; nil if Err is set
	Snapshot *Snapshot       // nil if Err is set
	// Err is the reason for a missing snapshot. After ErrStarting, ErrSilent or
	// ErrPanicked, a snapshot may follow. ErrEnded is the last update.
	Err error
}

// Monitor follows the instances of a place as they start and end. With a name, it follows
// only the instance of that name.
type Monitor struct {
	place instance.Place
	name  string

	mu       sync.Mutex
	interval time.Duration
	changed  chan struct{} // closed when the interval changes
}

// NewMonitor makes a Monitor that takes a snapshot of each instance once per interval.
// name is the only instance to follow; an empty name means all.
func NewMonitor(place instance.Place, name string, interval time.Duration) *Monitor {
	m := &Monitor{place: place, name: name, changed: make(chan struct{})}
	m.SetInterval(interval)
	return m
}

// SetInterval changes the time between two snapshots, limited to the bounds.
func (m *Monitor) SetInterval(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interval = min(max(d, IntervalLeast), IntervalMost)
	close(m.changed)
	m.changed = make(chan struct{})
}

// Interval returns the time between two snapshots.
func (m *Monitor) Interval() time.Duration {
	d, _ := m.pace()
	return d
}

func (m *Monitor) pace() (time.Duration, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.interval, m.changed
}

// Run follows the instances until ctx is done, then returns nil. It returns an error if
// the instances cannot be listed. Run calls tell for each update, one at a time. A slow
// tell delays the next snapshot of that instance.
func (m *Monitor) Run(ctx context.Context, tell func(Update)) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	followed := map[string]bool{}
	one := func(u Update) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			u.Time = time.Now()
			tell(u)
		}
	}
	for {
		found, err := m.place.List()
		if err != nil {
			return err
		}
		mu.Lock()
		for _, info := range found {
			if !info.Running || followed[info.Files()] || m.name != "" && info.Name != m.name {
				continue
			}
			followed[info.Files()] = true
			all.Go(func() {
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					delete(followed, info.Files())
				}()
				m.follow(ctx, info, one)
			})
		}
		mu.Unlock()
		if !m.pause(ctx, nil, discoverMost) {
			return nil
		}
	}
}

// pause waits for an interval, but at most for the duration most and until done is
// closed. It returns false if ctx is done.
func (m *Monitor) pause(ctx context.Context, done <-chan struct{}, most time.Duration) bool {
	began := time.Now()
	for {
		d, changed := m.pace()
		timer := time.NewTimer(min(d, most) - time.Since(began))
		select {
		case <-ctx.Done():
		case <-done:
		case <-timer.C:
		case <-changed:
			timer.Stop()
			continue
		}
		timer.Stop()
		return ctx.Err() == nil
	}
}

// follow reports on one instance until it has ended.
func (m *Monitor) follow(ctx context.Context, info instance.Info, tell func(Update)) {
	for ctx.Err() == nil {
		err := m.attached(ctx, &info, tell)
		if ctx.Err() != nil {
			return
		}
		now, gone := m.again(info)
		if gone {
			tell(Update{Info: info, Err: ErrEnded})
			return
		}
		info = now
		if errors.Is(err, ErrEnded) { // the directory of the instance still exists
			err = ErrStarting
			if info.TargetPID != 0 {
				err = ErrSilent
			}
		}
		tell(Update{Info: info, Err: err})
		if !m.pause(ctx, nil, discoverMost) {
			return
		}
	}
}

// again checks whether an instance still exists. A later run may have reused the name of
// its run directory.
func (m *Monitor) again(info instance.Info) (now instance.Info, gone bool) {
	all, err := m.place.List()
	if err != nil {
		return info, false // unknown; a later call decides
	}
	for _, i := range all {
		if i.Files() == info.Files() && i.Running && (info.PID == 0 || i.PID == info.PID) {
			return i, false
		}
	}
	return info, true
}

// attached opens one connection and reports on the instance as long as the connection
// works. After a timeout it closes the connection, so that the stack host frees
// everything that belongs to it.
func (m *Monitor) attached(ctx context.Context, info *instance.Info, tell func(Update)) error {
	conn, err := dial(ctx, info)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch conn.Hello().State {
	case ctlproto.CTL_STATE_NEW:
		return ErrStarting
	case ctlproto.CTL_STATE_PANICKED:
		return ErrPanicked
	}
	if info.TargetPID == 0 { // the list of processes is incomplete until the program runs
		if now, gone := m.again(*info); !gone {
			*info = now
		}
	}
	for c := New(conn, info); ; {
		s, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		tell(Update{Info: *info, Conn: conn, Snapshot: s})
		if !m.pause(ctx, conn.Done(), IntervalMost) {
			return ctx.Err()
		}
	}
}

// dial connects to the stack within SnapshotLimit.
func dial(ctx context.Context, info *instance.Info) (*stackconn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, SnapshotLimit)
	defer cancel()
	conn, err := stackconn.Dial(ctx, info.Socket())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrStarting
	case errors.Is(err, stackconn.ErrClosed), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, stackconn.ErrNoAnswer), errors.Is(err, syscall.EAGAIN):
		return nil, fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return conn, err
}
