// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

// An instance starts, is paused, continues, ends, and starts again under the same name.
// The Monitor ignores another instance.
func TestMonitor(t *testing.T) {
	updates := make(chan Update, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	m := NewMonitor(instance.Place{}, "web", time.Hour) // changed later by SetInterval
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx, func(u Update) { updates <- u }) }()
	defer cancel()
	await := func(what string, is func(Update) bool) {
		t.Helper()
		for after := time.After(60 * time.Second); ; {
			select {
			case u := <-updates:
				if is(u) {
					return
				}
			case <-after:
				t.Fatalf("no update that says: %s", what)
			}
		}
	}
	dir := func(name string) *instance.Dir {
		d, err := instance.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Remove() }) // a second Remove does no harm
		return d
	}
	dir("other")
	for round := range 2 {
		d := dir("web")
		await("starting", func(u Update) bool { return errors.Is(u.Err, ErrStarting) })
		h, _ := start(t, lklhost.Library(t), "tcp", "0")
		if err := d.WriteState(&instance.State{Name: "web", PID: os.Getpid(), TargetPID: 1, Stack: "vanilla"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(h.Socket, filepath.Join(d.Path, instance.SocketFile)); err != nil {
			t.Fatal(err)
		}
		await("a snapshot", func(u Update) bool { return u.Err == nil && u.Snapshot.Instance.Stack == "vanilla" })
		m.SetInterval(100 * time.Millisecond)
		await("a rate", func(u Update) bool { return u.Err == nil && u.Snapshot.Interval > 0 })
		if round == 0 { // this takes as long as SnapshotLimit
			kit.Pause(t, h.PID, 10*time.Second)
			await("silence", func(u Update) bool { return errors.Is(u.Err, ErrSilent) })
			h.Proc.Signal(syscall.SIGCONT)
			await("a snapshot again", func(u Update) bool { return u.Err == nil })
		}
		h.Proc.Signal(syscall.SIGKILL)
		h.Proc.Wait(20 * time.Second)
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
		await("the end", func(u Update) bool {
			if u.Info.Name != "web" {
				t.Errorf("an update of %q", u.Info.Name)
			}
			return errors.Is(u.Err, ErrEnded)
		})
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the monitor does not end")
	}
}

func TestIntervalBounds(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{0: IntervalLeast, time.Second: time.Second, 1000 * time.Hour: IntervalMost} {
		if got := NewMonitor(instance.Place{}, "", d).Interval(); got != want {
			t.Errorf("%v becomes %v, want %v", d, got, want)
		}
	}
}
