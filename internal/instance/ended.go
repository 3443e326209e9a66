// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"
)

// A run in the background leaves a record of its end: a directory below endedDir with
// its state, how it ended, and the end of its output. Only the user can read it. A new run
// of the same name deletes it, and so do further records.
//
//	ROOT/.ended/NAME/state.json
//	ROOT/.ended/NAME/output
const (
	endedDir = ".ended"

	maxEnded = 20 // records of a user; the oldest are deleted

	// MaxOutput is the number of bytes of output that a run in the background keeps.
	MaxOutput = 1 << 20
)

// End describes how a run has ended.
type End struct {
	Time   time.Time `json:"time"`             // time of the end
	Status *int      `json:"status,omitempty"` // exit status of the program, or 128 + 9 after SIGKILL; absent: see signal and error
	Signal int       `json:"signal,omitempty"` // number of the signal that ended the program
	Error  string    `json:"error,omitempty"`  // why the run ended without its program's status
}

// String returns the end in a few words.
func (e *End) String() string {
	switch {
	case e.Status != nil:
		return fmt.Sprintf("exit %d", *e.Status)
	case e.Signal != 0:
		if name := unix.SignalName(unix.Signal(e.Signal)); name != "" {
			return name
		}
		return fmt.Sprintf("signal %d", e.Signal)
	}
	return "failed"
}

// State returns the state in the run directory, as far as it is known.
func (d *Dir) State() State {
	var s State
	if data, err := os.ReadFile(d.File(StateFile)); err == nil {
		_ = json.Unmarshal(data, &s) // an incomplete file tells nothing
	}
	return s
}

// Keep writes the record of a run that has ended. The caller still holds the run
// directory, so that whoever waits for its removal finds the record. Keep does nothing for
// a run whose state names no output, because it was not in the background.
func (d *Dir) Keep(s State, end End) error {
	if s.Output == "" {
		return nil
	}
	root := filepath.Dir(d.Path)
	tmp, err := os.MkdirTemp(root, "."+d.Name+".*") // mode 0700; Sweep removes it if we are killed
	if err != nil {
		return fmt.Errorf("keeping the record of the run: %w", err)
	}
	err = d.keep(tmp, root, s, end)
	if err != nil {
		_ = os.RemoveAll(tmp)
		return fmt.Errorf("keeping the record of the run: %w", err)
	}
	return prune(root)
}

func (d *Dir) keep(tmp, root string, s State, end End) error {
	final := filepath.Join(root, endedDir, d.Name)
	if own := d.File(OutputFile); s.Output == own {
		s.Output = filepath.Join(final, OutputFile)
		if err := copyTail(own, filepath.Join(tmp, OutputFile)); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(Info{State: s, Ended: &end}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, StateFile), append(data, '\n'), 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(final), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(tmp, final)
}

// copyTail copies the last MaxOutput bytes of a file that Bound may have shortened.
func copyTail(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if err := SkipHole(in, max(st.Size()-MaxOutput, 0)); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// SkipHole seeks to the first byte of data at or after a position. Bound leaves a hole in
// place of the beginning of the output.
func SkipHole(f *os.File, at int64) error {
	data, err := f.Seek(at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // nothing follows
		_, err = f.Seek(at, io.SeekStart)
	case errors.Is(err, unix.EINVAL): // the file system does not tell, so it has no holes
		_, err = f.Seek(at, io.SeekStart)
	case err == nil:
		_, err = f.Seek(max(data, at), io.SeekStart)
	}
	return err
}

// Bound frees the memory of all but the last MaxOutput bytes of an output file, to which
// processes still append. The positions in the file stay the same.
func Bound(f *os.File, kept int64) (now int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return kept, err
	}
	const block = 64 << 10
	first := (st.Size() - MaxOutput) / block * block
	if first-kept < MaxOutput { // rarely, and then much
		return kept, nil
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, kept, first-kept); err != nil {
		return kept, err
	}
	return first, nil
}

// prune deletes the oldest records.
func prune(root string) error {
	all, err := ended(root)
	if err != nil {
		return err
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Ended.Time.After(all[j].Ended.Time) })
	var errs []error
	for _, i := range all[min(len(all), maxEnded):] {
		errs = append(errs, os.RemoveAll(i.Dir))
	}
	return errors.Join(errs...)
}

// Forget deletes the record of an ended run. It reports whether there was one.
func (p Place) Forget(name string) (bool, error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	root := p.root()
	if err := checkRoot(root, os.Geteuid()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, &PlaceError{err}
	}
	dir := filepath.Join(root, endedDir, name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("deleting the record of %q: %w", name, err)
	}
	_ = os.Remove(filepath.Dir(dir)) // fails while it contains other records
	_ = os.Remove(root)              // fails while there are runs
	return true, nil
}

// Ended returns the records of ended runs, sorted by name.
func (p Place) Ended() ([]Info, error) { return ended(p.root()) }

// OpenEnded returns the record of an ended run, or nil if there is none. Of a pod, it
// returns the last one.
func (p Place) OpenEnded(name string) (*Info, error) {
	all, err := ended(p.root())
	if found := newest(all, name); found != nil {
		return found, nil
	}
	return nil, err
}

func ended(root string) ([]Info, error) {
	switch err := checkRoot(root, os.Geteuid()); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &PlaceError{err}
	}
	entries, err := os.ReadDir(filepath.Join(root, endedDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing ended runs: %w", err)
	}
	var all []Info
	for _, e := range entries {
		if !e.IsDir() || CheckName(e.Name()) != nil {
			continue
		}
		dir := filepath.Join(root, endedDir, e.Name())
		info := Info{Ended: &End{}}
		data, err := os.ReadFile(filepath.Join(dir, StateFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted between the two calls
		}
		if err != nil || json.Unmarshal(data, &info) != nil || info.Ended == nil {
			info = Info{Ended: &End{Error: "the record is damaged"}}
		}
		info.Name, info.Dir, info.Running = e.Name(), dir, false
		all = append(all, info)
	}
	return all, nil
}
