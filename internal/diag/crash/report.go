// SPDX-License-Identifier: Apache-2.0

// Package crash collects diagnostic data of a stack in one file: the kernel's log, the
// plan of the run, sockets, counters and settings, with secrets redacted. lklrun writes
// one after a panic of the stack's kernel; `lklctl bundle` makes one of a running stack.
package crash

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits of a report, so that it stays small and is made quickly.
const (
	PartMax  = 2 << 20 // bytes of one part; longer ones are cut at the beginning
	keepMost = 5       // reports kept in Dir
)

// leftOut is added to the description of a part that was cut.
const leftOut = "; the beginning is omitted"

// suffix is the end of the file names.
const suffix = ".tar.gz"

// part is one file in it.
type part struct {
	name, what string
	data       []byte
}

// Report is a report in the making. It may be used by one goroutine.
type Report struct {
	name    string // of the instance
	why     string
	made    time.Time
	parts   []part
	missing []string
	files   []string // files with packets, outside the report
}

// New starts a report of an instance; why is its first line.
func New(instance, why string, now time.Time) *Report {
	return &Report{name: instance, why: why, made: now}
}

// Add adds a text, with secrets redacted and the beginning cut if it exceeds PartMax.
// what describes it in a line.
func (b *Report) Add(name, what, text string) { b.add(name, what, Text(text)) }

// add is like Add without redaction: MPTCP's tokens look like secrets.
func (b *Report) add(name, what, text string) {
	if len(text) > PartMax {
		text = text[len(text)-PartMax:]
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
		what += leftOut
	}
	b.parts = append(b.parts, part{name, what, []byte(text)})
}

// AddJSON adds a value as JSON.
func (b *Report) AddJSON(name, what string, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		b.Miss(name, err)
		return
	}
	b.Add(name, what, string(text)+"\n")
}

// AddFile adds a file of this machine.
func (b *Report) AddFile(name, what, path string) {
	f, err := os.Open(path)
	if err != nil {
		b.Miss(name, err)
		return
	}
	defer f.Close()
	cut := false
	if st, err := f.Stat(); err == nil && st.Size() > PartMax {
		_, err = f.Seek(st.Size()-PartMax, io.SeekStart) // otherwise start at the beginning
		cut = err == nil
	}
	data, err := io.ReadAll(io.LimitReader(f, PartMax))
	if err != nil {
		b.Miss(name, err)
		return
	}
	if cut { // a line without its beginning may be a secret without its name
		_, data, _ = bytes.Cut(data, []byte("\n"))
		what += leftOut
	}
	b.Add(name, what, strings.ToValidUTF8(string(data), "?"))
}

// Miss records a part that is missing, and why.
func (b *Report) Miss(name string, err error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %s", name, Text(err.Error())))
}

// readme describes the content.
func (b *Report) readme() string {
	var t strings.Builder
	fmt.Fprintf(&t, "%s\n\ninstance %s, %s\n\n", b.why, b.name, b.made.Format(time.RFC3339))
	for _, p := range b.parts {
		fmt.Fprintf(&t, "%-18s %s\n", p.name, p.what)
	}
	if len(b.files) > 0 {
		fmt.Fprintf(&t, "\nPackets of the run are in these files of lklrun --capture, which are not included here:\n  %s\n", strings.Join(b.files, "\n  "))
	}
	if len(b.missing) > 0 {
		fmt.Fprintf(&t, "\nMissing:\n  %s\n", strings.Join(b.missing, "\n  "))
	}
	but := ""
	if slices.ContainsFunc(b.parts, func(p part) bool { return p.name == PacketsFile }) {
		but = ", except in packets"
	}
	fmt.Fprintf(&t, "\nValues that look like secrets are replaced by %s%s. Review the content before you share it.\n", blank, but)
	return t.String()
}

// Base is the file's name without its directory.
func (b *Report) Base() string {
	return b.name + "-" + b.made.Format("20060102-150405") + suffix
}

// Write writes the tar archive, compressed.
func (b *Report) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	folder := strings.TrimSuffix(b.Base(), suffix) + "/"
	for _, p := range append([]part{{"README.txt", "", []byte(Text(b.readme()))}}, b.parts...) {
		err := t.WriteHeader(&tar.Header{Name: folder + p.name, Mode: 0o600, Size: int64(len(p.data)), ModTime: b.made, Format: tar.FormatPAX})
		if err == nil {
			_, err = t.Write(p.data)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// Save writes the report to path atomically, readable by its user only.
func (b *Report) Save(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(b.Write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // our own file; if it is gone: fine
	}
	return err
}

// Keep saves the report in Dir, removes the oldest beyond keepMost, and returns its path.
func (b *Report) Keep() (string, error) {
	dir, err := Dir(os.Getenv)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, b.Base())
	if err := b.Save(path); err != nil {
		return "", err
	}
	return path, prune(dir)
}

// prune removes the oldest reports; their names end with their time.
func prune(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var ours []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), suffix) && len(stamp(e.Name())) == len("20060102-150405") {
			ours = append(ours, e.Name())
		}
	}
	slices.SortFunc(ours, func(a, b string) int { return strings.Compare(stamp(a), stamp(b)) })
	var errs []error
	for _, name := range ours[:max(0, len(ours)-keepMost)] {
		errs = append(errs, os.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// stamp is the time in a report's name.
func stamp(name string) string {
	name = strings.TrimSuffix(name, suffix)
	if i := len(name) - len("20060102-150405"); i > 0 && name[i-1] == '-' {
		return name[i:]
	}
	return ""
}

// Dir is the directory for reports. It is not the run directory, which is removed:
// $XDG_STATE_HOME/lklrun, else ~/.local/state/lklrun (the XDG Base Directory
// Specification).
func Dir(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lklrun"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "lklrun"), nil
	}
	return "", errors.New("no directory for it: neither XDG_STATE_HOME nor HOME is set")
}
