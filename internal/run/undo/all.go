// SPDX-License-Identifier: Apache-2.0

package undo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
)

// endingLimit bounds the wait for runs whose lklrun has died. Their remaining
// processes are ending, and hold the lock until they have ended.
const endingLimit = 5 * time.Second

// Cleaned is the result of CleanupAll.
type Cleaned struct {
	Done    []string                // names of the removed leftovers
	Running []instance.RunningError // runs that are still running
}

// CleanupAll cleans up all leftovers of this user.
func CleanupAll(ctx context.Context) (Cleaned, error) {
	all, err := instance.Place{}.All()
	var c Cleaned
	if errors.As(err, new(*instance.PlaceError)) {
		return c, err // the directory belongs to another user
	}
	errs := []error{err}
	ending, cancel := context.WithTimeout(ctx, endingLimit)
	defer cancel()
	for _, i := range all {
		err := cleanupEnding(ctx, ending, i.Dir)
		var running *instance.RunningError
		switch {
		case errors.As(err, &running):
			c.Running = append(c.Running, *running)
		case errors.As(err, new(*ElsewhereError)):
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, fmt.Errorf("instance %q: %w", i.Name, err))
		default:
			c.Done = append(c.Done, i.Name)
		}
	}
	errs = append(errs, instance.Sweep())
	return c, errors.Join(errs...)
}

// cleanupEnding is like Cleanup. In addition, if the run's lklrun has died, it
// waits for the run's remaining processes until ending is done.
func cleanupEnding(ctx, ending context.Context, dir string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := Cleanup(ctx, dir)
		var running *instance.RunningError
		if !errors.As(err, &running) || running.PID == 0 || alive(running.PID) {
			return err
		}
		select {
		case <-tick.C:
		case <-ending.Done():
			return err
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // this process is not allowed to read the file
	}
	// The process name precedes the state and can contain parentheses.
	_, state, _ := strings.Cut(string(stat[max(0, strings.LastIndex(string(stat), ")")):]), " ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// Others lists the undos of one kind in the journals of this user's other runs,
// including killed ones. It includes only undos for this network namespace. own
// is the directory of the calling run.
func Others(own *instance.Dir, op string, log *slog.Logger) ([]netdev.Undo, error) {
	all, err := instance.Place{}.All()
	if err != nil {
		return nil, err
	}
	var undos []netdev.Undo
	for _, i := range all {
		if i.Dir == own.Path {
			continue
		}
		data, err := os.ReadFile(filepath.Join(i.Dir, instance.JournalFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the run has ended in the meantime
		}
		if err != nil {
			return nil, fmt.Errorf("reading the journal of %q: %w", i.Name, errno.Errno(err))
		}
		some, err := parseJournal(data)
		if err != nil {
			log.Debug("the journal of another run", "name", i.Name, "error", err)
		}
		for _, u := range some {
			if u.Op == op && u.Here() {
				undos = append(undos, u.Undo)
			}
		}
	}
	return undos, nil
}
