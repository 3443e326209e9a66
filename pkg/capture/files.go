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

// Format is the format of a file.
type Format string

// The formats.
const (
	FormatPcapng Format = "pcapng"
	FormatPcap   Format = "pcap"
)

// FormatOf returns the format for a file name: pcap for the suffix .pcap,
// otherwise pcapng.
func FormatOf(path string) Format {
	if strings.HasSuffix(path, ".pcap") {
		return FormatPcap
	}
	return FormatPcapng
}

// FileOptions select the files to write, by tcpdump's rules.
type FileOptions struct {
	Path    string // file name, in the format of strftime(3) if Every is set; "-": write to Out
	Out     io.Writer
	Format  Format
	Several bool // several interfaces follow, which in the pcap format need a common link type

	Every time.Duration // start a new file with the first packet after this time; 0: never
	Size  int64         // start a new file when a file exceeds this size in bytes; 0: never
	Count int           // maximum number of files; with Size, the oldest is overwritten, with Every, the capture ends; 0: no limit

	Application string // name of the writing program
	Private     bool   // only the user may read the files
	PerBatch    bool   // write each batch immediately instead of buffering
}

// ErrFiles ends a capture when the last of FileOptions.Count files is full. It
// wraps ErrEnough.
var ErrFiles = fmt.Errorf("the requested number of files has been written: %w", ErrEnough)

// statsLimit is the timeout of the query of the counters at the end of a file.
const statsLimit = 5 * time.Second

// Files writes the packets of a Session into one file or a series of files,
// each of which can be read separately. It implements Handler.
type Files struct {
	opt     FileOptions
	name    *strftime.Strftime
	members []*Member
	before  []Stats // counters at the beginning of the file

	keys []byte // TLS secrets, for the following files

	w       Writer
	size    func() int64
	file    *os.File // nil: Out
	began   time.Time
	periods int
	number  int // number of the file within the period
	paths   int
	written uint64
	opened  time.Time // when the previous file ended
}

// NewFiles creates the first file, so that errors appear before the capture
// starts.
func NewFiles(o FileOptions) (*Files, error) {
	f := &Files{opt: o, began: time.Now()}
	if o.Every > 0 {
		var err error
		if f.name, err = strftime.New(o.Path, strftime.WithUnixSeconds('s')); err != nil {
			return nil, fmt.Errorf("file name %q: %w", o.Path, err)
		}
	}
	return f, f.open()
}

// Written returns the number of written packets, and the number of files.
func (f *Files) Written() (packets uint64, files int) { return f.written, f.paths }

// path returns the name of the next file, as MakeFilename in tcpdump does.
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
		if f.file, err = Create(f.path(), f.opt.Private); err != nil {
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
	if len(f.keys) > 0 {
		return f.writeKeys(f.keys)
	}
	return nil
}

// Create creates or truncates a file. If it is private, only the user may read it. Otherwise
// the umask determines its mode, as for any file that a command writes.
func Create(path string, private bool) (*os.File, error) {
	if !private {
		return os.Create(path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err == nil && st.Mode().IsRegular() {
		// The file may exist with another mode.
		err = errors.Join(file.Chmod(0o600), file.Truncate(0))
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Interface adds an interface to the file and to the following ones.
func (f *Files) Interface(m *Member) error {
	f.members = append(f.members, m)
	f.before = append(f.before, Stats{})
	_, err := f.w.AddInterface(m.Interface)
	if err == nil && f.opt.PerBatch {
		err = f.w.Flush() // the reader of a pipe waits for this data
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

// Events writes events, if the format has a place for them. They start no new file.
func (f *Files) Events(events []Event) error {
	p, ok := f.w.(*Pcapng)
	if !ok {
		return nil
	}
	for i := range events {
		if err := p.WriteEvent(&events[i]); err != nil {
			return err
		}
	}
	if f.opt.PerBatch {
		return f.w.Flush()
	}
	return nil
}

// Keys writes TLS secrets, if the format has a place for them. The following files begin with
// all secrets so far.
func (f *Files) Keys(lines []byte) error {
	f.keys = append(f.keys, lines...)
	if err := f.writeKeys(lines); err != nil || !f.opt.PerBatch {
		return err
	}
	return f.w.Flush()
}

func (f *Files) writeKeys(lines []byte) error {
	if p, ok := f.w.(*Pcapng); ok {
		return p.WriteKeys(lines)
	}
	return nil
}

// turn begins a new file if it is time for one.
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
		f.number = 0 // start again at the first file of the ring
	}
	return f.open()
}

// Close ends the file. It writes the stack's counters for the file, then the
// buffered data.
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
