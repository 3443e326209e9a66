// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
)

// undoLimit bounds one undo: the next ones are worth trying too.
const undoLimit = 5 * time.Second

// journal is the file of undos. A line stands in it, synced, before the step
// that it undoes begins.
type journal struct {
	mu   sync.Mutex
	dir  *instance.Dir
	file *os.File
}

func openJournal(dir *instance.Dir) (*journal, error) {
	f, err := openAppend(dir.File(instance.JournalFile))
	if err != nil {
		return nil, err
	}
	return &journal{dir: dir, file: f}, nil
}

func openAppend(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return f, nil
}

// add writes one undo.
func (j *journal) add(u hostnet.Undo) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return appendUndos(j.file, u)
}

// appendUndos writes undos to the end of f, and returns when they are safe there.
func appendUndos(f *os.File, undos ...hostnet.Undo) error {
	var lines []byte
	for _, u := range undos {
		line, err := json.Marshal(u)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	if _, err := f.Write(lines); err != nil {
		return fmt.Errorf("writing the journal in %s: %w", filepath.Dir(f.Name()), cause(err))
	}
	// A file system that cannot sync (EINVAL) has nothing to sync.
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("syncing the journal in %s: %w", filepath.Dir(f.Name()), cause(err))
	}
	return nil
}

// remove takes an undo out that has been carried out before the run's end. The
// journal is replaced as a whole, so that whoever reads it finds it complete.
func (j *journal) remove(u hostnet.Undo) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	undos, err := readJournal(j.dir)
	if err != nil {
		return err
	}
	at := slices.Index(undos, u)
	if at < 0 {
		return nil
	}
	next := j.dir.File(instance.JournalFile + ".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing the journal: %w", err)
	}
	f, err := openAppend(next)
	if err != nil {
		return err
	}
	if err = appendUndos(f, slices.Delete(undos, at, at+1)...); err == nil {
		err = os.Rename(next, j.dir.File(instance.JournalFile))
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("replacing the journal: %w", err)
	}
	j.file.Close()
	j.file = f
	return nil
}

func (j *journal) close() { j.file.Close() }

// cause strips operation and path from a file's error.
func cause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// readJournal returns the undos of a run directory in the order written. A last
// line without its end was being written when the writer died: the step it
// belongs to never began.
func readJournal(dir *instance.Dir) ([]hostnet.Undo, error) {
	data, err := os.ReadFile(dir.File(instance.JournalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	return parseJournal(data)
}

func parseJournal(data []byte) ([]hostnet.Undo, error) {
	var undos []hostnet.Undo
	for n := 1; ; n++ {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		if !ended {
			return undos, nil
		}
		var u hostnet.Undo
		if err := json.Unmarshal(line, &u); err != nil {
			return undos, fmt.Errorf("reading the journal: line %d: %w", n, err)
		}
		undos = append(undos, u)
		data = rest
	}
}

// replay carries out what the journal says, last step first. It goes on after
// an undo that did not work.
func replay(ctx context.Context, dir *instance.Dir) error {
	undos, err := readJournal(dir)
	errs := []error{err}
	for _, u := range slices.Backward(undos) {
		one, cancel := context.WithTimeout(ctx, undoLimit)
		errs = append(errs, u.Apply(one))
		cancel()
	}
	return errors.Join(errs...)
}

// Cleanup undoes what the run with the directory at path left, and removes the
// directory. The error is an *instance.RunningError when it is in use.
func Cleanup(ctx context.Context, path string) error {
	d, err := instance.Take(path)
	if errors.Is(err, fs.ErrNotExist) {
		// Died between making the directory and its lock: it is empty.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", path, cause(err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(replay(ctx, d), d.Remove())
}
