// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lestrrat-go/strftime"
)

// Format is a file's format.
type Format string

// The formats.
const (
	FormatPcapng Format = "pcapng"
	FormatPcap   Format = "pcap"
)

// FormatOf is what a file's name asks for: pcap with the suffix .pcap, else pcapng.
func FormatOf(path string) Format {
	if strings.HasSuffix(path, ".pcap") {
		return FormatPcap
	}
	return FormatPcapng
}

// FileOptions say which files are written, by tcpdump's rules.
type FileOptions struct {
	Path    string // with Every in the format of strftime(3); "-": Out
	Out     io.Writer
	Format  Format
	Several bool // the classic format has a link layer for several interfaces

	Every time.Duration // a new file with the first packet after that time; 0: none
	Size  int64         // a new file once one is longer, in bytes; 0: none
	Count int           // of files: with Size a ring, with Every the end; 0: no limit

	Application string // who writes
	PerBatch    bool   // write at once what came, else when there is enough of it
}

// ErrFiles is what ends a capture when the last of FileOptions.Count files is full;
// errors.Is(err, ErrEnough) holds for it.
var ErrFiles = fmt.Errorf("as many files as were asked for are written: %w", ErrEnough)

// statsLimit bounds the question for the counts when a file ends.
const statsLimit = 5 * time.Second

// Files writes what a Session captures into one file or a series of them, each of
// which can be read alone. It implements Handler.
type Files struct {
	opt     FileOptions
	name    *strftime.Strftime
	members []*Member
	before  []Stats // at the beginning of the file

	w       Writer
	size    func() int64
	file    *os.File // nil: Out
	began   time.Time
	periods int
	number  int // of the file within the period
	paths   int
	written uint64
	opened  time.Time // when the file before this one ended
}

// NewFiles makes the first file, so that what is wrong with it shows before
// anything is captured.
func NewFiles(o FileOptions) (*Files, error) {
	f := &Files{opt: o, began: time.Now()}
	if o.Every > 0 {
		var err error
		if f.name, err = strftime.New(o.Path, strftime.WithUnixSeconds('s')); err != nil {
			return nil, fmt.Errorf("the file's name %q: %w", o.Path, err)
		}
	}
	return f, f.open()
}

// Written is how many packets were written, and into how many files.
func (f *Files) Written() (packets uint64, files int) { return f.written, f.paths }

// path is the name of the next file: tcpdump's MakeFilename.
func (f *Files) path() string {
	path := f.opt.Path
	if f.name != nil {
		path = f.name.FormatString(f.began)
	}
	switch {
	case f.opt.Size > 0 && f.opt.Count > 0 && f.opt.Every == 0:
		return fmt.Sprintf("%s%0*d", path, len(fmt.Sprint(f.opt.Count-1)), f.number)
	case f.number > 0:
		return fmt.Sprintf("%s%d", path, f.number)
	}
	return path
}

// open begins a file.
func (f *Files) open() error {
	out := f.opt.Out
	if f.opt.Path != "-" {
		var err error
		// As any file that a command writes: its mode is the umask's to say.
		if f.file, err = os.Create(f.path()); err != nil {
			return err
		}
		out = f.file
	}
	f.paths++
	if f.opt.Format == FormatPcap {
		p := NewPcap(out, f.opt.Several)
		f.w, f.size = p, p.size
	} else {
		p, err := NewPcapng(out, f.opt.Application)
		if err != nil {
			return err
		}
		f.w, f.size = p, p.size
	}
	for _, m := range f.members {
		if _, err := f.w.AddInterface(m.Interface); err != nil {
			return err
		}
	}
	return nil
}

// Interface takes an interface into the file, and into those that follow.
func (f *Files) Interface(m *Member) error {
	f.members = append(f.members, m)
	f.before = append(f.before, Stats{})
	_, err := f.w.AddInterface(m.Interface)
	if err == nil && f.opt.PerBatch {
		err = f.w.Flush() // a reader of a pipe waits for it
	}
	return err
}

// Packets writes packets.
func (f *Files) Packets(packets []Packet) error {
	for i := range packets {
		if err := f.turn(); err != nil {
			return err
		}
		if err := f.w.WritePacket(&packets[i]); err != nil {
			return err
		}
		f.written++
	}
	if f.opt.PerBatch {
		return f.w.Flush()
	}
	return nil
}

// turn begins a new file when it is time for one.
func (f *Files) turn() error {
	late := f.opt.Every > 0 && time.Since(f.began) >= f.opt.Every
	full := f.opt.Size > 0 && f.size() > f.opt.Size
	if !late && !full {
		return nil
	}
	if late {
		f.periods++
		if f.opt.Count > 0 && f.periods >= f.opt.Count && f.opt.Size == 0 {
			return ErrFiles
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	f.number++
	if late {
		f.began, f.number = time.Now(), 0
	}
	if f.opt.Count > 0 && f.number >= f.opt.Count {
		f.number = 0 // a ring
	}
	return f.open()
}

// Close ends the file: what the stack counted for it is written, then what is still
// in memory.
func (f *Files) Close() error {
	if f.w == nil {
		return nil
	}
	var errs []error
	now := time.Now()
	for i, m := range f.members {
		ctx, cancel := context.WithTimeout(context.Background(), statsLimit)
		s := m.Stats(ctx)
		cancel()
		from := m.From
		if f.paths > 1 && f.opened.After(from) {
			from = f.opened
		}
		errs = append(errs, f.w.WriteStats(i, from, now, Stats{s.Received - f.before[i].Received, s.Dropped - f.before[i].Dropped, s.Early}))
		f.before[i] = s
	}
	f.opened = now
	errs = append(errs, f.w.Close())
	if f.file != nil {
		errs = append(errs, f.file.Close())
	}
	f.w, f.file = nil, nil
	return errors.Join(errs...)
}
