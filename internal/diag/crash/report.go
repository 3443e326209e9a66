// SPDX-License-Identifier: Apache-2.0

// Package crash collects diagnostic data of a stack in one file: the kernel's log, the
// plan of the run, sockets, counters and settings. It redacts secrets. lklrun writes such
// a report after a panic of the stack's kernel; `lklctl bundle` creates one for a running
// stack.
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
	"sort"
	"strings"
	"time"
)

// Limits that keep reports small and fast to create.
const (
	PartMax  = 2 << 20 // maximum bytes of a part; a longer part loses its beginning
	keepMost = 5       // maximum number of reports in Dir
)

// leftOut is appended to the description of a truncated part.
const leftOut = "; the beginning is omitted"

// suffix is the file name suffix of reports.
const suffix = ".tar.gz"

// part is one file in a report.
type part struct {
	name, what string
	data       []byte
}

// Report is a report under construction. It is not safe for concurrent use.
type Report struct {
	name    string // name of the instance
	why     string
	made    time.Time
	parts   []part
	missing []string
	files   []string // capture files outside the report
}

// New starts a report about an instance. why becomes the first line of the report.
func New(instance, why string, now time.Time) *Report {
	return &Report{name: instance, why: why, made: now}
}

// Add adds a text after it has redacted secrets. If the text exceeds PartMax, its
// beginning is omitted. what describes the text in one line.
func (b *Report) Add(name, what, text string) { b.add(name, what, Text(text)) }

// add is like Add but does not redact, because MPTCP's tokens look like secrets.
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
		b.NoteMissing(name, err)
		return
	}
	b.Add(name, what, string(text)+"\n")
}

// AddFile adds a file of this machine.
func (b *Report) AddFile(name, what, path string) {
	f, err := os.Open(path)
	if err != nil {
		b.NoteMissing(name, err)
		return
	}
	defer f.Close()
	cut := false
	if st, err := f.Stat(); err == nil && st.Size() > PartMax {
		_, err = f.Seek(st.Size()-PartMax, io.SeekStart) // if the seek fails, read from the start
		cut = err == nil
	}
	data, err := io.ReadAll(io.LimitReader(f, PartMax))
	if err != nil {
		b.NoteMissing(name, err)
		return
	}
	if cut { // an incomplete line may contain a secret without its name
		_, data, _ = bytes.Cut(data, []byte("\n"))
		what += leftOut
	}
	b.Add(name, what, strings.ToValidUTF8(string(data), "?"))
}

// NoteMissing records that a part is missing, and the reason.
func (b *Report) NoteMissing(name string, err error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %s", name, Text(err.Error())))
}

// readme describes the report's content.
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

// Base returns the report's file name without its directory.
func (b *Report) Base() string {
	return b.name + "-" + b.made.Format("20060102-150405") + suffix
}

// Write writes the report as a compressed tar archive.
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

// Save writes the report to path atomically. Only its user can read the file.
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
		_ = os.Remove(f.Name()) // an error means that our own file is already gone
	}
	return err
}

// Keep saves the report in Dir, removes the oldest reports beyond keepMost, and returns
// the path of the report.
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

// prune removes the oldest reports. The end of a report's name is its time.
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
	sort.Slice(ours, func(i, j int) bool { return stamp(ours[i]) < stamp(ours[j]) })
	var errs []error
	for _, name := range ours[:max(0, len(ours)-keepMost)] {
		errs = append(errs, os.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// stamp returns the time in a report's name.
func stamp(name string) string {
	name = strings.TrimSuffix(name, suffix)
	if i := len(name) - len("20060102-150405"); i > 0 && name[i-1] == '-' {
		return name[i:]
	}
	return ""
}

// Dir returns the directory for reports. It is $XDG_STATE_HOME/lklrun or else
// ~/.local/state/lklrun (the XDG Base Directory Specification). Reports are not kept in
// the run directory, because that is removed.
func Dir(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "lklrun"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "lklrun"), nil
	}
	return "", errors.New("no directory for it: neither XDG_STATE_HOME nor HOME is set")
}
