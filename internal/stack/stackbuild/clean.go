// SPDX-License-Identifier: Apache-2.0

package stackbuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/lazyregexp"
	"github.com/lklrun/lklrun/internal/stack"
)

// cached are the names that third_party/lkl/build.sh and Build make in the cache.
var cached = lazyregexp.New(`^(linux-[0-9]+-[0-9]+(\.tmp)?|(work|tmp|live)-.*|[0-9a-f]{20}|stack-.*\.log)$`)

// Clean deletes what builds keep to be faster: sources, objects and libraries. It returns the
// directory and the number of bytes. It refuses to disturb a build.
func Clean() (dir string, freed int64, err error) {
	if dir, err = os.UserCacheDir(); err != nil {
		return "", 0, err
	}
	dir = filepath.Join(dir, "lklrun")
	locks, err := filepath.Glob(filepath.Join(dir, "lock*"))
	if err != nil {
		return dir, 0, err
	}
	for _, lock := range locks {
		f, err := os.OpenFile(lock, os.O_RDWR, 0)
		if err != nil {
			return dir, 0, err
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return dir, 0, fmt.Errorf("a build uses %s; wait until it ends", dir)
		}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	stacks, lost := stack.UserDir()
	if lost != nil {
		return dir, 0, lost
	}
	// A killed build leaves its stack unfinished.
	paths, _ := filepath.Glob(filepath.Join(stacks, ".*.new"))
	for _, e := range entries {
		if cached().MatchString(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	for _, path := range paths {
		_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error { // only a number for the user
			if err != nil {
				return nil
			}
			if st, err := d.Info(); err == nil && st.Mode().IsRegular() {
				freed += st.Size()
			}
			return nil
		})
		if err := os.RemoveAll(path); err != nil {
			return dir, freed, err
		}
	}
	return dir, freed, err
}
