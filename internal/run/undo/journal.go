// SPDX-License-Identifier: Apache-2.0

// Package undo keeps the journal of a run's changes to the host. It undoes these changes
// at the end of the run, or after lklrun was killed.
package undo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/reap"
)

// limit bounds the time for one undo, so that the following ones are tried as well.
const limit = 5 * time.Second

// Journal is the file of undos. Before a step changes the host, the record of its undo is
// written and synced. The record is removed after the undo.
type Journal struct {
	mu   sync.Mutex
	dir  *instance.Dir
	file *os.File
}

// record is a line of the journal. It contains an undo and identifies the network
// namespace that was changed. The inode number alone is not enough, because another
// namespace can reuse it.
type record struct {
	netdev.Undo
	Boot   string `json:"boot,omitempty"`   // boot ID of the kernel that was changed
	Cookie uint64 `json:"cookie,omitempty"` // cookie of its network namespace; 0: unknown
}

// Open opens the journal of a run directory.
func Open(dir *instance.Dir) (*Journal, error) {
	f, err := openAppend(dir.File(instance.JournalFile))
	if err != nil {
		return nil, err
	}
	return &Journal{dir: dir, file: f}, nil
}

func openAppend(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return f, nil
}

// Add appends one undo.
func (j *Journal) Add(u netdev.Undo) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return appendRecords(j.file, record{u, netdev.Boot(), netdev.NetnsCookie()})
}

// appendRecords appends records to f and returns when they are on disk. It starts with a
// newline each time, in case an earlier write was truncated.
func appendRecords(f *os.File, records ...record) error {
	var lines []byte
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		lines = append(append(append(lines, '\n'), line...), '\n')
	}
	if _, err := f.Write(lines); err != nil {
		return fmt.Errorf("writing the journal in %s: %w", filepath.Dir(f.Name()), errno.Errno(err))
	}
	// EINVAL means that this file system does not need a sync.
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("syncing the journal in %s: %w", filepath.Dir(f.Name()), errno.Errno(err))
	}
	return nil
}

// Revert carries out undos before the end of the run, in reverse order. It continues even
// if ctx ends. Undos that fail remain in the journal.
func (j *Journal) Revert(ctx context.Context, undos []netdev.Undo) error {
	var errs []error
	for _, u := range slices.Backward(undos) {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		err := u.Apply(one)
		cancel()
		if err == nil {
			err = j.remove(u)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// remove deletes an undo that was carried out before the end of the run.
func (j *Journal) remove(u netdev.Undo) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	records, err := readJournal(j.dir)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(records, func(r record) bool { return r.Undo == u })
	if at < 0 {
		return nil
	}
	f, err := replaceJournal(j.dir, slices.Delete(records, at, at+1))
	if err != nil {
		return err
	}
	j.file.Close()
	j.file = f
	return nil
}

// replaceJournal rewrites the journal atomically. Readers see either the old file or the
// new one.
func replaceJournal(dir *instance.Dir, records []record) (*os.File, error) {
	next := dir.File(instance.JournalFile + ".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replacing the journal: %w", err)
	}
	f, err := openAppend(next)
	if err != nil {
		return nil, err
	}
	if err = appendRecords(f, records...); err == nil {
		err = os.Rename(next, dir.File(instance.JournalFile))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("replacing the journal: %w", err)
	}
	return f, nil
}

// Close closes the file.
func (j *Journal) Close() { j.file.Close() }

// readJournal returns the records of a run directory, in the order in which they were
// written.
func readJournal(dir *instance.Dir) ([]record, error) {
	f, err := os.OpenFile(dir.File(instance.JournalFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	return parseJournal(data)
}

// parseJournal parses records. It skips a truncated line, because the step of that line
// never began. Any other invalid line is an error, but parseJournal still returns the
// valid records.
func parseJournal(data []byte) ([]record, error) {
	var records []record
	var errs []error
	n := 0
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSpace(line)
		var r record
		var cut *json.SyntaxError
		err := json.Unmarshal(line, &r)
		switch {
		case len(line) == 0, errors.As(err, &cut) && cut.Error() == cutOff:
		case err != nil:
			errs = append(errs, fmt.Errorf("reading the journal: line %d: %w", n, err))
		case !r.gone():
			records = append(records, r)
		}
	}
	return records, errors.Join(errs...)
}

// cutOff is the error text of encoding/json for incomplete input.
const cutOff = "unexpected end of JSON input"

// gone reports whether it is known that the changed network namespace no longer exists.
// This is the case if the machine has rebooted, or if another namespace has the same
// inode number now.
func (r *record) gone() bool {
	if r.Boot != "" && r.Boot != netdev.Boot() {
		return true
	}
	cookie := netdev.NetnsCookie()
	return r.Here() && r.Cookie != 0 && cookie != 0 && r.Cookie != cookie
}

// ElsewhereError reports that undos must be carried out in another network
// namespace.
type ElsewhereError struct{ Name, Netns, Dir string }

// ExitStatus is Usage: the message names the remedy.
func (e *ElsewhereError) ExitStatus() int { return exit.Usage }

// Error describes how to enter that namespace.
func (e *ElsewhereError) Error() string {
	text := fmt.Sprintf("run %s changed network namespace %s; as root, run this in that namespace", e.Name, e.Netns)
	if way := netdev.NsenterArgs(e.Netns); len(way) > 0 {
		return text + ", e.g. " + strings.Join(way, " ") + " lklrun cleanup"
	}
	return text + ", or if the namespace no longer exists (no process or name refers to it), remove " + e.Dir
}

// checkPlace returns an error if undos must be carried out in another network
// namespace.
func checkPlace(dir *instance.Dir, records []record) error {
	for _, r := range records {
		if !r.Here() {
			return &ElsewhereError{dir.Name, r.Netns, dir.Path}
		}
	}
	return nil
}

// Replay carries out the undos of the journal in reverse order. If an undo fails, Replay
// continues, but skips earlier steps on the same device. Undos that were not carried out
// remain in the journal.
func Replay(ctx context.Context, dir *instance.Dir) error {
	records, err := readJournal(dir)
	if err := checkPlace(dir, records); err != nil {
		return err
	}
	errs := []error{err}
	failed := map[int]bool{} // by interface index
	var left []record
	for _, r := range slices.Backward(records) {
		err := errLater
		if r.Ifindex == 0 || !failed[r.Ifindex] {
			one, cancel := context.WithTimeout(ctx, limit)
			err = r.Apply(one)
			cancel()
			errs = append(errs, err)
		}
		if err != nil {
			failed[r.Ifindex] = true
			left = append(left, r)
		}
	}
	if err = errors.Join(errs...); err == nil {
		return nil
	}
	if slices.Reverse(left); errs[0] == nil {
		if f, rerr := replaceJournal(dir, left); rerr == nil { // if this fails, the next cleanup repeats all undos, which is harmless
			f.Close()
		}
	}
	return fmt.Errorf("%w; run `lklrun cleanup` to retry (the journal is %s)", err, dir.File(instance.JournalFile))
}

// errLater marks an undo that depends on a failed one.
var errLater = errors.New("not tried")

// Cleanup ends the remaining processes of the run with the directory path, and undoes its
// changes to the host. If both succeed, it removes the directory. Cleanup returns an
// *instance.RunningError if the directory is in use, and an *ElsewhereError if this
// process is in the wrong network namespace.
func Cleanup(ctx context.Context, path string) error {
	d, err := instance.Take(path)
	if errors.Is(err, fs.ErrNotExist) {
		// lklrun died after it created the directory and before it created the
		// lock, so the directory is empty.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", path, errno.Errno(err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	return Finish(d, func() error {
		if err := TakeOver(ctx, d); err != nil {
			return err
		}
		return d.Keep(d.State(), instance.End{Time: time.Now(), Error: "lklrun was killed, and the command with it"})
	})
}

// TakeOver ends the processes of a killed run and undoes its changes.
func TakeOver(ctx context.Context, d *instance.Dir) error {
	records, _ := readJournal(d) // Replay reads the journal again and reports the error
	if err := checkPlace(d, records); err != nil {
		return err
	}
	if err := reap.KillTree(d); err != nil {
		return err
	}
	return Replay(ctx, d)
}

// Finish calls undo. If undo succeeds, Finish removes the directory; otherwise it keeps
// the directory.
func Finish(d *instance.Dir, undo func() error) error {
	if err := undo(); err != nil {
		d.Release()
		return err
	}
	return d.Remove()
}
