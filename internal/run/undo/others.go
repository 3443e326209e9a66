// SPDX-License-Identifier: Apache-2.0

package undo

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
)

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
