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

	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
)

// ErrStarting says that the stack has not booted yet.
var ErrStarting = errors.New("it is starting: its stack has not booted yet")

// Bounds of the time between two snapshots: oftener would be work for the stack
// that nobody can read.
const (
	IntervalLeast = 50 * time.Millisecond
	IntervalMost  = time.Hour
)

// discoverMost bounds how long an instance that has begun goes unnoticed.
const discoverMost = 2 * time.Second

// Update is what a Monitor has to tell of an instance.
type Update struct {
	Time     time.Time
	Info     instance.Info
	Conn     *stackconn.Conn // to ask more with, until the next update; nil with an Err
	Snapshot *Snapshot       // nil with an Err
	// Err says why there is no snapshot: ErrStarting, ErrSilent or ErrPanicked,
	// after which there may be one again, or ErrEnded, after which there is no
	// further update.
	Err error
}

// Monitor follows the instances of a place as they come and go, or the one of a
// name.
type Monitor struct {
	place instance.Place
	name  string

	mu       sync.Mutex
	interval time.Duration
	changed  chan struct{} // closed when interval is another
}

// NewMonitor makes a Monitor that looks at each instance once an interval; name
// is the only instance to follow, or empty for all.
func NewMonitor(place instance.Place, name string, interval time.Duration) *Monitor {
	m := &Monitor{place: place, name: name, changed: make(chan struct{})}
	m.SetInterval(interval)
	return m
}

// SetInterval changes the time between two snapshots, within the bounds.
func (m *Monitor) SetInterval(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interval = min(max(d, IntervalLeast), IntervalMost)
	close(m.changed)
	m.changed = make(chan struct{})
}

// Interval is the time between two snapshots.
func (m *Monitor) Interval() time.Duration {
	d, _ := m.pace()
	return d
}

func (m *Monitor) pace() (time.Duration, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.interval, m.changed
}

// Run follows the instances until ctx is done and returns nil, or an error when
// they cannot be listed. tell is called for one update after the other; what it
// takes delays the next look at that instance.
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

// pause waits for an interval, at most for the time given, or until done is
// closed; false: ctx is done.
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

// follow tells of one instance until it has ended.
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
		if errors.Is(err, ErrEnded) { // its directory is not gone yet
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

// again looks whether an instance is still there: a run directory's name may be
// that of a later run.
func (m *Monitor) again(info instance.Info) (now instance.Info, gone bool) {
	all, err := m.place.List()
	if err != nil {
		return info, false // not for us to say
	}
	for _, i := range all {
		if i.Files() == info.Files() && i.Running && (info.PID == 0 || i.PID == info.PID) {
			return i, false
		}
	}
	return info, true
}

// attached makes one connection and tells of the instance as long as that serves.
// What was not answered in time is given up with the connection: the stack host
// then closes whatever belonged to it.
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
	if info.TargetPID == 0 { // what is listed before the program runs is not complete
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

// dial connects within SnapshotLimit.
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
