// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"path/filepath"

	"github.com/lklrun/lklrun/pkg/capture"
)

// captureFile is the file of a recording. It implements capture.Handler.
type captureFile struct {
	path   string // full, for who reads of it elsewhere
	file   *os.File
	files  *capture.Files // nil: begin has not been called
	handed int64          // bytes written to the file
	whole  int64          // bytes of whole blocks
}

// createCapture makes the file. As that of any file that a command writes its mode is
// the umask's to say.
func createCapture(path string) (*captureFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, &RefusedError{cause(err)}
	}
	f := &captureFile{path: path, file: file}
	if abs, err := filepath.Abs(path); err == nil {
		f.path = abs
	}
	return f, nil
}

// begin writes its head. A batch is on the disk before the next one is asked for:
// whatever becomes of this process, the file can be read.
func (f *captureFile) begin() (err error) {
	f.files, err = capture.NewFiles(capture.FileOptions{Path: "-", Out: f, Application: "lklrun --capture", PerBatch: true})
	return err
}

// Write counts what goes into the file.
func (f *captureFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.handed += int64(n)
	return n, err
}

// Interface takes an interface into the file.
func (f *captureFile) Interface(m *capture.Member) error { return f.kept(f.files.Interface(m)) }

// Packets writes packets.
func (f *captureFile) Packets(packets []capture.Packet) error {
	return f.kept(f.files.Packets(packets))
}

// kept notes that the file is whole as it is.
func (f *captureFile) kept(err error) error {
	if err == nil {
		f.whole = f.handed
	}
	return err
}

// finish ends the file, which has what it should so far, or else what it took.
func (f *captureFile) finish(good bool) error {
	var err error
	if good {
		err = f.files.Close()
	}
	if !good || err != nil {
		// Half a block at its end would be an error to whoever reads it.
		_ = f.file.Truncate(f.whole) // a pipe has no length
	}
	return err
}
