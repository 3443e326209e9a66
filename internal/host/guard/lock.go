// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
)

const (
	// lockFile represents the network namespace of the thread that opens
	// it. Its mode is 0600, and for files of /proc/sys/net the kernel
	// treats CAP_NET_ADMIN in the namespace as root (net_ctl_permissions(),
	// net/sysctl_net.c). Thus exactly the users who can change the
	// namespace can lock it. A lock on it leaves no file behind.
	lockFile = "/proc/sys/net/ipv4/tcp_fastopen_key"

	lockLimit = 10 * time.Second
	lockPause = 5 * time.Millisecond
)

// Lock prevents other runs from changing the settings of this network namespace
// until unlock. It waits for at most 10 seconds. Locks are not shared between
// two mounts of proc.
func Lock(ctx context.Context) (unlock func(), err error) {
	f, err := openLock()
	if err != nil {
		return nil, fmt.Errorf("locking the host's network settings: %w", err)
	}
	limit := time.NewTimer(lockLimit)
	defer limit.Stop()
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking the host's network settings with %s: %w", f.Name(), err)
		}
		select {
		case <-again.C:
			continue
		case <-ctx.Done():
		case <-limit.C:
		}
		f.Close()
		return nil, &BusyError{f.Name()}
	}
}

// BusyError reports that another process has held the lock for too long.
type BusyError struct{ path string }

// Error names the file.
func (e *BusyError) Error() string {
	return fmt.Sprintf("locking the host's network settings: another process holds the lock on %s; `grep FLOCK /proc/locks` shows its pid", e.path)
}

// openLock opens the file to lock. Users who cannot change the namespace only
// choose ports among their own runs, so they lock the directory of these runs.
func openLock() (*os.File, error) {
	f, err := os.Open(lockFile)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return os.Open(instance.Root())
	}
	return f, err
}
